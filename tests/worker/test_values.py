"""Values that calls refer to: fetched piece by piece, kept while they are needed, fetched on after a broken link."""

import asyncio
import pickle
import zlib
from pathlib import Path

import pytest

from tercel.core.model import Call, Function, Needs, Program
from tercel.core.reports import End, Output
from tercel.wire.messages import (
    SEGMENT_BYTES,
    Ack,
    Brief,
    Cached,
    Cancel,
    Fetch,
    Offer,
    Piece,
    Reports,
    Returned,
    Segment,
)
from tercel.worker import fetching
from tercel.worker.values import WINDOW
from tests.worker.stage import FakeLink, Stage, now, virtual

SMALL = pickle.dumps("small")


async def _offer(link: FakeLink, *values: tuple[str, ...], first: int = 0) -> None:
    calls = [Call(b"args", keys) for keys in values]
    brief = Brief(1, Program(function=Function(code=b"f")), Needs())
    await link.send(brief, Offer(1, first, first + len(calls) - 1, 100 + first, None, calls))


def _pieces(key: str, data: bytes) -> list[Piece]:
    cuts = range(0, len(data), SEGMENT_BYTES) or [0]
    packed = [zlib.compress(data[at : at + SEGMENT_BYTES]) for at in cuts]
    return [Piece(key, number, piece, number == len(packed) - 1) for number, piece in enumerate(packed)]


@virtual
async def test_small_value_is_fetched_and_handed_over(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("b7",), ("b7",))
    assert await link.expect(Fetch) == Fetch("b7", 0)
    await link.send(*_pieces("b7", SMALL))
    await stage.runner.until_running(100, 101)
    assert stage.runner.running[100].inputs == {"b7": SMALL}
    assert stage.runner.running[101].call == Call(b"args", ("b7",))
    await stage.killed()


@virtual
async def test_large_value_flows_into_a_private_file_a_few_pieces_at_a_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("t3.1",))
    data = bytes(range(256)) * 10_000
    pieces = _pieces("t3.1", data)
    assert await link.expect(Fetch) == Fetch("t3.1", 0)
    asked = 1
    for number, piece in enumerate(pieces):
        await link.send(piece)
        if number < len(pieces) - 1:
            while asked < number + 1 + WINDOW:
                assert await link.expect(Fetch) == Fetch("t3.1", asked)
                asked += 1
    await link.send(Piece("t3.1", len(pieces), b"", True, "it has no such piece"))
    await stage.runner.until_running(100)
    path = stage.runner.running[100].inputs["t3.1"]
    assert isinstance(path, str)
    assert Path(path).read_bytes() == data
    assert Path(path).parent == tmp_path / "values"
    assert (tmp_path / "values").stat().st_mode & 0o777 == 0o700
    assert Path(path).stat().st_mode & 0o777 == 0o600
    await stage.killed()


@virtual
async def test_pieces_may_come_in_any_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("b7",))
    data = bytes(4 * SEGMENT_BYTES)
    first, *others = _pieces("b7", data)
    await link.send(first)
    await link.expect(Fetch)
    for _ in others:
        await link.expect(Fetch)
    await link.send(*reversed(others))
    await stage.runner.until_running(100)
    assert Path(str(stage.runner.running[100].inputs["b7"])).read_bytes() == data
    await stage.killed()


@virtual
async def test_attempts_whose_value_is_gone_are_told_late_with_the_reason(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("t3.1",), ())
    await link.expect(Fetch)
    asked_at = now()
    await link.send(Piece("t3.1", 0, b"", True, "value t3.1: task 3.1 is failed"))
    (report,) = await link.expect_reports(1)
    assert (report.attempt, report.end) == (100, End.INTERRUPTED)
    assert report.started_at > 0
    assert "task 3.1 is failed" in report.note
    assert now() - asked_at >= fetching.GONE_S
    assert stage.spool_size > 0
    assert list(stage.runner.running) == [101]
    await stage.killed()


@virtual
async def test_fetching_goes_on_over_the_next_link_where_it_was(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("b7",), ("b8",))
    data = bytes(3 * SEGMENT_BYTES)
    pieces = _pieces("b7", data)
    await link.send(pieces[0])
    assert [(await link.expect(Fetch)).number for _ in range(2)] == [0, 0]
    assert [(await link.expect(Fetch)).number for _ in range(WINDOW)] == [1, 2, 3, 4]
    await link.end.close()
    link = await stage.joined()
    asked = [await link.expect(Fetch) for _ in range(WINDOW + 1)]
    assert asked == [*(Fetch("b7", number) for number in range(1, 1 + WINDOW)), Fetch("b8", 0)]
    await link.send(*pieces[1:])
    await stage.runner.until_running(100)
    assert Path(str(stage.runner.running[100].inputs["b7"])).read_bytes() == data
    await stage.killed()


@virtual
async def test_cancelled_while_it_waits_it_is_given_back_and_fetched_no_further(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("b7",))
    pieces = _pieces("b7", bytes(3 * SEGMENT_BYTES))
    await link.send(pieces[0])
    for _ in range(1 + WINDOW):
        await link.expect(Fetch)
    assert len(list((tmp_path / "values").iterdir())) == 1
    await link.send(Cancel([100]))
    assert await link.expect(Returned) == Returned([100])
    await link.send(pieces[1], pieces[2])
    await _offer(link, ("b8",), first=1)
    assert await link.expect(Fetch) == Fetch("b8", 0)
    assert list((tmp_path / "values").iterdir()) == []
    await stage.killed()


