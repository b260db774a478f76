"""What tasks print: rules that look for it, and `known`, through the manager."""

import asyncio
from typing import Any

import msgspec
import pytest

from tercel.core.reports import Output
from tercel.manager import blocking
from tercel.wire.api import History
from tercel.wire.messages import Brief, Reports
from tests.api.house import House, done
from tests.api.test_conditions import LICENCE, conditions


async def test_what_a_failed_task_printed_makes_a_whole_rule_of_the_hint(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    said = b"ssh: connect to host login.lab port 22: Connection refused"
    err = Output(len(said), len(said), said)
    await worker.report(await worker.offered(), code=255, err=err)
    task = await house.task(1, 0)
    assert task.hint == (
        "if this is not its fault: --block-on known, or --block-on "
        r"'stderr:/ssh: connect to host login\.lab port 22/ -> ssh:login.lab:22'"
    )


@pytest.mark.T(8)
async def test_workers_are_told_which_patterns_to_look_for(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE, {"on": "stderr:/quota/", "tester": "file:/ok"}])
    await worker.report(await worker.offered(), code=1, matched=("stderr:/quota/",))
    assert (await worker.next(Brief)).program.patterns == (("stderr:/quota/", "err", "quota"),)
    assert (await conditions(house))[0].tester == "file:/ok"


@pytest.mark.T(8)
async def test_what_is_known_is_waited_for_as_its_kind_writes_it(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[{"on": "known", "policy": "every 1h for 2d"}])
    said = "ssh: connect to host LOGIN.lab port 0022: Connection refused"
    await worker.report(await worker.offered(), code=255, matched=("known",), said=said)
    assert {on for on, _, _ in (await worker.next(Brief)).program.patterns} == {"known"}
    (row,) = await conditions(house)
    assert (row.tester, row.place, row.policy) == ("ssh:login.lab", "site", "every 1h for 2d")
    assert (await house.task(1, 0)).resumes_in == "ready"


