"""What every runner keeps, shown on the spawner pool with real processes.

Nothing sleeps here: tests wait for reports, and for lifelines. A lifeline is a FIFO that a task and all that
descends from it hold open; its reader sees the end of the file exactly when the last of them is gone.
"""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tercel.core.model import End, Output, Program, Report
from tercel.runners import lane, pool, trees
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
from tercel.wire.messages import INLINE_OUTPUT_BYTES, SEGMENT_BYTES

WAIT_S = 60.0


class Recorder:
    """A listener that keeps what it is told and lets tests wait for it."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.reports: dict[int, Report] = {}
        self.order: list[int] = []
        self.tails: dict[tuple[int, str], list[tuple[int, bytes]]] = {}
        self._news = asyncio.Event()

    def started(self, attempts: list[int]) -> None:
        self.running += attempts
        self._news.set()

    def ended(self, reports: list[Report]) -> None:
        for report in reports:
            assert report.attempt not in self.reports, "a second report"
            self.reports[report.attempt] = report
            self.order.append(report.attempt)
        self._news.set()

    def tail(self, attempt: int, stream: str, offset: int, data: bytes) -> None:
        assert attempt not in self.reports, "output after the end"
        self.tails.setdefault((attempt, stream), []).append((offset, data))
        self._news.set()

    def told(self, attempt: int, stream: str = "out") -> bytes:
        return b"".join(data for _, data in self.tails.get((attempt, stream), []))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def report(self, attempt: int) -> Report:
        await self.until(lambda: attempt in self.reports)
        return self.reports[attempt]


class Lifeline:
    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._reader: asyncio.StreamReader | None = None

    async def held(self) -> bytes:
        """Until somebody holds it and has written a line to it; returns the line."""
        loop = asyncio.get_running_loop()
        # Open without waiting for a writer: the first thing read is the line.
        file = os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        self._hold = os.open(
            self.path, os.O_WRONLY
        )  # or there would be an end of file before the first writer
        self._reader = asyncio.StreamReader()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), file
        )
        async with asyncio.timeout(WAIT_S):
            line = await self._reader.readline()
        os.close(self._hold)
        return line

    async def dropped(self) -> None:
        """Until nobody holds it any more."""
        assert self._reader is not None
        async with asyncio.timeout(WAIT_S):
            await self._reader.read()
        self._transport.close()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def runner(tmp_path: Path, recorder: Recorder) -> AsyncIterator[SpawnerPool]:
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    yield runner
    await runner.stop()
    assert spawners() == [], "a spawner is left"


@pytest.fixture
def lifeline(tmp_path: Path) -> Lifeline:
    return Lifeline(tmp_path / "lifeline")


def spawners() -> list[int]:
    found = []
    for pid in trees.descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if b"tercel.runners.spawner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def shell(line: str, attempt: int = 1, lane: int = 0, **program: object) -> Launch:
    return Launch(lane, 3, 14, attempt, Program(line=line, **program))


def python(source: str, *args: str, attempt: int = 1, lane: int = 0, **program: object) -> Launch:
    return Launch(lane, 3, 14, attempt, Program(argv=(sys.executable, "-c", source, *args), **program))


async def run(runner: SpawnerPool, recorder: Recorder, launch: Launch) -> Report:
    runner.launch([launch])
    return await recorder.report(launch.attempt)


def text(output: Output | None) -> str:
    assert output is not None
    return output.inline.decode()


# -- how attempts end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 7, 126, 255])
async def test_exit_code_is_reported(runner: SpawnerPool, recorder: Recorder, code: int) -> None:
    report = await run(runner, recorder, shell(f"exit {code}"))
    assert (report.job, report.task, report.attempt) == (3, 14, 1)
    assert (report.end, report.code) == (End.EXITED, code)
    assert report.out is None and report.err is None


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM, signal.SIGKILL, signal.SIGRTMIN + 3])
async def test_signal_is_reported_and_named(runner: SpawnerPool, recorder: Recorder, number: int) -> None:
    report = await run(runner, recorder, shell(f"kill -{int(number)} $$"))
    assert (report.end, report.code) == (End.SIGNALLED, number)
    name = number.name if isinstance(number, signal.Signals) else str(number)
    assert name in report.note


async def test_used_time_and_memory_are_recorded(runner: SpawnerPool, recorder: Recorder) -> None:
    source = "b = bytearray(b'x') * (150 << 20)\nimport time\nwhile time.process_time() < 0.3: pass"
    report = await run(runner, recorder, python(source))
    assert report.code == 0
    assert report.cpu_s >= 0.3
    assert report.wall_s >= 0.3
    assert 150 << 20 <= report.max_rss_bytes < 400 << 20
    assert report.started_at > 1.7e9


async def test_time_used_by_children_counts(runner: SpawnerPool, recorder: Recorder) -> None:
    source = "import time\nwhile time.process_time() < 0.2: pass"
    busy = f"{sys.executable} -c '{source}'"
    report = await run(runner, recorder, shell(f"mkfifo f; ({busy} > f &) ; {busy}; cat f"))
    assert report.cpu_s >= 0.4


@pytest.mark.parametrize("missing", ["no-such-program", "./no-such-program", "/no/such/program"])
async def test_unknown_program_is_the_commands_fault(
    runner: SpawnerPool, recorder: Recorder, missing: str
) -> None:
    report = await run(runner, recorder, Launch(0, 1, 0, 1, Program(argv=(missing, "x"))))
    assert (report.end, report.code) == (End.EXITED, 127)
    assert report.note == f"{missing}: not found"
    assert text(report.err) == f"tercel: {missing}: not found\n"


async def test_file_that_cannot_be_executed_gives_126(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    lost = tmp_path / "lost"
    lost.write_text("#!/no/such/interpreter\n")
    lost.chmod(0o755)
    for attempt, path in enumerate((plain, lost, tmp_path)):
        report = await run(runner, recorder, Launch(0, 1, 0, attempt, Program(argv=(str(path),))))
        assert (report.end, report.code) == (End.EXITED, 126), path
        assert str(path) in report.note and str(path) in text(report.err)
    assert "interpreter" in recorder.reports[1].note


async def test_script_without_first_line_is_run_by_the_shell(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    script = tmp_path / "fit.sh"
    script.write_text('echo "fit $1"\n')
    script.chmod(0o755)
    report = await run(
        runner, recorder, Launch(0, 1, 0, 1, Program(argv=("./fit.sh", "a b"), cwd=str(tmp_path)))
    )
    assert report.code == 0
    assert text(report.out) == "fit a b\n"


async def test_program_that_moves_is_found_again(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    tool = tmp_path / "b" / "tool-of-ours"
    tool.write_text("#!/bin/sh\necho $0\n")
    tool.chmod(0o755)
    search = f"{tmp_path}/a:{tmp_path}/b:{os.environ['PATH']}"
    program = Program(argv=("tool-of-ours",), env={"PATH": search})
    assert text((await run(runner, recorder, Launch(0, 1, 0, 1, program))).out) == f"{tool}\n"
    moved = tool.rename(tmp_path / "a" / "tool-of-ours")
    assert text((await run(runner, recorder, Launch(0, 1, 1, 2, program))).out) == f"{moved}\n"


@pytest.mark.parametrize("cwd", ["/no/such/directory", "/etc/passwd"])
async def test_missing_directory_is_the_nodes_fault(
    runner: SpawnerPool, recorder: Recorder, cwd: str
) -> None:
    report = await run(runner, recorder, shell("true", cwd=cwd))
    assert report.end is End.REFUSED
    assert cwd in report.note and "node-7" in report.note
    assert (await run(runner, recorder, shell("true", attempt=2))).code == 0


async def test_directory_made_again_under_its_name_is_entered(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    program = Program(line="cat here", cwd=str(place))
    for attempt in range(2):
        place.mkdir()
        (place / "here").write_text(f"{attempt}")
        report = await run(runner, recorder, Launch(0, 1, attempt, attempt, program))
        assert text(report.out) == f"{attempt}"
        (place / "here").unlink()
        place.rmdir()


async def test_want_of_descriptors_interrupts_and_passes(runner: SpawnerPool, recorder: Recorder) -> None:
    await run(runner, recorder, shell("echo"))
    [spawner] = spawners()
    limits = resource.prlimit(spawner, resource.RLIMIT_NOFILE)
    resource.prlimit(spawner, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{spawner}/fd")) + 1, limits[1]))
    report = await run(runner, recorder, shell("true", attempt=2))
    assert report.end is End.INTERRUPTED
    assert "node-7" in report.note and "Too many open files" in report.note
    resource.prlimit(spawner, resource.RLIMIT_NOFILE, limits)
    assert (await run(runner, recorder, shell("true", attempt=3))).end is End.EXITED


async def test_no_place_for_the_sandbox_interrupts(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    sandboxes = tmp_path / "worker" / "sandboxes"
    sandboxes.rmdir()
    sandboxes.write_text("in the way")
    report = await run(runner, recorder, shell("true"))
    assert report.end is End.INTERRUPTED
    assert "sandbox" in report.note
    sandboxes.unlink()
    assert (await run(runner, recorder, shell("true", attempt=2))).code == 0


async def test_nul_byte_in_an_argument_fails_only_that_task(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(runner, recorder, Launch(0, 1, 0, 1, Program(argv=("echo", "a\0b"))))
    assert (report.end, report.code) == (End.EXITED, 126)
    assert "NUL" in report.note
    assert (await run(runner, recorder, shell("true", attempt=2))).code == 0


async def test_arguments_too_long_fail_only_that_task(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(runner, recorder, Launch(0, 1, 0, 1, Program(argv=("true", "x" * 200_000))))
    assert (report.end, report.code) == (End.EXITED, 126)
    assert "too long" in report.note
    assert (await run(runner, recorder, shell("true", attempt=2))).code == 0


# -- what a task is given ---------------------------------------------------------------------------------


async def test_odd_arguments_arrive_unchanged(runner: SpawnerPool, recorder: Recorder) -> None:
    odd = ["", " ", "a b", "'", '"', "$HOME", "`id`", "\\", "*", "ä€𝄞", "new\nline", "-n", "#", "x" * 100_000]
    report = await run(runner, recorder, python("import sys; print(ascii(sys.argv[1:][:-1]))", *odd))
    assert text(report.out) == ascii(odd[:-1]) + "\n"


async def test_plain_line_needs_no_shell_and_others_get_one(runner: SpawnerPool, recorder: Recorder) -> None:
    program = Program(argv=("overridden",))
    lines = ["printf '%s|' a 'b c'", "printf '%s|' $((40 + 2)) && printf x", "readlink /proc/self/exe"]
    runner.launch([Launch(0, 1, at, at, program, line) for at, line in enumerate(lines)])
    outputs = [text((await recorder.report(at)).out) for at in range(3)]
    assert outputs[:2] == ["a|b c|", "42|x"]


@pytest.mark.K(15)
async def test_task_number_is_appended_when_asked(runner: SpawnerPool, recorder: Recorder) -> None:
    argv = Program(argv=("echo", "a b"), task_id_argument=True)
    line = Program(line="echo $((1 + 1)); echo 'a  b' ", task_id_argument=True)
    runner.launch([Launch(0, 1, 14, 1, argv), Launch(0, 2, 15, 2, line), Launch(0, 2, 16, 3, line)])
    assert text((await recorder.report(1)).out) == "a b 14\n"
    assert text((await recorder.report(2)).out) == "2\na  b 15\n"
    assert text((await recorder.report(3)).out) == "2\na  b 16\n"


async def test_environment_tells_the_task_who_it_is_and_no_secret(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERCEL_TOKEN", "very-secret")
    monkeypatch.setenv("TERCEL_TASK_ID", "of another")
    monkeypatch.setenv("OF_THE_WORKER", "1")
    report = await run(
        runner, recorder, shell("env -0", env={"GREETING": "hällo\nthere", "OF_THE_WORKER": "2"})
    )
    env = dict(entry.split("=", 1) for entry in text(report.out).split("\0") if entry)
    assert env["TERCEL_JOB_ID"] == env["SLURM_ARRAY_JOB_ID"] == "3"
    assert env["TERCEL_TASK_ID"] == env["SLURM_ARRAY_TASK_ID"] == "14"
    assert env["TERCEL_ATTEMPT"] == "1"
    assert env["TERCEL_NODE"] == "node-7"
    assert env["GREETING"] == "hällo\nthere"
    assert env["OF_THE_WORKER"] == "2"
    assert env["PATH"] == os.environ["PATH"]
    assert "very-secret" not in text(report.out)
    [spawner] = spawners()
    assert b"very-secret" not in Path(f"/proc/{spawner}/environ").read_bytes()


async def test_task_starts_with_default_signals_no_input_and_no_foreign_descriptors(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(runner, recorder, shell("grep Sig /proc/self/status; ls /proc/self/fd; wc -c"))
    status = dict(line.split(":\t") for line in text(report.out).splitlines() if line.startswith("Sig"))
    of_libc = 1 << 31 | 1 << 32  # its posix_spawn ignores those that it keeps for itself
    assert int(status["SigBlk"], 16) == int(status["SigIgn"], 16) & ~of_libc == 0
    descriptors = [line for line in text(report.out).splitlines() if not line.startswith("Sig")]
    assert descriptors == ["0", "1", "2", "3", "0"]  # 3 is that of ls itself; the last is what wc could read


async def test_outputs_made_non_blocking_by_one_task_block_for_the_next(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    spoil = "import fcntl, os; fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK | os.O_WRONLY)"
    look = "import os, sys; print(os.get_blocking(1), os.get_blocking(2))"
    runner.launch([python(spoil), python(look, attempt=2), shell("true", attempt=3), python(look, attempt=4)])
    for attempt in (2, 4):
        assert text((await recorder.report(attempt)).out) == "True True\n"


async def test_task_leads_a_session_of_its_own(runner: SpawnerPool, recorder: Recorder) -> None:
    source = "import os; print(os.getpid() == os.getsid(0) == os.getpgid(0))"
    assert text((await run(runner, recorder, python(source))).out) == "True\n"


async def test_each_attempt_finds_an_empty_sandbox_of_its_own(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    litter = "mkdir -p d/e; touch .hidden d/e/f; chmod 0 d"
    worse = [
        litter,
        "rmdir $PWD",
        f"cd ..; rm -r 0; ln -s {tmp_path} 0",
        "chmod 0 .",
        "true",
        "chmod 0 .; touch f",
    ]
    look = "pwd; ls -A; stat -c %a .; test $PWD = $TERCEL_SANDBOX"
    lines = [line for bad in worse for line in (look, bad)] + [look]
    runner.launch([Launch(at % 2, 1, 0, at, Program(line=line)) for at, line in enumerate(2 * lines)])
    await recorder.until(lambda: len(recorder.reports) == 2 * len(lines))
    places = set()
    for at, line in enumerate(2 * lines):
        if line == look:
            report = recorder.reports[at]
            assert report.code == 0, report
            place, *entries, mode = text(report.out).split()
            assert (entries, mode) == ([], "700"), report
            places.add((at % 2, place))
    assert not {place for lane, place in places if lane == 0} & {place for lane, place in places if lane == 1}


async def test_what_tasks_leave_is_removed_and_links_are_not_followed(
    tmp_path: Path, recorder: Recorder
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("mine")
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    litter = f"ln -s {precious} link; ln -s {precious}/data d; mkdir a; ln -s {precious} a/b; chmod 0 a"
    runner.launch([shell(litter), shell(f"touch x; ln {precious}/data hard", attempt=2)])
    assert (await recorder.report(2)).code == 0
    await runner.stop()
    assert (precious / "data").read_text() == "mine"
    assert list((tmp_path / "worker" / "trash").iterdir()) == []
    assert list((tmp_path / "worker" / "sandboxes").iterdir()) == []


async def test_directories_are_for_the_owner_only(runner: SpawnerPool, tmp_path: Path) -> None:
    for name in ("sandboxes", "outputs", "trash"):
        assert (tmp_path / "worker" / name).stat().st_mode & 0o777 == 0o700


# -- outputs ----------------------------------------------------------------------------------------------


def whole(runner: SpawnerPool, report: Report, stream: str) -> bytes:
    output = report.out if stream == "out" else report.err
    assert output is not None
    pieces = list(runner.segments(report.attempt, stream))
    assert len(pieces) == output.segments
    data = b"".join(map(zlib.decompress, pieces)) or output.inline
    assert all(len(zlib.decompress(piece)) == SEGMENT_BYTES for piece in pieces[:-1])
    assert len(data) == output.kept_bytes
    return data


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


# -- ending them ------------------------------------------------------------------------------------------


async def test_only_attempts_that_last_are_announced(runner: SpawnerPool, recorder: Recorder) -> None:
    runner.launch([shell("true", attempt=1), shell("sleep 0.3", attempt=2), shell("true", attempt=3)])
    await recorder.report(3)
    assert recorder.running == [2]


@pytest.mark.K(8)
async def test_cancel_ends_what_runs_and_keeps_what_waits_from_starting(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    touched = tmp_path / "touched"
    runner.launch(
        [shell("echo here; sleep 1000"), shell(f"touch {touched}", attempt=2), shell("echo 3", attempt=3)]
    )
    await recorder.until(lambda: recorder.running == [1])
    runner.kill([1, 2, 77])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.CANCELLED, signal.SIGTERM)
    assert text(report.out) == "here\n"
    assert (await recorder.report(2)).end is End.CANCELLED
    assert text((await recorder.report(3)).out) == "3\n"
    assert not touched.exists()


@pytest.mark.must("g")
async def test_task_that_ignores_term_is_killed_after_the_grace(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    line = f"trap '' TERM; exec 9>{lifeline.path}; echo x >&9; while :; do sleep 1000; done"
    runner.launch([shell(line, kill_grace_s=0.3)])
    await lifeline.held()
    runner.kill([1])
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.CANCELLED, signal.SIGKILL)
    assert report.wall_s >= 0.3
    assert "0.3 s after TERM" in report.note
    await lifeline.dropped()


async def test_grace_of_zero_kills_at_once(runner: SpawnerPool, recorder: Recorder, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    runner.launch([shell(f"trap 'touch {touched}' TERM; while :; do sleep 0.01; done", kill_grace_s=0.0)])
    await recorder.until(lambda: recorder.running == [1])
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.CANCELLED, signal.SIGKILL)
    assert not touched.exists()


async def test_grace_is_for_the_whole_tree(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    """A shell dies of TERM at once; the program below it must still be able to write its checkpoint."""
    source = (
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(0.2); print('saved', flush=True); sys.exit()\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"lifeline = open({str(lifeline.path)!r}, 'w'); print('x', file=lifeline, flush=True)\n"
        "while True: signal.pause()\n"
    )
    runner.launch(
        [Launch(0, 1, 0, 1, Program(argv=("sh", "-c", '"$0" -c "$1"; true', sys.executable, source)))]
    )
    await lifeline.held()
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.CANCELLED, signal.SIGTERM)
    assert text(report.out) == "saved\n"
    assert report.note == ""
    await lifeline.dropped()


async def test_stopped_task_can_be_ended(runner: SpawnerPool, recorder: Recorder) -> None:
    runner.launch([shell("kill -STOP $$")])
    await recorder.until(lambda: recorder.running == [1])
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.CANCELLED, signal.SIGTERM)


@pytest.mark.must("g")
async def test_time_limit_ends_the_whole_tree(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    line = f"exec 9>{lifeline.path}; echo x >&9; sleep 1000 & setsid sleep 1000 & wait"
    # Long enough for the shell to get as far as its echo on a machine that is busy with other things.
    runner.launch([shell(line, time_limit_s=3.0), shell("true", attempt=2, time_limit_s=WAIT_S)])
    await lifeline.held()
    report = await recorder.report(1)
    assert report.end is End.TIMED_OUT
    assert "time limit of 3 s" in report.note
    assert report.wall_s >= 3.0
    await lifeline.dropped()
    assert (await recorder.report(2)).end is End.EXITED


DAEMON = """
import os, signal, sys, time
lifeline = os.open(sys.argv[1], os.O_WRONLY)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(lifeline, b"x\\n")
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
os.wait()
if len(sys.argv) > 2:
    time.sleep(1000)
