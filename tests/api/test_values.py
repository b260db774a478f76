"""Functions as the manager has them: submissions with calls, values by key, for clients and for workers."""

import asyncio
import hashlib
import io
import os
import zlib
from typing import Any

import msgspec
import pytest

from tercel.core.errors import StoreFull
from tercel.core.model import Role
from tercel.core.presence import Held
from tercel.core.reports import Output
from tercel.wire.api import Stored, Submitted
from tercel.wire.messages import Brief, Fetch, Offer, Piece, Segment, Started
from tests.api.house import Answer, House, Scripted, inline

PACKED = {"Content-Type": "application/msgpack"}
FUNCTION = {"code": b"a function", "name": "f", "python": "3.11", "path": ["/here"]}


async def submit(house: House, calls: list[Any], token: str = "", **function: Any) -> Answer:
    body = {"function": {**FUNCTION, **function}, "calls": calls}
    return await house.ask(
        "POST", "/v1/jobs", token=token, body=io.BytesIO(msgspec.msgpack.encode(body)), headers=PACKED
    )


async def upload(house: House, data: bytes, key: str = "") -> str:
    key = key or "b" + hashlib.sha256(data).hexdigest()
    assert (await house.ask("PUT", f"/v1/values/{key}", body=io.BytesIO(data))).of(Stored).key == key
    return key


async def pieces(worker: Scripted, key: str) -> bytes:
    """The whole of a value, asked for as a worker does."""
    whole, number = b"", 0
    while True:
        await worker.say(Fetch(key, number))
        piece = await worker.until(
            lambda n=number: next((p for p in worker.all(Piece) if (p.key, p.number) == (key, n)), None)  # type: ignore[misc]
        )
        assert not piece.gone, piece.gone
        whole += zlib.decompress(piece.data)
        number += 1
        if piece.last:
            return whole


async def refused(worker: Scripted, key: str) -> str:
    await worker.say(Fetch(key, 0))
    return (await worker.until(lambda: next((p for p in worker.all(Piece) if p.key == key), None))).gone


# -- submissions ------------------------------------------------------------------------------------------


async def test_a_worker_is_given_the_function_once_and_each_call(house: House) -> None:
    worker = await house.worker(cpus=2)
    answer = await submit(house, [[b"first"], [b"second", []]])
    assert answer.of(Submitted).tasks == 2
    await worker.offered()
    await worker.offered()
    function = (await worker.next(Brief)).program.function
    assert function is not None
    assert (function.code, function.name, function.path) == (b"a function", "f", ("/here",))
    calls = [call for offer in worker.all(Offer) for call in offer.calls or ()]
    assert [call.arguments for call in calls] == [b"first", b"second"]


async def test_json_is_taken_too(house: House) -> None:
    body = {"function": {"code": "Y29kZQ=="}, "calls": [["YXJncw=="]]}
    assert (await house.ask("POST", "/v1/jobs", json=body)).of(Submitted).tasks == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"function": FUNCTION}, "calls"),
        ({"calls": [[b"x"]], "argv": ["true"]}, "calls"),
        ({"function": FUNCTION, "calls": []}, "calls"),
        ({"function": FUNCTION, "calls": [[b"x"]], "argv": ["true"]}, "function"),
        ({"function": FUNCTION, "calls": [[b"x"]], "array": "0-3"}, "array"),
        ({"function": {}, "calls": [[b"x"]]}, "function.code"),
        ({"function": {"code": b"x" * (2**20 + 1)}, "calls": [[b"x"]]}, "function.code"),
        ({"function": {"value": "t1.0"}, "calls": [[b"x"]]}, "function.value"),
        ({"function": FUNCTION, "calls": [[b"x"], [b"x" * (2**20 + 1)]]}, "calls[1]"),
        ({"function": FUNCTION, "calls": [[b"x", ["t1"]]]}, "calls[0].values"),
        ({"function": FUNCTION, "calls": [[b"x", ["b" + "A" * 64]]]}, "calls[0].values"),
        ({"function": FUNCTION, "calls": [[b"x", ["b" + "a" * 64]]]}, "calls"),
        ({"function": FUNCTION, "calls": [[b"x", ["t999.0"]]]}, "calls"),
    ],
)
async def test_what_cannot_be_called_is_refused_and_nothing_is_submitted(
    house: House, body: dict[str, Any], field: str
) -> None:
    answer = await house.ask(
        "POST", "/v1/jobs", body=io.BytesIO(msgspec.msgpack.encode(body)), headers=PACKED
    )
    assert answer.status in (400, 404)
    assert answer.problem.field == field
    assert (await house.status()).jobs == 0


