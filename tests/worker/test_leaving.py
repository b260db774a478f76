"""Drain and stop: what runs, what waits and what is owed when a worker goes."""

import asyncio
import logging
from pathlib import Path

import pytest

from tercel.core.errors import Unreachable
from tercel.core.presence import WorkerState
from tercel.core.reports import End
from tercel.wire.messages import Ack, Bye, Drain, Offer, Presence, Returned
from tercel.worker import leaving
from tercel.worker.spool import Spool
from tests.worker.stage import Stage, now, virtual

BUSY = 2
"""Tasks 0 to 2 are offered: two attempts run (100, 101), one waits (102)."""


@virtual
async def test_an_idle_worker_that_is_drained_says_bye_and_leaves_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    stage.worker.drain()
    await link.expect(Bye)
    await stage.left()
    await link.expect_closed()
    assert now() < 0.1
    assert stage.runner.stopped


@virtual
@pytest.mark.parametrize("by_manager", [True, False])
async def test_draining_gives_back_finishes_delivers_and_leaves(tmp_path: Path, by_manager: bool) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(BUSY)
    if by_manager:
        await link.send(Drain())
    else:
        stage.worker.drain()
    await link.expect(Presence)
    assert await link.expect(Returned) == Returned([102])
    stage.runner.end(100)
    await link.expect_reports(1)
    await link.send(Ack([100]))
    stage.runner.end(101)
    await link.expect_reports(1)
    assert not stage.task.done(), "waits for the acknowledgement"
    await link.send(Ack([101]))
    await link.expect(Bye)
    await stage.left()
    assert stage.spool_size == 0
    assert stage.runner.launched == [100, 101]


@virtual
async def test_a_draining_worker_says_so_and_returns_what_it_is_offered(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(BUSY)
    stage.worker.drain()
    await link.expect(Returned)
    await link.send(Offer(1, 7, 8, 107))
    assert await link.expect(Returned) == Returned([107, 108])
    await link.end.close()
    again = await stage.joined()
    assert (await again.expect(Presence)).state is WorkerState.DRAINING
    await stage.killed()


@virtual
async def test_a_drained_worker_without_a_link_waits_until_its_results_are_delivered(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(BUSY)
    stage.manager.trouble = Unreachable("cut")
    await link.end.close()
    stage.worker.drain()
    stage.runner.end(100, 101)
    await asyncio.sleep(1000)
    assert not stage.task.done()
    stage.manager.trouble = None
    again = await stage.joined()
    await again.expect_reports(2)
    await again.send(Ack([100, 101]))
    await again.expect(Bye)
    await stage.left()


@virtual
async def test_a_drained_worker_without_a_link_and_without_debts_leaves(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.manager.trouble = Unreachable("cut")
    await stage.manager.dialled(1)
    stage.worker.drain()
    await stage.left()


@virtual
async def test_stop_ends_what_runs_and_delivers_it_as_interrupted(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(BUSY)
    stage.worker.stop()
    assert await link.expect(Returned) == Returned([102])
    reports = await link.expect_reports(2)
    assert {r.end for r in reports} == {End.INTERRUPTED}
    await link.send(Ack([100, 101]))
    await link.expect(Bye)
    await stage.left()
    assert now() < 1


@virtual
async def test_stop_while_draining_does_not_wait_for_what_runs(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(BUSY)
    stage.worker.drain()
    await link.expect(Returned)
    stage.worker.stop()
    await link.expect_reports(2)
    await link.send(Ack([100, 101]))
    await stage.left()


@virtual
async def test_stop_without_a_link_leaves_at_once_and_the_spool_keeps_the_reports(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(BUSY)
    stage.manager.trouble = Unreachable("cut")
    await link.end.close()
    await stage.manager.dialled(2)
    before = now()
    stage.worker.stop()
    await stage.left()
    assert now() - before < 0.1
    assert "2 results wait to be delivered" in caplog.text
    second = Stage(tmp_path)
    reports = await (await second.joined()).expect_reports(2)
    assert {r.end for r in reports} == {End.INTERRUPTED}
    await second.killed()


@virtual
async def test_stop_waits_only_so_long_for_acknowledgements(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(BUSY)
    stage.worker.stop()
    await link.expect(Returned)
    await link.expect_reports(2)
    before = now()
    await stage.left()
    assert now() - before == pytest.approx(leaving.DELIVER_LIMIT_S, abs=0.1)
    await link.expect_closed()


@virtual
async def test_a_manager_that_hangs_at_the_farewell_does_not_keep_the_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stage = Stage(tmp_path)
    link = await stage.manager.link()
    await link.expect(object)  # Hello, which is never answered
    stage.worker.drain()
    await stage.left()
    assert now() <= leaving.FAREWELL_LIMIT_S + 0.1


@virtual
async def test_a_worker_cancelled_while_it_stops_keeps_what_its_runner_still_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `tercel run`, whose end by an error stops its worker and cancels it in one breath."""
    stage = Stage(tmp_path)
    await stage.at_work(BUSY)
    stopping = asyncio.Event()

    async def stop() -> None:
        stopping.set()
        await asyncio.sleep(1)
        stage.runner.end(100, 101)

    monkeypatch.setattr(stage.runner, "stop", stop)
    stage.worker.stop()
    await stopping.wait()
    stage.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage.left()
    assert not stage.runner.running, "it left before its runner had stopped"
    spool = Spool(tmp_path / "spool")
    assert [report.attempt for report in spool.load()] == [100, 101]
    spool.close()