"""


@pytest.mark.must("g")
async def test_daemon_that_left_session_and_environment_ends_with_its_attempt(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    source = DAEMON.replace("lifeline = os.open", "lifeline = os.dup2(os.open").replace(
        "O_WRONLY)", "O_WRONLY), 9)"
    )
    runner.launch([python(source, str(lifeline.path)), shell("true", attempt=2)])
    await lifeline.held()
    report = await recorder.report(1)
    await lifeline.dropped()
    assert (report.end, report.code) == (End.EXITED, 0)
    assert report.note == "1 process left behind by it ended"
    assert (await recorder.report(2)).note == ""


@pytest.mark.must("g")
async def test_cancel_reaches_a_daemon(runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline) -> None:
    source = DAEMON.replace("lifeline = os.open", "lifeline = os.dup2(os.open").replace(
        "O_WRONLY)", "O_WRONLY), 9)"
    )
    runner.launch([python(source, str(lifeline.path), "stay", kill_grace_s=0.2)])
    await lifeline.held()
    await recorder.until(lambda: recorder.running == [1])
    runner.kill([1])
    assert (await recorder.report(1)).end is End.CANCELLED
    await lifeline.dropped()


@pytest.mark.must("g")
async def test_processes_that_never_stop_forking_are_caught(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    source = (
        "import os, sys\n"
        "os.dup2(os.open(sys.argv[1], os.O_WRONLY), 9)\n"
        "os.write(9, b'x\\n')\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        while True:\n"
        "            if os.fork(): os._exit(0)\n"
    )
    runner.launch([python(source, str(lifeline.path)), shell("true", attempt=2)])
    await lifeline.held()
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.EXITED, 0)
    await lifeline.dropped()
    assert (await recorder.report(2)).code == 0


async def test_orphans_that_end_early_do_not_pile_up(runner: SpawnerPool, recorder: Recorder) -> None:
    others = '[ "$(ps -o pid= --ppid $PPID | wc -l)" -gt 1 ]'
    line = f"for i in $(seq 30); do (setsid true &); done; while {others}; do sleep 0.01; done"
    report = await run(runner, recorder, shell(line, time_limit_s=WAIT_S / 2))
    assert (report.end, report.note) == (End.EXITED, "")


# -- the runner's own mishaps -----------------------------------------------------------------------------


@pytest.mark.must("g")
async def test_two_lanes_report_each_of_many_attempts_once(runner: SpawnerPool, recorder: Recorder) -> None:
    program = Program(line="test $TERCEL_TASK_ID -ne 13 && echo $TERCEL_TASK_ID")
    runner.launch([Launch(at % 2, 1, at // 2, at, program) for at in range(200)])
    await recorder.until(lambda: len(recorder.reports) == 200)
    for at in range(200):
        report = recorder.reports[at]
        assert report.end is End.EXITED
        assert report.task == at // 2
        assert (report.code, report.out) == ((1, None) if at // 2 == 13 else (0, report.out))
        assert report.out is None or text(report.out) == f"{at // 2}\n"
    for lane_number in range(2):
        in_lane = [at for at in recorder.order if at % 2 == lane_number]
        assert in_lane == sorted(in_lane)


async def test_jobs_alternate_in_a_lane_without_mixing(runner: SpawnerPool, recorder: Recorder) -> None:
    programs = [Program(line=f"echo {job} $TERCEL_JOB_ID $WHO", env={"WHO": f"w{job}"}) for job in range(3)]
    runner.launch([Launch(0, at % 3, at, at, programs[at % 3]) for at in range(30)])
    for at in range(30):
        assert text((await recorder.report(at)).out) == f"{at % 3} {at % 3} w{at % 3}\n"


@pytest.mark.must("g")
async def test_lost_spawner_interrupts_its_attempts_and_is_replaced(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    line = f"exec 9>{lifeline.path}; echo x >&9; setsid sleep 1000 & env -i sleep 1000 & wait"
    other = Lifeline(tmp_path / "other")
    runner.launch([shell(line), shell("true", attempt=2), shell("true", attempt=3)])
    runner.launch([shell(f"exec 9>{other.path}; echo $PPID >&9; exec sleep 1000", attempt=4, lane=1)])
    await lifeline.held()
    spared = int(await other.held())
    await recorder.until(lambda: set(recorder.running) == {1, 4})
    for spawner in spawners():
        if spawner != spared:
            os.kill(spawner, signal.SIGKILL)
    while 1 not in recorder.reports:  # what is asked of a lane that is being given up is of no consequence
        runner.kill([1])
        runner.follow(1, True)
        runner.withdraw([2])
        await asyncio.sleep(0)
    for attempt in (1, 2, 3):
        report = await recorder.report(attempt)
        assert report.end is End.INTERRUPTED
        assert "spawner was lost" in report.note
    await lifeline.dropped()
    assert (await run(runner, recorder, shell("echo again", attempt=5))).code == 0
    assert 4 not in recorder.reports
    runner.kill([4])
    assert (await recorder.report(4)).end is End.CANCELLED
    await other.dropped()


async def test_spawner_that_cannot_start_interrupts(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_UNSTARTED_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        assert (await run(runner, recorder, shell("true"))).end is End.INTERRUPTED
        patch.setattr(sys, "executable", "/bin/false")
        assert (await run(runner, recorder, shell("true", attempt=2))).end is End.INTERRUPTED
    assert (await run(runner, recorder, shell("true", attempt=3))).end is End.EXITED


async def test_stop_interrupts_what_runs_and_leaves_nothing(
    tmp_path: Path, recorder: Recorder, lifeline: Lifeline
) -> None:
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    runner.launch([shell("true"), shell(f"exec 9>{lifeline.path}; echo x >&9; sleep 1000", attempt=2)])
    runner.launch([shell("true", attempt=3), shell("true", attempt=4, lane=1)])
    await lifeline.held()
    await recorder.report(4)
    await runner.stop()
    await lifeline.dropped()
    ends = {attempt: report.end for attempt, report in recorder.reports.items()}
    assert (
        ends == {1: End.EXITED, 2: End.INTERRUPTED, 3: End.INTERRUPTED, 4: End.EXITED}
        or ends[4] is End.INTERRUPTED
    )
    assert trees.descendants(os.getpid()) == []
    assert list((tmp_path / "worker" / "sandboxes").iterdir()) == []


async def test_stop_of_an_unused_runner_is_quick(tmp_path: Path, recorder: Recorder) -> None:
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    await runner.stop()
    assert recorder.reports == {}


WORKER = """
import asyncio, sys
from pathlib import Path
from tercel.core.model import Program
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool

