"""What the runner keeps of what tasks write, and tells those who follow."""

import asyncio
import os
from pathlib import Path

import pytest

from tercel.core.reports import End, Output
from tercel.runners.pool import SpawnerPool
from tercel.wire.messages import INLINE_OUTPUT_BYTES, SEGMENT_BYTES
from tests.conformance.runners import Recorder, python, run, shell, spawners, text, whole


@pytest.mark.B(5)
async def test_both_streams_are_kept_apart(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(runner, recorder, shell("echo one; echo two >&2; printf three"))
    assert report.out == Output(9, 9, b"one\nthree")
    assert report.err == Output(4, 4, b"two\n")


@pytest.mark.must("g")
async def test_binary_output_is_kept_as_it_is(runner: SpawnerPool, recorder: Recorder) -> None:
    source = (
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 50); sys.stderr.buffer.write(b'\\xff\\x00')"
    )
    report = await run(runner, recorder, python(source))
    assert report.out is not None and report.out.inline == bytes(range(256)) * 50
    assert report.err is not None and report.err.inline == b"\xff\x00"


@pytest.mark.parametrize(
    "size",
    [INLINE_OUTPUT_BYTES, INLINE_OUTPUT_BYTES + 1, 65536, 65537, SEGMENT_BYTES, SEGMENT_BYTES + 1, 3_000_000],
)
async def test_large_output_waits_in_pieces_until_forgotten(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, size: int
) -> None:
    source = "import random, sys; sys.stdout.buffer.write(random.Random(1).randbytes(int(sys.argv[1])))"
    report = await run(runner, recorder, python(source, str(size)))
    expected = __import__("random").Random(1).randbytes(size)
    assert report.out is not None and report.out.total_bytes == size
    assert report.out.segments == (0 if size <= INLINE_OUTPUT_BYTES else -(-size // SEGMENT_BYTES))
    assert whole(runner, report, "out") == expected
    assert runner.kept() == ({1} if report.out.segments else set())
    runner.forget([1, 99])
    assert runner.kept() == set()
    assert list((tmp_path / "worker" / "outputs").iterdir()) == []


async def test_large_output_survives_a_restart_of_the_worker(tmp_path: Path, recorder: Recorder) -> None:
    first = SpawnerPool(tmp_path / "worker", "node-7")
    await first.start(recorder)
    report = await run(first, recorder, shell("seq 100000; seq 9 >&2"))
    await first.stop()
    (tmp_path / "worker" / "outputs" / "5.out.part").write_bytes(b"of a spawner that was killed")
    second = SpawnerPool(tmp_path / "worker", "node-7")
    await second.start(recorder)
    assert whole(second, report, "out") == "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    assert second.kept() == {1}
    second.forget([1])
    await second.stop()
    assert list((tmp_path / "worker" / "outputs").iterdir()) == []


@pytest.mark.must("g")
async def test_tail_of_a_gibibyte_is_kept_and_memory_stays_bounded(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(runner, recorder, shell("head -c 1G /dev/zero; echo the end"))
    assert report.code == 0
    assert report.out is not None
    assert report.out.total_bytes == 2**30 + 8
    assert report.out.kept_bytes == 10 * 2**20
    assert whole(runner, report, "out") == bytes(10 * 2**20 - 8) + b"the end\n"
    [spawner] = spawners()
    peak_kib = next(
        int(line.split()[1])
        for line in Path(f"/proc/{spawner}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert peak_kib < 64 * 1024


@pytest.mark.parametrize("limit", [0, 5, INLINE_OUTPUT_BYTES + 1, 100_000])
async def test_output_limit_keeps_the_tail(runner: SpawnerPool, recorder: Recorder, limit: int) -> None:
    report = await run(runner, recorder, shell("seq 100000", output_limit_bytes=limit))
    expected = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
    assert report.out is not None and report.out.total_bytes == len(expected)
    assert whole(runner, report, "out") == expected[len(expected) - limit :]


@pytest.mark.must("g")
async def test_task_that_closes_its_outputs_runs_on(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(runner, recorder, shell("echo before; exec >&- 2>&-; sleep 0.2; exit 3"))
    assert (report.end, report.code) == (End.EXITED, 3)
    assert text(report.out) == "before\n"
    assert report.wall_s >= 0.2


async def test_no_room_for_outputs_is_not_the_tasks_failure(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    outputs = tmp_path / "worker" / "outputs"
    outputs.rmdir()
    report = await run(runner, recorder, shell("seq 100000"))
    outputs.mkdir()
    assert (report.end, report.code) == (End.EXITED, 0)
    assert report.out is not None
    assert (report.out.kept_bytes, report.out.segments) == (INLINE_OUTPUT_BYTES, 0)
    assert report.out.inline.endswith(b"\n99999\n100000\n")
    assert "less of stdout kept" in report.note


async def test_follower_hears_what_is_kept_and_then_what_comes(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    runner.launch(
        [shell(f"echo one; echo err >&2; read x < {gate}; echo $x; sleep 1000"), shell("true", attempt=2)]
    )
    await recorder.until(lambda: recorder.running == [1])
    runner.follow(1, True)
    await recorder.until(lambda: recorder.told(1) == b"one\n" and recorder.told(1, "err") == b"err\n")
    await asyncio.to_thread(gate.write_text, "two\n")
    await recorder.until(lambda: recorder.told(1) == b"one\ntwo\n")
    assert recorder.tails[1, "out"][-1][0] == 4
    runner.follow(1, False)
    runner.kill([1])
    assert text((await recorder.report(1)).out) == "one\ntwo\n"


async def test_following_a_queued_attempt_tells_all_of_it_before_its_end(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    runner.launch([shell("sleep 1000", attempt=1), shell("seq 50000", attempt=2)])
    runner.follow(2, True)
    runner.kill([1])
    report = await recorder.report(2)
    assert recorder.told(2) == whole(runner, report, "out")
    offsets = [offset for offset, _ in recorder.tails[2, "out"]]
    assert offsets == sorted(offsets)


@pytest.mark.parametrize("how", ["withdraw", "kill"])
async def test_what_an_idle_lane_is_given_and_asked_back_at_once_is_told(
    runner: SpawnerPool, recorder: Recorder, how: str
) -> None:
    """Its spawner is just starting: it hears of both in the same moment, and has nothing else to do."""
    runner.launch([shell("true", attempt=1), shell("true", attempt=2)])
    getattr(runner, how)([1, 2])
    ends = {(await recorder.report(attempt)).end for attempt in (1, 2)}
    assert ends == {End.INTERRUPTED if how == "withdraw" else End.CANCELLED}


async def test_what_is_withdrawn_before_it_began_does_not_start_and_the_rest_goes_on(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    runner.launch(
        [shell("sleep 1000", attempt=1), shell(f"touch {ran}", attempt=2), shell("true", attempt=3)]
    )
    await recorder.until(lambda: recorder.running == [1])
    runner.withdraw([1, 2])
    withdrawn = await recorder.report(2)
    assert (withdrawn.end, withdrawn.started_at) == (End.INTERRUPTED, 0.0)
    assert 1 not in recorder.reports, "what has begun is left alone"
    runner.kill([1])
    assert (await recorder.report(3)).end is End.EXITED
    assert not ran.exists()


@pytest.mark.must("g")
async def test_follower_of_a_flood_is_told_a_bounded_part(runner: SpawnerPool, recorder: Recorder) -> None:
    runner.launch([shell("yes")])
    runner.follow(1, True)
    await recorder.until(lambda: len(recorder.tails.get((1, "out"), [])) >= 5)
    runner.kill([1])
    report = await recorder.report(1)
    pieces = recorder.tails[1, "out"]
    assert all(len(data) <= 65536 for _, data in pieces)
    assert report.out is not None
    assert sum(len(data) for _, data in pieces) < report.out.total_bytes
    ends = [offset + len(data) for offset, data in pieces]
    assert all(offset >= end for end, (offset, _) in zip(ends, pieces[1:], strict=False))
