"""What tasks wrote: in pieces on their way to the manager, and live."""

import asyncio
from pathlib import Path

import pytest

from tercel.core.reports import Output
from tercel.wire.messages import (
    Presence,
    Segment,
    Tail,
    TailData,
)
from tercel.worker import outbox
from tests.worker.stage import LARGE, Stage, virtual


@virtual
async def test_segments_precede_their_report_and_small_reports_do_not_wait_for_them(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    pieces = [bytes([n]) * outbox.FRAME_BYTES for n in range(3)]
    stage.runner.pieces[100, "out"] = pieces
    stage.runner.pieces[100, "err"] = [b"e"]
    link = await stage.at_work(1)
    stage.runner.end(100, out=LARGE, err=Output(9, 9, b"", 1))
    first = await link.frame()
    stage.runner.end(101)
    rest = [message for _ in range(4) for message in await link.frame()]
    said = [m for m in [*first, *rest] if not isinstance(m, Presence)]
    segments = [m for m in said if isinstance(m, Segment)]
    assert segments == [
        *(Segment(100, "out", number, piece) for number, piece in enumerate(pieces)),
        Segment(100, "err", 0, b"e"),
    ]
    reported = [r.attempt for m in said if not isinstance(m, Segment) for r in m.reports]  # type: ignore[union-attr]
    assert reported == [101, 100]
    assert not isinstance(said[-1], Segment)
    await stage.killed()


@virtual
@pytest.mark.must("g")
async def test_a_huge_output_is_read_only_as_fast_as_the_manager_takes_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.runner.pieces[100, "out"] = [b"x" * outbox.FRAME_BYTES] * 1000
    link = await stage.joined(heartbeat_s=1000.0)
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    stage.runner.end(100, out=Output(2**28, 2**28, b"", 1000))
    taken = 0
    while taken < 1000:
        await asyncio.sleep(0.1)
        assert stage.runner.pieces_read - taken < 30
        taken += sum(isinstance(message, Segment) for message in await link.frame())
    assert len(await link.expect_reports(1)) == 1
    await stage.killed()


@virtual
async def test_segments_are_sent_again_after_a_lost_link_and_outputs_that_are_gone_are_said_to_be(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    stage.runner.pieces[100, "out"] = [b"a", b"b", b"c"]
    link = await stage.at_work(0)
    stage.runner.end(100, out=LARGE)
    await link.expect_segments(3)
    await link.end.close()
    again = await stage.joined()
    assert [s.data for s in await again.expect_segments(3)] == [b"a", b"b", b"c"]
    assert (await again.expect_reports(1))[0].out == LARGE
    await stage.killed()

    stage = Stage(tmp_path)  # a runner that knows nothing of it
    last = await stage.joined()
    report = (await last.expect_reports(1))[0]
    assert report.out == Output(600_000, 0)
    assert report.note == "stdout lost at the worker"
    await stage.killed()


@virtual
async def test_outputs_that_an_earlier_process_left_and_nobody_is_owed_are_removed(tmp_path: Path) -> None:
    first = Stage(tmp_path)
    await first.at_work(0)
    first.runner.end(100, out=LARGE)
    await first.killed()
    second = Stage(tmp_path)
    second.runner.pieces = {(100, "out"): [b"a", b"b", b"c"], (7, "out"): [b"stale"]}
    again = await second.joined()
    assert second.runner.forgotten == [7]
    await again.expect_segments(3)
    await second.killed()


@virtual
async def test_live_output_is_passed_on_while_somebody_follows(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(0)
    await link.send(Tail(100, True), Tail(999, True))
    await stage.runner.until(lambda: stage.runner.followed == [(100, True)])
    stage.runner.listener.tail(100, "out", 0, b"hello")
    assert await link.expect(TailData) == TailData(100, "out", 0, b"hello")
    await link.send(Tail(100, False), Tail(100, True))
    await stage.runner.until(lambda: len(stage.runner.followed) == 3)
    await link.end.close()
    await stage.joined()
    assert stage.runner.followed[-1] == (100, False), "nobody follows any more"
    await stage.killed()


@virtual
@pytest.mark.must("g")
async def test_live_output_that_nobody_takes_is_dropped_not_gathered(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(0)
    await link.send(Tail(100, True))
    await stage.runner.until(lambda: bool(stage.runner.followed))
    for number in range(1000):
        stage.runner.listener.tail(100, "out", number * 65536, bytes(65536))
    frame = [message for message in await link.frame() if isinstance(message, TailData)]
    if not frame:  # the first frame had only the presence
        frame = [message for message in await link.frame() if isinstance(message, TailData)]
    assert sum(len(tail.data) for tail in frame) <= outbox.TAIL_BYTES + 65536
    await stage.killed()
