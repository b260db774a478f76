"""Offers in, reports out, through lost links and killed processes."""

import asyncio
from pathlib import Path

import pytest

from tercel.core.errors import Unreachable
from tercel.core.model import Needs, Program
from tercel.core.presence import Held, WorkerState
from tercel.core.reports import End, Output
from tercel.wire.messages import (
    SCATTERED,
    Ack,
    Brief,
    Cancel,
    Forget,
    Hello,
    Offer,
    Presence,
    Reports,
    Returned,
    Scattered,
    Started,
    TakeBack,
    Welcome,
)
from tercel.worker import conversation
from tests.worker.stage import Stage, now, virtual


@virtual
async def test_offered_tasks_run_are_reported_and_forgotten_when_acknowledged(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(1)
    stage.runner.end(100, 101, code=3)
    reports = await link.expect_reports(2)
    assert [(r.attempt, r.task, r.code) for r in reports] == [(100, 0, 3), (101, 1, 3)]
    assert stage.spool_size > 0
    await link.send(Ack([100, 101]))
    await stage.runner.until(lambda: stage.runner.forgotten == [100, 101])
    assert stage.spool_size == 0
    await stage.killed()


@virtual
async def test_lines_reach_the_runner(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await link.send(Brief(1, Program(cwd="/"), Needs()), Offer(1, 5, 6, 900, ["echo a", "echo b"]))
    await stage.runner.until_running(900, 901)
    assert [stage.runner.running[a].line for a in (900, 901)] == ["echo a", "echo b"]
    assert [stage.runner.running[a].task for a in (900, 901)] == [5, 6]
    await stage.killed()


@virtual
async def test_tasks_that_are_no_neighbours_reach_it_too_and_it_says_that_they_may(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.manager.link()
    assert SCATTERED in (await link.welcome()).knows
    await link.send(Brief(1, Program(cwd="/"), Needs()), Scattered(1, [5, 9], 900, ["echo a", "echo b"]))
    await stage.runner.until_running(900, 901)
    told = [stage.runner.running[attempt] for attempt in (900, 901)]
    assert [(launch.task, launch.line) for launch in told] == [(5, "echo a"), (9, "echo b")]
    await stage.killed()


@virtual
async def test_reports_that_come_together_share_a_frame_and_a_lone_one_goes_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=50)
    link = await stage.joined()
    await link.expect(Presence)
    await link.offer(0, 49)
    await stage.runner.until_running(149)
    await asyncio.sleep(1)
    before = now()
    stage.runner.end(100)
    assert len((await link.frame())[-1].reports) == 1  # type: ignore[union-attr]
    assert now() == before
    for attempt in range(101, 150):
        stage.runner.end(attempt)
    frame = await link.frame()
    assert len(frame[-1].reports) == 49  # type: ignore[union-attr]
    await stage.killed()


@virtual
async def test_reports_that_come_in_quick_succession_share_frames(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=50)
    link = await stage.joined()
    await link.offer(0, 49)
    await stage.runner.until_running(149)
    await asyncio.sleep(1)
    for attempt in range(100, 150):
        stage.runner.end(attempt)
        await asyncio.sleep(0.001)
    frames = reported = 0
    while reported < 50:
        frames += 1
        reported += sum(len(m.reports) for m in await link.frame() if isinstance(m, Reports))
    assert frames <= 0.05 / conversation.BRISK_S + 3
    await stage.killed()


@virtual
async def test_a_full_batch_does_not_wait_for_its_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=100)
    link = await stage.joined()
    await link.offer(0, 99)
    await stage.runner.until_running(199)
    await asyncio.sleep(1)
    before = now()
    for attempt in range(100, 200, conversation.BATCH_REPORTS):
        stage.runner.end(*range(attempt, min(200, attempt + conversation.BATCH_REPORTS)))
        await link.expect(Reports)
        assert attempt > 195 or now() == before
    await stage.killed()


@virtual
async def test_presence_goes_along_when_the_state_changes(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await link.expect(Presence)
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    stage.runner.listener.started([100])
    assert await link.frame() == [Presence(WorkerState.BUSY, Needs(2000, 2**30)), Started([100])]
    stage.runner.end(100)
    frame = await link.frame()
    assert frame[0] == Presence(WorkerState.AVAILABLE, Needs(2000, 2**30))
    await stage.killed()


@virtual
@pytest.mark.must("c")
@pytest.mark.parametrize("away_s", [30.0, 1000.0])
async def test_work_goes_on_while_the_link_is_cut_and_is_delivered_not_redone(
    tmp_path: Path, away_s: float
) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(3)
    stage.manager.trouble = Unreachable("cut")
    await link.end.close()
    stage.runner.end(100)
    await stage.runner.until_running(102)
    await asyncio.sleep(away_s)
    stage.runner.end(101)
    stage.manager.trouble = None
    again = await stage.manager.link()
    hello = await again.welcome()
    assert {h.attempt: (h.started, h.ended) for h in hello.held} == {
        102: (True, False),
        103: (True, False),
        100: (True, True),
        101: (True, True),
    }
    assert [r.attempt for r in await again.expect_reports(2)] == [100, 101]
    stage.runner.end(102, 103)
    await again.expect_reports(2)
    await again.send(Ack([100, 101, 102, 103]))
    await stage.runner.until(lambda: len(stage.runner.forgotten) == 4)
    assert sorted(stage.runner.launched) == [100, 101, 102, 103]
    await stage.killed()


@virtual
async def test_what_ends_between_hello_and_welcome_is_reported_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(1)
    await link.end.close()
    again = await stage.manager.link()
    hello = await again.expect(Hello)
    assert hello.held == [Held(1, 0, 100, True, False), Held(1, 1, 101, True, False)]
    stage.runner.end(100)
    stage.runner.listener.started([101])
    await again.send(Welcome(1, 10.0, []))
    assert await again.expect(Started) == Started([101])
    assert [r.attempt for r in await again.expect_reports(1)] == [100]
    stage.runner.end(101)
    assert [r.attempt for r in await again.expect_reports(1)] == [101]
    await stage.killed()


@virtual
@pytest.mark.must("b", "c")
async def test_a_killed_workers_successor_delivers_what_was_owed(tmp_path: Path) -> None:
    first = Stage(tmp_path)
    link = await first.at_work(3)
    first.runner.end(100, 101, code=7, out=Output(3, 3, b"abc"))
    await link.expect_reports(2)
    await link.send(Ack([100]))
    await first.runner.until(lambda: first.runner.forgotten == [100])
    first.runner.end(102)  # whose record carries the acknowledgement to disk
    await first.killed()

    second = Stage(tmp_path, seed=1)
    again = await second.manager.link()
    hello = await again.welcome()
    assert hello.held == [Held(1, 1, 101, True, True), Held(1, 2, 102, True, True)]
    reports = await again.expect_reports(2)
    assert [(r.attempt, r.code) for r in reports] == [(101, 7), (102, 0)]
    assert reports[0].out == Output(3, 3, b"abc")
    await again.send(Ack([101, 102]))
    await second.runner.until(lambda: second.runner.forgotten == [101, 102])
    assert second.spool_size == 0
    await second.killed()


@virtual
async def test_what_is_dropped_at_welcome_is_killed_and_never_reported(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(3)
    await link.end.close()
    stage.runner.end(100)
    await stage.runner.until_running(102)
    again = await stage.joined(100, 101, 103)  # ended, running, queued
    await stage.runner.until(lambda: stage.runner.killed == [101])
    assert stage.spool_size == 0
    assert 100 in stage.runner.forgotten
    stage.runner.end(101, end=End.CANCELLED)
    stage.runner.end(102)
    assert [r.attempt for r in await again.expect_reports(1)] == [102]
    assert 101 in stage.runner.forgotten
    assert 103 not in stage.runner.launched
    await stage.killed()


@virtual
async def test_only_what_has_not_been_launched_is_taken_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(4)
    await link.send(TakeBack([101, 103, 104, 999]))
    assert await link.expect(Returned) == Returned([103, 104, 999])
    stage.runner.end(100, 101)
    await stage.runner.until_running(102)
    assert stage.runner.launched == [100, 101, 102]
    await stage.killed()


@virtual
async def test_cancel_kills_what_runs_and_gives_back_what_does_not(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(3)
    await link.send(Cancel([101, 102, 999]))
    assert await link.expect(Returned) == Returned([102, 999])
    assert stage.runner.killed == [101]
    stage.runner.end(101, end=End.CANCELLED, code=15)
    assert (await link.expect_reports(1))[0].end is End.CANCELLED
    await stage.runner.until_running(103)
    await stage.killed()


@virtual
async def test_an_offer_without_a_brief_breaks_the_link_and_nothing_else(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(0)
    await link.send(Offer(2, 0, 0, 500))
    await link.expect_closed()
    again = await stage.manager.link()
    assert [h.attempt for h in (await again.welcome()).held] == [100]
    stage.runner.end(100)
    await again.expect_reports(1)
    await stage.killed()


@virtual
async def test_a_forgotten_job_is_briefed_anew(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(0)
    stage.runner.end(100)
    await link.expect_reports(1)
    await link.send(Ack([100]), Forget(1))
    await link.offer(1, 1)
    await stage.runner.until_running(101)
    await stage.killed()


@virtual
async def test_attempts_stuck_behind_one_that_lasts_are_withdrawn_and_run_elsewhere(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=2)
    link = await stage.at_work(1)
    stage.runner.end(100, 101, wall_s=0.01)
    await link.offer(2, 7)
    await stage.runner.until(lambda: len(stage.runner.running) == 6)
    lanes = {attempt: launch.lane for attempt, launch in stage.runner.running.items()}
    assert sorted(lanes.values()) == [0, 0, 0, 1, 1, 1]
    stage.runner.listener.started([102])
    behind = [attempt for attempt in lanes if lanes[attempt] == lanes[102] and attempt != 102]
    assert stage.runner.withdrawn == behind
    stage.runner.end(*behind, end=End.INTERRUPTED, started_at=0.0, wall_s=0.0)
    others = [attempt for attempt in lanes if lanes[attempt] != lanes[102]]
    stage.runner.end(*others, wall_s=0.01)
    await stage.runner.until_running(*behind)
    assert {stage.runner.running[a].lane for a in behind} == {lanes[others[0]]}
    await stage.killed()
