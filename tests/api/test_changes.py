"""Jobs that are changed while they are there, over HTTP: hold, release, revise, retry; and a job read back."""

import getpass
import io
from typing import Any

import msgspec
import pytest

from tercel.core.model import Role
from tercel.core.scripts import starting
from tercel.wire.api import Submission, Submitted
from tests.api.house import Answer, House

ME = getpass.getuser()


async def change(house: House, what: str, *select: str, token: str = "", **more: Any) -> int:
    answer = await house.ask("POST", f"/v1/{what}", token=token, json={"select": select, **more})
    assert answer.status == 200, answer
    return int(answer.json["count"])


# -- hold and release -------------------------------------------------------------------------------------


async def test_what_is_held_does_not_start_until_it_is_released(house: House) -> None:
    await house.submit(array="0-9")
    assert await change(house, "hold", "1.0-7") == 8
    assert await change(house, "hold", "1.0-7") == 0, "they are held already"
    worker = await house.worker(cpus=4)
    for task in (8, 9):
        offer = await worker.offered()
        assert offer.task == task
        await worker.report(offer)
    counts = (await house.job(1)).counts
    assert (counts.paused, counts.finished) == (8, 2)
    assert await house.explain("1.3") == "is held: `tercel release 1` lets it go on"
    assert await house.explain("1") == "8 paused: is held: `tercel release 1` lets it go on"
    assert await change(house, "release", "1.3") == 1
    assert (await worker.offered()).task == 3
    assert await change(house, "release", "1") == 7
    await house.sound()


async def test_what_runs_goes_on_and_stays_ended(house: House) -> None:
    worker = await house.worker()
    await house.submit(array="0-2")
    offer = await worker.offered()
    assert await change(house, "hold", "1") == 3, "also the one under way, should it come back"
    await worker.report(offer)
    assert (await house.job(1)).counts.paused == 2
    assert await change(house, "release", "1") == 2, "the finished one was not held any more"


async def test_a_job_may_be_submitted_held(house: House) -> None:
    await house.submit(array="0-2", hold=True)
    assert (await house.job(1)).counts.paused == 3
    assert await change(house, "release", "last") == 3
    assert (await house.job(1)).counts.ready == 3


async def test_a_held_job_still_waits_for_its_needs_once_it_is_released(house: House) -> None:
    await house.submit()
    await house.submit(after=[{"job": 1}], hold=True)
    assert (await house.job(2)).counts.paused == 1
    await change(house, "release", "2")
    assert (await house.job(2)).counts.waiting == 1


async def test_a_held_job_can_be_cancelled(house: House) -> None:
    await house.submit(array="0-2", hold=True)
    assert await change(house, "cancel", "1") == 3
    assert (await house.job(1)).counts.cancelled == 3


# -- revise -----------------------------------------------------------------------------------------------


async def test_a_more_urgent_job_comes_first(house: House) -> None:
    await house.submit()
    await house.submit()
    assert await change(house, "revise", "2", priority=5) == 1
    assert await change(house, "revise", "2", priority=5) == 0
    assert (await house.job(2)).priority == 5
    worker = await house.worker()
    assert (await worker.offered()).job == 2


async def test_a_job_that_asks_for_too_much_is_revised_and_runs(house: House) -> None:
    worker = await house.worker(cpus=1)
    await house.submit(cpus=64)
    assert "cpus ≥ 64" in await house.explain("1.0")
    assert await change(house, "revise", "1", cpus=1, time_limit_s=60) == 1
    await worker.report(await worker.offered(1))
    assert (await house.ended(1)).counts.finished == 1
    assert await change(house, "revise", "1", priority=1) == 0, "it has ended"