async def test_a_call_cannot_refer_to_what_its_owner_may_not_see(house: House) -> None:
    ada, bob = [await house.token(Role.USER, name) for name in ("ada", "bob")]
    job = (await submit(house, [[b"x"]], token=ada.secret)).of(Submitted).id
    assert (await submit(house, [[b"x", [f"t{job}.0"]]], token=bob.secret)).status == 404
    assert (await submit(house, [[b"x", [f"t{job}.1"]]], token=ada.secret)).status == 404
    assert (await submit(house, [[b"x", [f"t{job}.0"]]], token=ada.secret)).status == 201


async def test_a_call_cannot_refer_to_a_task_that_returns_nothing(house: House) -> None:
    job = (await house.submit()).id
    assert (await submit(house, [[b"x", [f"t{job}.0"]]])).problem.field == "calls"


# -- uploads ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2**18, 2**18 + 1, 9 * 2**20])
async def test_an_uploaded_value_is_read_as_it_was(house: House, size: int) -> None:
    data = os.urandom(size)
    key = await upload(house, data)
    assert (await house.ask("GET", f"/v1/values/{key}")).body == data
    again = await house.ask("PUT", f"/v1/values/{key}", body=io.BytesIO(data))
    assert (again.status, again.of(Stored).repeated) == (200, True)


async def test_content_that_is_not_what_its_key_says_is_refused_and_no_value(house: House) -> None:
    data = os.urandom(6 * 2**20)
    key = "b" + hashlib.sha256(data).hexdigest()
    answer = await house.ask("PUT", f"/v1/values/{key}", body=io.BytesIO(data[:-1]))
    assert answer.problem.field == "key"
    assert (await house.ask("GET", f"/v1/values/{key}")).status == 404
    await upload(house, data, key)
    assert (await house.ask("GET", f"/v1/values/{key}")).body == data


async def test_two_uploads_of_one_key_at_a_time_do_not_mix(house: House) -> None:
    data = os.urandom(5 * 2**20)
    key = "b" + hashlib.sha256(data).hexdigest()
    wrong = house.ask("PUT", f"/v1/values/{key}", body=io.BytesIO(bytes(len(data))))
    right = house.ask("PUT", f"/v1/values/{key}", body=io.BytesIO(data))
    answers = await asyncio.gather(wrong, right)
    assert [answer.status for answer in answers] == [400, 201]
    assert (await house.ask("GET", f"/v1/values/{key}")).body == data


async def test_what_a_task_returned_cannot_be_uploaded(house: House) -> None:
    assert (await house.ask("PUT", "/v1/values/t1.0", body=b"x")).problem.field == "key"


async def test_a_full_disk_refuses_an_upload(house: House) -> None:
    disk = house.disk()
    disk.fail(StoreFull("no room"))
    data = b"some"
    answer = await house.ask("PUT", f"/v1/values/b{hashlib.sha256(data).hexdigest()}", body=io.BytesIO(data))
    assert answer.status == 507
    disk.fail(None)


# -- values of tasks --------------------------------------------------------------------------------------


async def test_the_outcomes_of_many_tasks_are_read_at_once(house: House) -> None:
    worker = await house.worker(cpus=3)
    job = (await submit(house, [[b"0"], [b"1"], [b"2"], [b"3"]])).of(Submitted).id
    reports = [await worker.offered() for _ in range(3)]
    await worker.report(reports[0], value=inline(b"zero"))
    await worker.report(reports[1], code=1, note="ValueError: no", value=inline(b"error"))
    await worker.say(Segment(reports[2].attempt, "value", 0, zlib.compress(b"large")))
    await worker.report(reports[2], value=Output(5, 5, b"", 1))
    answer = await house.ask("GET", f"/v1/jobs/{job}/values?tasks=0-9")
    assert answer.headers["Content-Type"] == "application/msgpack"
    assert msgspec.msgpack.decode(answer.body) == [
        [0, "finished", "exited", 0, "", b"zero", 4],
        [1, "failed", "exited", 1, "ValueError: no", b"error", 5],
        [2, "finished", "exited", 0, "", None, 5],
    ]
    assert (await house.ask("GET", f"/v1/values/t{job}.2")).body == b"large"
    assert (await house.ask("GET", f"/v1/values/t{job}.0")).body == b"zero"
    assert (await house.ask("GET", f"/v1/values/t{job}.3")).status == 404
    bob = await house.token(Role.USER, "bob")
    for path in (f"/v1/values/t{job}.0", f"/v1/jobs/{job}/values"):
        assert (await house.ask("GET", path, token=bob.secret)).status == 404