@virtual
async def test_values_go_when_there_is_no_room_and_nobody_needs_them(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cache_bytes=SEGMENT_BYTES)
    link = await stage.joined()
    await _offer(link, ("b7",))
    await link.expect(Fetch)
    await link.send(*_pieces("b7", bytes(SEGMENT_BYTES + 1)))
    await stage.runner.until_running(100)
    path = Path(str(stage.runner.running[100].inputs["b7"]))
    await link.expect(Fetch)
    assert path.exists()
    stage.runner.end(100)
    assert not path.exists()
    await stage.killed()


@virtual
async def test_what_an_earlier_worker_fetched_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "values").mkdir()
    (tmp_path / "values" / "0").write_bytes(b"old")
    stage = Stage(tmp_path)
    await stage.joined()
    assert list((tmp_path / "values").iterdir()) == []
    await stage.killed()


@virtual
async def test_no_room_for_a_value_is_told_as_this_nodes_fault(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("b7",))
    await link.expect(Fetch)
    (tmp_path / "values").rmdir()
    await link.send(_pieces("b7", bytes(SEGMENT_BYTES))[0])
    (report,) = await link.expect_reports(1)
    assert report.end is End.INTERRUPTED
    assert "no room for value b7: No such file or directory" in report.note
    assert report.errno == "ENOENT"
    await stage.killed()


@virtual
@pytest.mark.parametrize(
    "data", [b"no zlib", zlib.compress(bytes(SEGMENT_BYTES + 1)), zlib.compress(b"x")[:-1]]
)
async def test_piece_that_cannot_be_unpacked_ends_the_link_not_the_worker(
    tmp_path: Path, data: bytes
) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("b7",))
    await link.expect(Fetch)
    await link.send(Piece("b7", 0, data, True))
    await link.expect_closed()
    link = await stage.joined()
    assert await link.expect(Fetch) == Fetch("b7", 0)
    await link.send(*_pieces("b7", SMALL))
    await stage.runner.until_running(100)
    await stage.killed()


# -- what is kept -----------------------------------------------------------------------------------------


async def _one_large(stage: Stage, link: FakeLink, key: str, first: int, size_bytes: int) -> Path:
    """A call that needs this value has run."""
    await _offer(link, (key,), first=first)
    await link.expect(Fetch)
    pieces = _pieces(key, bytes(size_bytes))
    await link.send(pieces[0])
    for _ in range(WINDOW):
        await link.expect(Fetch)
    await link.send(*pieces[1:])
    await stage.runner.until_running(100 + first)
    path = Path(str(stage.runner.running[100 + first].inputs[key]))
    assert await link.expect(Cached) == Cached([(key, size_bytes)], [])
    stage.runner.end(100 + first)
    await link.expect_reports(1)
    await link.send(Ack([100 + first]))
    return path


@virtual
async def test_what_is_kept_is_told_and_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    size = SEGMENT_BYTES + 1
    stage = Stage(tmp_path, cache_bytes=2 * size)
    link = await stage.joined()
    one = await _one_large(stage, link, "b1", 0, size)
    two = await _one_large(stage, link, "b2", 1, size)
    await _offer(link, ("b1",), first=2)
    await stage.runner.until_running(102)
    stage.runner.end(102)
    await link.expect_reports(1)
    await _offer(link, ("b3",), first=3)
    await link.expect(Fetch)
    await link.send(_pieces("b3", bytes(size))[0])
    for _ in range(WINDOW):
        await link.expect(Fetch)
    await link.send(_pieces("b3", bytes(size))[1])
    assert await link.expect(Cached) == Cached([("b3", size)], ["b2"])
    await stage.runner.until_running(103)
    assert one.exists()
    assert not two.exists()
    await stage.killed()


@virtual
async def test_a_manager_is_told_all_that_is_kept_when_it_welcomes(tmp_path: Path) -> None:
    size = SEGMENT_BYTES + 1
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _one_large(stage, link, "b1", 0, size)
    await _one_large(stage, link, "b2", 1, size)
    await link.end.close()
    link = await stage.joined()
    assert await link.expect(Cached) == Cached([("b1", size), ("b2", size)], [])
    await stage.killed()


# -- what calls return ------------------------------------------------------------------------------------


@virtual
async def test_large_value_travels_in_segments_before_its_report(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.runner.pieces[100, "value"] = [b"a", b"b"]
    link = await stage.joined()
    await _offer(link, ())
    await stage.runner.until_running(100)
    stage.runner.end(100, value=Output(500_000, 500_000, b"", 2))
    assert await link.expect_segments(2) == [Segment(100, "value", 0, b"a"), Segment(100, "value", 1, b"b")]
    (report,) = await link.expect_reports(1)
    assert report.value == Output(500_000, 500_000, b"", 2)
    await link.send(Ack([100]))
    await stage.runner.until(lambda: stage.runner.forgotten == [100])
    await stage.killed()


@virtual
async def test_call_whose_value_was_lost_at_the_worker_counts_as_not_made(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.runner.pieces[100, "value"] = [b"a"]
    link = await stage.joined()
    await _offer(link, ())
    await stage.runner.until_running(100)
    stage.runner.end(100, value=Output(500_000, 500_000, b"", 2))
    await link.expect(Segment)
    report = (await link.expect(Reports)).reports[0]
    assert (report.end, report.value) == (End.INTERRUPTED, None)
    assert "its value was lost at the worker" in report.note
    await stage.killed()


@virtual
async def test_value_that_was_fetched_serves_the_next_call_without_asking(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined()
    await _offer(link, ("b7",))
    await link.expect(Fetch)
    await link.send(*_pieces("b7", SMALL))
    await stage.runner.until_running(100)
    stage.runner.end(100)
    await link.expect_reports(1)
    await _offer(link, ("b7",), first=1)
    await stage.runner.until_running(101)
    await asyncio.sleep(1.0)
    await stage.killed()