async def test_where_a_job_runs_is_revised_and_shown(house: House) -> None:
    await house.submit(requires=["A"], cleanup="./wipe.sh")
    wish = {"gpus": 2, "resources": {"licence.x": 1}, "requires": ["B", "A", "B"], "where": "worker.cpus > 1"}
    assert await change(house, "revise", "1", **wish, rank="worker.speed") == 1
    view = await house.job(1)
    assert (view.gpus, view.resources, view.requires) == (2, {"licence.x": 1}, ["B", "A"])
    assert (view.where, view.rank, view.cleanup) == ("worker.cpus > 1", "worker.speed", "./wipe.sh")
    assert await change(house, "revise", "1", requires=[], where="", rank="", gpus=0, resources={}) == 1
    view = await house.job(1)
    assert (view.gpus, view.resources, view.requires, view.where, view.rank) == (0, {}, [], "", "")


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("what", "body", "field"),
    [
        ("revise", {"select": ["1"], "priority": -1}, "priority"),
        ("revise", {"select": ["1"], "cpus": 0}, "cpus"),
        ("revise", {"select": ["1"], "mem_bytes": -1}, "mem_bytes"),
        ("revise", {"select": ["1"], "time_limit_s": 1e300}, "time_limit_s"),
        ("revise", {"select": ["1"], "gpus": 1.5}, "gpus"),
        ("revise", {"select": ["1"], "resources": {"cpus": 1}}, "resources"),
        ("revise", {"select": ["1"], "requires": ["a b"]}, "requires"),
        ("revise", {"select": ["1"], "where": "worker.nosuch"}, "where"),
        ("revise", {"select": ["1"], "rank": "'high'"}, "rank"),
        ("revise", {"select": ["1.0"], "priority": 5}, "select"),
        ("revise", {"select": ["1", "2.0"], "priority": 5}, "select"),
        ("revise", {"select": ["1"], "name": "x"}, ""),
        ("retry", {"select": ["1"], "mem_bytes": -1}, "mem_bytes"),
        ("retry", {"select": ["1"], "time_limit_s": -1}, "time_limit_s"),
        ("hold", {"select": []}, "select"),
        ("hold", {"select": ["x"]}, ""),
        ("release", {"select": ["1"], "priority": 5}, ""),
    ],
)
async def test_a_change_that_cannot_be_changes_nothing(
    house: House, what: str, body: dict[str, Any], field: str
) -> None:
    await house.submit(array="0-1")
    await house.submit(array="0-1")
    before = [await house.job(id) for id in (1, 2)]
    answer = await house.ask("POST", f"/v1/{what}", json=body)
    assert answer.status == 400
    assert field in answer.problem.field
    assert [await house.job(id) for id in (1, 2)] == before
    await house.sound()


@pytest.mark.parametrize("what", ["hold", "release", "revise", "retry", "cancel"])
async def test_one_who_may_not_see_a_job_changes_nothing_of_it(house: House, what: str) -> None:
    ada, eve = [(await house.token(Role.USER, user)).secret for user in ("ada", "eve")]
    await house.submit(token=ada, array="0-1")
    more = {"priority": 5} if what == "revise" else {}
    for select in ("1", "1.0", "last", "1-9"):
        body = {"select": [select], **more}
        answer = await house.ask("POST", f"/v1/{what}", token=eve, json=body)
        assert answer.status == 404, select
    assert await change(house, what, "all", token=eve, **more) == 0
    view = await house.job(1)
    assert (view.counts.ready, view.priority) == (2, 1000)
    assert (await house.ask("GET", "/v1/jobs/1/submission", token=eve)).status == 404


# -- retry ------------------------------------------------------------------------------------------------


async def test_a_retry_of_a_job_runs_what_failed_and_tells_every_attempt(house: House) -> None:
    worker = await house.worker("w")
    await house.submit(array="0-2")
    for code in (0, 3, 0):
        await worker.report(await worker.offered(), code=code)
    await house.ended(1)
    assert await change(house, "retry", "1", mem_bytes=2**20, time_limit_s=60) == 1
    view = await house.job(1)
    assert (view.mem_bytes, view.time_limit_s, view.counts.finished) == (2**20, 60.0, 2)
    again = await worker.offered()
    assert again.task == 1
    await worker.report(again)
    await house.ended(1)
    task = await house.task(1, 1)
    assert [(attempt.state, attempt.code, attempt.worker) for attempt in task.attempts] == [
        ("failed", 3, "w"),
        ("finished", 0, "w"),
    ]
    assert await change(house, "retry", "1") == 0


async def test_a_retry_of_all_runs_finished_and_cancelled_tasks_too(house: House) -> None:
    await house.submit(array="0-2")
    await change(house, "hold", "1.1-2")
    worker = await house.worker()
    await worker.report(await worker.offered())
    await change(house, "cancel", "1")
    await house.ended(1)
    assert await change(house, "retry", "1") == 0
    assert await change(house, "retry", "1", all=True) == 3
    for _ in range(3):
        await worker.report(await worker.offered())
    assert (await house.ended(1)).counts.finished == 3
    await house.sound()


async def test_of_named_tasks_cancelled_ones_run_again(house: House) -> None:
    await house.submit(array="0-9")
    await change(house, "cancel", "1")
    assert await change(house, "retry", "1.0-4") == 5
    view = await house.job(1)
    assert (view.counts.ready, view.counts.cancelled, view.ended_at) == (5, 5, None)