# -- workers ----------------------------------------------------------------------------------------------


async def test_a_worker_fetches_what_its_calls_refer_to_and_nothing_else(house: House) -> None:
    worker = await house.worker()
    data, other = os.urandom(600_000), await upload(house, b"somebody else's")
    key, code = await upload(house, data), await upload(house, b"code")
    job = (await submit(house, [[b"0"]])).of(Submitted).id
    await worker.report(await worker.offered(), value=inline(b"zero"))
    await submit(house, [[b"x", [key, f"t{job}.0"]]], code=b"", value=code)
    await worker.offered()
    assert await pieces(worker, key) == data
    assert await pieces(worker, code) == b"code"
    assert await pieces(worker, f"t{job}.0") == b"zero"
    assert "no attempt" in await refused(worker, other)
    assert "no attempt" in await refused(worker, "nonsense")


async def test_a_worker_that_is_back_may_still_fetch_for_what_it_holds(house: House) -> None:
    worker = await house.worker()
    key = await upload(house, b"value")
    await submit(house, [[b"x", [key]]])
    report = await worker.offered()
    await worker.close()
    from_before = Scripted(await house.dial(), worker.name)
    house._workers.append(from_before)
    await from_before.join(held=[Held(report.job, report.task, report.attempt, started=False, ended=False)])
    assert await pieces(from_before, key) == b"value"


async def test_a_call_that_needs_the_value_of_one_that_failed_is_skipped(house: House) -> None:
    worker = await house.worker()
    job = (await submit(house, [[b"0"]])).of(Submitted).id
    await worker.report(await worker.offered(), code=1, value=inline(b"error"))
    await submit(house, [[b"x", [f"t{job}.0"]]])
    assert (await house.ended(2)).counts.cancelled == 1
    assert (await house.task(2, 0)).why.startswith("skipped: it needs 1.0, which ")


async def test_the_value_of_a_task_that_failed_is_gone(house: House) -> None:
    """A call that refers to it runs only if that was asked for."""
    worker = await house.worker()
    body = {"function": FUNCTION, "calls": [[b"0"]], "on_failure": "run"}
    packed = io.BytesIO(msgspec.msgpack.encode(body))
    assert (await house.ask("POST", "/v1/jobs", body=packed, headers=PACKED)).status == 201
    await worker.report(await worker.offered(), code=1, value=inline(b"error"))
    await submit(house, [[b"x", ["t1.0"]]])
    await worker.offered()
    assert "is failed" in await refused(worker, "t1.0")


async def test_tasks_that_have_begun_are_spared_if_asked_for(house: House) -> None:
    worker = await house.worker()
    job = (await submit(house, [[b"0"], [b"1"]])).of(Submitted).id
    report = await worker.offered()
    await worker.say(Started([report.attempt]))
    await worker.settled()
    answer = await house.ask("POST", "/v1/cancel", json={"select": [str(job)], "unstarted": True})
    assert answer.json == {"count": 1}
    await worker.report(report, value=inline(b"zero"))
    assert (await house.ended(job)).counts.finished == 1


async def test_a_value_that_a_client_has_just_named_is_not_cleaned_away(house: House) -> None:
    """Whoever was told that it is there is about to refer to it."""
    worker = await house.worker()
    keys = [await upload(house, bytes([number]) * 100) for number in range(2)]
    for key in keys:
        await submit(house, [[b"args", [key]]])
        await worker.report(await worker.offered())
    for id in (1, 2):
        await house.ended(id)
    house.manager.clock = lambda: 1e10
    again = await house.ask("PUT", f"/v1/values/{keys[0]}", body=io.BytesIO(bytes(100)))
    assert again.of(Stored).repeated
    await house.ask("POST", "/v1/clean", json={"older_s": 3600.0})
    assert [(await house.ask("GET", f"/v1/values/{key}")).status for key in keys] == [200, 404]
    assert (await submit(house, [[b"args", [keys[0]]]])).status == 201
    assert (await submit(house, [[b"args", [keys[1]]]])).status == 404