class Listener:
    def started(self, attempts): pass
    def ended(self, reports): print(reports, flush=True)
    def tail(self, *_): pass

async def main(dir, line):
    runner = SpawnerPool(Path(dir), "node-7")
    await runner.start(Listener())
    runner.launch([Launch(0, 1, 0, 1, Program(line=line)), Launch(0, 1, 1, 2, Program(line="true"))])
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.must("g")
async def test_no_process_outlives_a_killed_worker(tmp_path: Path, lifeline: Lifeline) -> None:
    line = (
        f"trap '' TERM HUP; exec 9>{lifeline.path}; (setsid sleep 1000 &); echo x >&9; sleep 1000; sleep 1000"
    )
    worker = subprocess.Popen([sys.executable, "-c", WORKER, tmp_path / "worker", line])
    await lifeline.held()
    worker.kill()
    worker.wait()
    await lifeline.dropped()


async def test_next_start_ends_what_a_worker_killed_with_its_spawners_left(
    tmp_path: Path, lifeline: Lifeline, recorder: Recorder
) -> None:
    line = f"exec 9>{lifeline.path}; echo $PPID >&9; touch file; setsid sleep 1000 & sleep 1000"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, tmp_path / "worker", line])
    spawner = int(await lifeline.held())
    os.kill(spawner, signal.SIGSTOP)  # or it would end the task when its worker is gone
    worker.kill()
    worker.wait()
    os.kill(spawner, signal.SIGKILL)
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    await lifeline.dropped()
    assert (await run(runner, recorder, shell("ls -A"))).out is None
    await runner.stop()
    assert list((tmp_path / "worker" / "sandboxes").iterdir()) == []


async def test_ended_attempts_are_reported_when_the_worker_stops_at_once(
    tmp_path: Path, recorder: Recorder
) -> None:
    """Reports gathered in the spawner are not lost with it: that work is done."""
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    runner.launch([shell(f"echo {at}", attempt=at) for at in range(40)])
    await recorder.report(3)
    await runner.stop()
    assert set(recorder.reports) == set(range(40))
    done = [at for at, report in recorder.reports.items() if report.end is End.EXITED]
    assert done == list(range(len(done)))


def test_spawner_needs_no_msgspec() -> None:
    """It is imported by every spawner, and would triple its start-up time."""
    check = "import sys; sys.path.append(sys.argv[1]); import tercel.runners.spawner; print('msgspec' in sys.modules)"
    source = Path(lane.__file__).parents[2]
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", check, source], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "False\n"