# -- a job read back --------------------------------------------------------------------------------------


async def _submission(house: House, id: int) -> Submission:
    return (await house.ask("GET", f"/v1/jobs/{id}/submission")).of(Submission)


GRID = {"axes": [{"name": "C", "values": ["1", "2"]}, {"name": "g", "values": ["0", "a b"]}]}
FORMS: dict[str, dict[str, Any]] = {
    "argv": {"argv": ["./fit.sh", "a b"], "array": "0-99:7%3", "task_id_argument": True},
    "line": {"line": "echo $HOME | cat", "name": "n", "cpus": 0.5, "mem_bytes": 5, "time_limit_s": 7.5},
    "lines": {"lines": ["echo a", "echo 'b c'", "true"], "env": {"A": "b"}, "cwd": "/tmp"},
    "items": {"argv": ["echo", "{x}"], "items": ['{"x": 1.50}', '{"x": [1, 2]}'], "template": True},
    "grid": {"line": "echo {C} {g}", "grid": GRID, "template": True},
    "part of a grid": {"line": "echo {C} {g}", "grid": GRID, "template": True, "array": "1,3%1"},
    "rules": {
        "argv": ["true"],
        "retries": 3,
        "backoff_s": 2.0,
        "retry_rules": [{"codes": [75], "retries": 9}],
        "max_fails": "5%",
        "on_failure": "run",
        "priority": 7,
        "hold": True,
        "kill_grace_s": 1.0,
        "output_limit_bytes": 1000,
    },
    "needs": {
        "argv": ["true"],
        "array": "0-3",
        "after": [{"job": 1, "kind": "any", "tasks": [[0, 1]]}],
        "edges": [[2, 0, 0, 1], [3, 1, 1, 2]],
    },
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_job_read_back_is_as_it_was_handed_in_and_makes_another(house: House, form: str) -> None:
    await house.submit(array="0-2")
    given = {"queue": ME, **FORMS[form]}
    (await house.ask("POST", "/v1/jobs", json={**given, "key": "mine"})).of(Submitted)
    read = await _submission(house, 2)
    assert read == msgspec.convert(given, Submission)
    again = (await house.ask("POST", "/v1/jobs", json=read)).of(Submitted)
    assert (again.id, again.repeated) == (3, False)
    assert await _submission(house, 3) == read
    assert (await house.job(3)).counts == (await house.job(2)).counts
    await house.sound()


async def test_a_job_read_back_is_as_it_was_revised(house: House) -> None:
    await house.submit()
    await change(house, "revise", "1", priority=5, mem_bytes=9)
    read = await _submission(house, 1)
    assert (read.priority, read.mem_bytes) == (5, 9)


async def test_a_job_that_has_ended_is_read_back_too(house: House) -> None:
    await house.submit(lines=["a", "b"])
    await change(house, "cancel", "1")
    assert (await _submission(house, 1)).lines == ["a", "b"]


def _packed(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "body": io.BytesIO(msgspec.msgpack.encode(body)),
        "headers": {"Content-Type": "application/msgpack"},
    }


async def test_the_job_of_a_function_is_read_back_with_its_calls(house: House) -> None:
    function = {"code": b"\x00\xff", "name": "f", "python": "3.11", "path": ["/here"]}
    first = {"function": function, "calls": [[b"\x80one", []], [b"two", []]]}
    assert (await house.ask("POST", "/v1/jobs", **_packed(first))).status == 201
    second = {
        "function": function,
        "calls": [[b"\xfe", ["t1.1"]], [b"x", []]],
        "edges": [[1, 0, 0, 0], [1, 1, 0, 0]],
    }
    assert (await house.ask("POST", "/v1/jobs", **_packed(second))).status == 201
    read = await _submission(house, 2)
    assert read == msgspec.convert(second, Submission)
    again: Answer = await house.ask(
        "POST", "/v1/jobs", **_packed(msgspec.to_builtins(read, builtin_types=(bytes,)))
    )
    assert again.of(Submitted).id == 3
    assert await _submission(house, 3) == read
    assert (await house.job(3)).counts.waiting == 2


async def test_a_script_is_shown_by_its_name_and_arguments(house: House) -> None:
    text = "#!/bin/sh\n#TERCEL -c 1\necho {x}\n"
    await house.submit(argv=[*starting("job.sh", text), "--fast", "a b"], name="job.sh")
    assert (await house.job(1)).command == "job.sh --fast 'a b'"
    assert (await _submission(house, 1)).argv[4] == text