@pytest.mark.T(8)
@pytest.mark.parametrize(
    ("rule", "found", "told"),
    [
        (
            {"on": "known"},
            {
                "matched": ("known",),
                "said": "curl: (7) Failed to connect to store.lab port 443\x1b[2J after 2 ms\nmore\n",
                "seen": ("",),
            },
            "blocked on tcp:store.lab:443 (known): curl: (7) Failed to connect to store.lab port 443 [2J after 2 ms",
        ),
        (
            {"on": "known"},
            {
                "matched": ("known",),
                "said": "Connection closed by 10.0.0.7 port 22\nscp: Connection closed\n",
            },
            "blocked on ssh:10.0.0.7 (known): Connection closed by 10.0.0.7 port 22",
        ),
        (
            {"on": "stderr:/quota/", "tester": "tcp:store.lab:443"},
            {"matched": ("stderr:/a/", "stderr:/quota/"), "seen": ("an a", "cp: the quota is\x07 exceeded")},
            "blocked on tcp:store.lab:443 (stderr:/quota/): cp: the quota is exceeded",
        ),
        (
            {"on": "stderr:/quota/", "tester": "tcp:store.lab:443"},
            {"matched": ("stderr:/quota/",), "note": "not searched to the end"},
            "blocked on tcp:store.lab:443 (stderr:/quota/); not searched to the end",
        ),
    ],
)
async def test_the_history_tells_by_what_it_was_seen(
    house: House, rule: dict[str, str], found: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await house.worker()
    await house.submit(block_on=[rule | {"policy": "every 1h for 2d"}])
    await worker.report(await worker.offered(), code=7, **found)
    (attempt,) = (await house.task(1, 0)).attempts
    assert attempt.note == told
    events = (await house.get("/v1/jobs/1/tasks/0/history", History)).events
    assert [event.text for event in events if event.code == 7] == [f"exited with code 7: {told}"]
    assert "Failed to connect" not in caplog.text and "quota" not in caplog.text


async def test_a_worker_of_before_that_does_not_tell_what_it_found_is_understood(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[{"on": "known", "policy": "every 1h for 2d"}])
    printed = b"curl: (7) Failed to connect to localhost port 81 after 0 ms"
    err = Output(len(printed), len(printed), printed)
    await worker.report(await worker.offered(), code=7, matched=("known",), err=err)
    (row,) = await conditions(house)
    assert (row.tester, row.place, row.where) == ("tcp:localhost:81", "worker", worker.name)


@pytest.mark.must("d", "e")
@pytest.mark.parametrize(
    "said",
    [
        "",
        "command:rm -rf /",
        "ssh:login.lab:22",
        "ssh: connect to host login.lab port 99999: Connection refused",
        "ssh: connect to host a..b port 22: Connection refused",
        "cp: Disk quota exceeded",
        "ssh: connect to host " * 1000,
    ],
)
async def test_what_a_worker_says_is_known_and_is_not_makes_a_failure(house: House, said: str) -> None:
    worker = await house.worker()
    await house.submit(block_on=[{"on": "known"}])
    await worker.report(await worker.offered(), code=1, matched=("known",), said=said)
    assert (await house.task(1, 0)).state == "failed"
    assert await conditions(house) == []
    await house.sound()


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was searched for what is known, in order, and after each time a turn of whoever else wants one."""
    found: list[str] = []

    def search(_: str, err: str) -> None:
        found.append(err[-1:])
        asyncio.get_running_loop().call_soon(found.append, "others")

    monkeypatch.setattr(blocking, "rule_from", search)
    return found


def printed(last: str) -> Output:
    data = b"/a" * 2000 + last.encode()
    return Output(len(data), len(data), data)


@pytest.mark.must("d")
async def test_output_is_searched_only_for_who_can_wait_for_what_is_found(
    house: House, searched: list[str]
) -> None:
    liar = await house.worker()
    own = await liar.offered((await house.submit(block_on=[LICENCE])).id)
    honest = await house.worker()
    other = await honest.offered(await submitted_known(house))
    lies = [
        msgspec.structs.replace(one, code=1, matched=("known",), err=printed(last))
        for one, last in ((other, "a"), (done(2**40, 0, 2**50), "b"), (own, "c"))
    ]
    await liar.say(Reports(lies))
    await liar.acknowledged(own.attempt)
    assert searched == [], "not its own, nobody's, and of a job that asked for something else"
    await honest.report(other, code=1, matched=("known",), err=printed("d"))
    assert searched[0] == "d"


@pytest.mark.must("d")
async def test_others_get_their_turn_between_long_searches_and_nothing_is_searched_twice(
    house: House, searched: list[str]
) -> None:
    worker = await house.worker(cpus=2)
    job = await submitted_known(house, array="0-1")
    both = [await worker.offered(job) for _ in range(2)]
    reports = [
        msgspec.structs.replace(one, code=1, matched=("known",), err=printed(last))
        for one, last in zip(both, "ab", strict=True)
    ]
    await worker.say(Reports([reports[0]] * 3 + [reports[1]]))
    await worker.acknowledged(both[1].attempt)
    assert searched[:3] == ["a", "others", "b"]


async def submitted_known(house: House, **fields: Any) -> int:
    return (await house.submit(block_on=[{"on": "known", "policy": "every 1h for 2d"}], **fields)).id


async def test_more_than_a_piece_of_output_is_cut_and_noted(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[{"on": "known", "policy": "every 1h for 2d"}])
    said = "ssh: connect to host login.lab port 22: no" + "x" * 2000
    await worker.report(await worker.offered(), code=255, matched=("known",), said=said)
    assert (await house.task(1, 0)).state == "blocked"
    assert (await house.pool()).workers[0].note == "reported numbers that cannot be"


async def test_what_nobody_looks_for_is_not_waited_for_though_it_is_known(house: House) -> None:
    worker = await house.worker()
    await house.submit(block_on=[LICENCE])
    said = "ssh: connect to host login.lab port 22: Connection refused"
    await worker.report(await worker.offered(), code=255, matched=("known",), said=said)
    assert (await house.task(1, 0)).state == "failed"
