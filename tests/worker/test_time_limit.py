"""A worker with a time limit: it says how long it stays, warns, drains, stops, and blames nobody."""

import asyncio
from pathlib import Path

import pytest

from tercel.core.errors import Unreachable
from tercel.core.model import Needs, Program
from tercel.core.presence import WorkerState
from tercel.core.reports import End
from tercel.wire.messages import Ack, Brief, Bye, Hello, Offer, Presence, Returned
from tests.worker.stage import FakeLink, Stage, now, virtual

LIMIT_S = 3600.0


async def _offer(link: FakeLink, job: int, warn_signal: str) -> None:
    """Task 0 of the job, as attempt 100 * job."""
    brief = Brief(job, Program(argv=("true",), warn_signal=warn_signal), Needs())
    await link.send(brief, Offer(job, 0, 0, 100 * job))


@virtual
@pytest.mark.K(19)
async def test_it_says_how_much_time_is_left_at_every_hello(tmp_path: Path) -> None:
    stage = Stage(tmp_path, time_limit_s=LIMIT_S)
    link = await stage.manager.link()
    assert (await link.welcome(heartbeat_s=1000.0)).info.time_left_s == LIMIT_S - 15
    await asyncio.sleep(600)
    await link.end.close()
    left_s = (await (await stage.manager.link()).expect(Hello)).info.time_left_s
    assert left_s == pytest.approx(LIMIT_S - 615, abs=1)
    await stage.killed()


@virtual
async def test_without_a_limit_it_says_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert (await (await stage.manager.link()).welcome()).info.time_left_s is None
    await stage.killed()


@virtual
@pytest.mark.K(19)
async def test_near_its_end_it_drains_then_stops_what_runs_without_blame_and_leaves(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=1, time_limit_s=LIMIT_S)
    link = await stage.joined(heartbeat_s=3000.0)
    await link.offer(0, 1)
    await stage.runner.until_running(100)
    while (await link.expect(Presence)).state is not WorkerState.DRAINING:
        pass
    assert now() == pytest.approx(LIMIT_S - 45, abs=0.1)
    assert await link.expect(Returned) == Returned([101])
    await stage.runner.until(lambda: stage.runner.killed == [100])
    assert now() == pytest.approx(LIMIT_S - 15, abs=0.1)
    stage.runner.end(100, end=End.CANCELLED, code=15)
    (report,) = await link.expect_reports(1)
    assert (report.end, report.code, report.note) == (End.INTERRUPTED, 0, "its worker's time was up")
    await link.send(Ack([100]))
    assert await link.expect(Bye) == Bye("its time was up")
    await stage.left()
    assert now() < LIMIT_S


@virtual
async def test_who_takes_too_long_to_end_is_stopped(tmp_path: Path) -> None:
    stage = Stage(tmp_path, time_limit_s=LIMIT_S)
    link = await stage.joined(heartbeat_s=3000.0)
    await link.offer(0, 1)
    await stage.runner.until_running(100, 101)
    await stage.runner.until(lambda: stage.runner.killed == [100, 101])
    stage.runner.end(100, end=End.EXITED, code=3)
    await stage.runner.until(lambda: stage.runner.stopped)
    assert now() == pytest.approx(LIMIT_S - 7.5, abs=0.1)
    reports = await link.expect_reports(2)
    assert [(r.attempt, r.end, r.code) for r in reports] == [(100, End.EXITED, 3), (101, End.INTERRUPTED, 0)]
    await link.send(Ack([100, 101]))
    await stage.left()


@virtual
async def test_what_the_user_cancelled_in_time_is_told_as_cancelled(tmp_path: Path) -> None:
    stage = Stage(tmp_path, time_limit_s=LIMIT_S)
    link = await stage.joined(heartbeat_s=3000.0)
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    stage.runner.end(100, end=End.CANCELLED)
    (report,) = await link.expect_reports(1)
    assert (report.end, report.note) == (End.CANCELLED, "")
    await stage.killed()


@virtual
async def test_what_ends_by_itself_in_time_is_reported_as_ever_and_it_leaves_early(tmp_path: Path) -> None:
    stage = Stage(tmp_path, time_limit_s=LIMIT_S)
    link = await stage.joined(heartbeat_s=3000.0)
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    while (await link.expect(Presence)).state is not WorkerState.DRAINING:
        pass
    stage.runner.end(100)
    (report,) = await link.expect_reports(1)
    assert (report.end, report.note) == (End.EXITED, "")
    await link.send(Ack([100]))
    await link.expect(Bye)
    await stage.left()
    assert now() < LIMIT_S - 44


@virtual
async def test_who_asked_to_be_warned_is_warned_that_long_before_it_is_stopped(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=3, time_limit_s=LIMIT_S)
    link = await stage.joined(heartbeat_s=3000.0)
    for job, signal in ((1, "USR1@120"), (2, "TERM@300"), (3, "")):
        await _offer(link, job, signal)
    await stage.runner.until_running(100, 200, 300)
    stage.runner.listener.started([100, 200, 300])
    await stage.runner.until(lambda: stage.runner.warned == [200])
    assert now() == pytest.approx(LIMIT_S - 315, abs=0.1)
    await stage.runner.until(lambda: stage.runner.warned == [200, 100])
    assert now() == pytest.approx(LIMIT_S - 135, abs=0.1)
    await stage.runner.until(lambda: stage.runner.stopped)
    assert stage.runner.warned == [200, 100]
    await stage.killed()


@virtual
async def test_without_a_link_it_still_ends_in_time_and_its_spool_keeps_the_reports(tmp_path: Path) -> None:
    stage = Stage(tmp_path, time_limit_s=LIMIT_S)
    link = await stage.at_work(1)
    stage.manager.trouble = Unreachable("cut")
    await link.end.close()
    await stage.left()
    assert LIMIT_S - 8 < now() < LIMIT_S
    second = Stage(tmp_path)
    reports = await (await second.joined()).expect_reports(2)
    assert {(r.end, r.note) for r in reports} == {(End.INTERRUPTED, "its worker's time was up")}
    await second.killed()
