"""What jobs look for in the outputs of attempts that failed."""

import asyncio
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import cloudpickle
import pytest

from tercel.core.blocking import parse_rule, patterns_of
from tercel.core.model import JobSpec, Limits, Program
from tercel.core.reports import End, Output, Report
from tercel.manager.hearing import MAX_SAID, MAX_SEEN
from tercel.runners import seeking
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
from tercel.wire.messages import INLINE_OUTPUT_BYTES, SEGMENT_BYTES
from tests.conformance.runners import WAIT_S, Recorder, call, python, run, shell

pytestmark = pytest.mark.T(8)

cloudpickle.register_pickle_by_value(sys.modules[__name__])

QUOTA = ("0", "err", "Disk quota exceeded")


async def found(runner: SpawnerPool, recorder: Recorder, said: bytes, *patterns: str) -> set[int]:
    """Which of the patterns are found in what a command says on stdout before it fails."""
    sought = tuple((str(number), "out", pattern) for number, pattern in enumerate(patterns))
    source = "import os, sys; sys.stdout.buffer.write(eval(sys.argv[1])); sys.exit(1)"
    attempt = len(recorder.reports)
    launch = python(source, repr(said), attempt=attempt, patterns=sought)
    return {int(number) for number in (await run(runner, recorder, launch)).matched}


# -- when -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("exit 1", End.EXITED),
        ("exit 75", End.EXITED),
        ("kill -USR2 $$", End.SIGNALLED),
        ("exec sleep 600", End.TIMED_OUT),
        ("no-such-program", End.EXITED),
    ],
)
async def test_a_pattern_is_found_however_it_failed(
    runner: SpawnerPool, recorder: Recorder, line: str, end: End
) -> None:
    limit_s = 0.2 if end is End.TIMED_OUT else 0.0
    launch = shell(f"echo 'cp: Disk quota exceeded' >&2; {line}", patterns=(QUOTA,), time_limit_s=limit_s)
    report = await run(runner, recorder, launch)
    assert (report.end, report.matched) == (end, ("0",))
    assert report.err is not None and b"quota" in report.err.inline, "it is kept as ever"


async def test_a_pattern_is_found_in_what_took_too_much(runner: SpawnerPool, recorder: Recorder) -> None:
    source = "import sys, time; print('Disk quota exceeded', file=sys.stderr, flush=True); open('x', 'wb').write(bytes(2**24)); time.sleep(600)"
    report = await run(runner, recorder, python(source, patterns=(QUOTA,), limits=Limits(disk_bytes=2**22)))
    assert (report.end, report.matched) == (End.EXCEEDED, ("0",))


@pytest.mark.parametrize("before", [0, 1_000_000])
async def test_of_what_is_known_the_piece_that_was_found_is_told(
    runner: SpawnerPool, recorder: Recorder, before: int
) -> None:
    sought = patterns_of(JobSpec(argv=("true",), block_on=(parse_rule("known"),)))
    said = "ssh: connect to host login.lab port 22: Connection refused"
    source = f"import sys; print('x' * {before}, {said!r}, 'y' * 3000, file=sys.stderr); sys.exit(1)"
    report = await run(runner, recorder, python(source, patterns=sought))
    assert report.matched == ("known",)
    assert report.said.split() == said.split(), "the long word behind it would be cut"
    assert (len(report.said) <= MAX_SAID, report.seen) == (True, ("",))


@pytest.mark.parametrize(
    ("said", "pattern", "line"),
    [
        (b"one\ncp: Disk quota exceeded (EDQUOT)\nthree\n", "quota", "cp: Disk quota exceeded (EDQUOT)"),
        (b"Disk quota exceeded", "Disk", "Disk quota exceeded"),
        (b"one\ntwo\n", r"\n\s*two", "two"),
        (b"one\n\n", r"\n\n", ""),
        (b"w " * 500 + b"https://ada:hunter2@store.lab" + b" w" * 500, "store", None),
        (b"w " * 500 + b"store https://ada:" + b"hunter2" * 100, "store", None),
        ("ü ".encode() * 500 + "störung ".encode() + "ü ".encode() * 500, "störung", None),
    ],
)
async def test_the_line_in_which_a_pattern_was_found_is_told_and_of_a_long_one_what_is_near(
    runner: SpawnerPool, recorder: Recorder, said: bytes, pattern: str, line: str | None
) -> None:
    source = "import os, sys; sys.stdout.buffer.write(eval(sys.argv[1])); sys.exit(1)"
    sought = (("known", "out", "never said"), ("0", "out", pattern), ("1", "out", "never said"))
    report = await run(runner, recorder, python(source, repr(said), patterns=sought))
    assert report.matched == ("0",)
    (seen,) = report.seen
    assert len(seen) <= MAX_SEEN
    if line is not None:
        assert seen == line
    else:
        assert pattern in seen
        assert set(seen.split()) <= set(said.decode().split()), "no word is cut"


async def test_what_is_known_and_was_survived_is_not_told(runner: SpawnerPool, recorder: Recorder) -> None:
    sought = patterns_of(JobSpec(argv=("true",), block_on=(parse_rule("known"),)))
    source = (
        "import sys; print('ssh: connect to host a port 22: no', 'y' * 5000, file=sys.stderr); sys.exit(1)"
    )
    report = await run(runner, recorder, python(source, patterns=sought))
    assert (report.matched, report.said) == ((), "")


async def test_nothing_is_looked_for_in_what_went_well(runner: SpawnerPool, recorder: Recorder) -> None:
    report = await run(runner, recorder, shell("echo Disk quota exceeded >&2", patterns=(QUOTA,)))
    assert (report.code, report.matched) == (0, ())


async def test_nothing_is_looked_for_in_what_was_cancelled(runner: SpawnerPool, recorder: Recorder) -> None:
    runner.launch([shell("echo Disk quota exceeded >&2; sleep 600", patterns=(QUOTA,))])
    await recorder.until(lambda: recorder.running == [1])
    runner.kill([1])
    report = await recorder.report(1)
    assert (report.end, report.matched) == (End.CANCELLED, ())


async def test_who_looks_for_nothing_finds_nothing_beside_who_does(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    line = "echo Disk quota exceeded >&2; exit 1"
    runner.launch([shell(line, attempt=1), shell(line, attempt=2, patterns=(QUOTA,)), shell(line, attempt=3)])
    assert [(await recorder.report(attempt)).matched for attempt in (1, 2, 3)] == [(), ("0",), ()]


async def test_only_the_stream_that_is_meant_counts(runner: SpawnerPool, recorder: Recorder) -> None:
    patterns = (
        ("0", "out", "quota"),
        ("1", "err", "quota"),
        ("2", "out", "room"),
        ("2", "err", "room"),
        ("3", "err", r"\A\z"),
    )
    first = await run(runner, recorder, shell("echo quota; exit 1", patterns=patterns))
    assert first.matched == ("0",)
    second = await run(
        runner, recorder, shell("echo room; echo quota >&2; exit 1", attempt=2, patterns=patterns)
    )
    assert second.matched == ("1", "2")
    silent = await run(runner, recorder, shell("exit 1", attempt=3, patterns=patterns))
    assert (silent.code, silent.matched) == (1, ())


async def test_a_shell_without_the_library_is_enough_for_who_looks_for_nothing(tmp_path: Path) -> None:
    """Importing it takes time and memory that only jobs with patterns pay."""
    source = """
import asyncio, sys
from pathlib import Path
from tercel.core.model import Program
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
async def main(dir, patterns):
    ended = asyncio.Event()
    class Listener:
        def started(self, attempts): pass
        def ended(self, reports): ended.set()
        def tail(self, *_): pass
    runner = SpawnerPool(Path(dir), "node-7")
    await runner.start(Listener())
    runner.launch([Launch(0, 1, 0, 1, Program(line="echo x; exit 1", patterns=patterns))])
    await ended.wait()
    await runner.stop()
    print("re2" in sys.modules)
asyncio.run(main(sys.argv[1], eval(sys.argv[2])))
"""
    for patterns, imported in (((), "False\n"), ((("0", "out", "x"),), "True\n")):
        command = [sys.executable, "-c", source, str(tmp_path), repr(patterns)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == imported


# -- what -------------------------------------------------------------------------------------------------


async def test_lines_have_ends_and_a_dot_stays_in_its_line(runner: SpawnerPool, recorder: Recorder) -> None:
    said = b"one\ntwo words\nthree\n"
    patterns = (
        "^two",
        "words$",
        "^words",
        "one.two",
        r"one\ntwo",
        "(?s)one.two",
        r"\Atwo",
        r"three\n\z",
        "^$",
    )
    assert await found(runner, recorder, said, *patterns) == {0, 1, 4, 5, 7, 8}


async def test_letters_beyond_ascii_are_letters(runner: SpawnerPool, recorder: Recorder) -> None:
    said = "Kontingent überschritten: 100 €".encode()
    patterns = ("überschritten", "(?i)ÜBERSCHRITTEN", "[üö]ber", "^.{31}$", r"\bK", "uberschritten")
    assert await found(runner, recorder, said, *patterns) == {0, 1, 2, 3, 4}


async def test_any_bytes_may_be_around_and_within(runner: SpawnerPool, recorder: Recorder) -> None:
    said = bytes(range(256)) + b"Disk \xff\x00\xc3 quota\xe9" + bytes(range(255, -1, -1))
    assert await found(runner, recorder, said, "Disk ... quota", "Disk .* quota", "Disk  quota", r"\x00") == {
        0,
        1,
        3,
    }


@pytest.mark.parametrize(
    "size", [0, 100, INLINE_OUTPUT_BYTES - 5, 70_000, SEGMENT_BYTES, 3 * SEGMENT_BYTES, 5_000_000]
)
@pytest.mark.parametrize("behind", [0, 2_000_000])
async def test_a_pattern_is_found_wherever_it_stands(
    runner: SpawnerPool, recorder: Recorder, size: int, behind: int
) -> None:
    """Also where a segment ends, or a window."""
    source = "import sys; a, b = map(int, sys.argv[1:]); sys.stdout.write('x' * a + 'Disk quota' + 'y' * b); sys.exit(1)"
    sought = (("3", "out", "Disk quota"), ("4", "out", "xDisk quotay"), ("5", "out", "Disk  quota"))
    for attempt, before in enumerate(range(max(0, size - 6), size + 3, 3)):
        launch = python(source, str(before), str(behind), attempt=attempt, patterns=sought)
        report = await run(runner, recorder, launch)
        assert report.matched == (("3", "4") if before and behind else ("3",))


async def test_a_match_may_lie_across_any_window(runner: SpawnerPool, recorder: Recorder) -> None:
    long = seeking.MATCH_MOST_BYTES - 10
    source = "import sys; a, b, c = map(int, sys.argv[1:]); sys.stdout.write('-' * a + '<' + '=' * b + '>' + '-' * c); sys.exit(1)"
    for attempt, behind in enumerate(range(0, 2 * seeking.WINDOW_BYTES, 50_000)):
        launch = python(
            source, "300000", str(long), str(behind), attempt=attempt, patterns=(("0", "out", "<=+>"),)
        )
        assert (await run(runner, recorder, launch)).matched == ("0",), behind


async def test_only_what_is_kept_is_searched(runner: SpawnerPool, recorder: Recorder) -> None:
    line = "echo first; head -c 3M /dev/zero; echo last; exit 1"
    patterns = (("0", "out", "first"), ("1", "out", "last"))
    report = await run(runner, recorder, shell(line, patterns=patterns, output_limit_bytes=2**20))
    assert report.matched == ("1",)
    whole = await run(runner, recorder, shell(line, attempt=2, patterns=patterns))
    assert whole.matched == ("0", "1")


async def test_of_more_than_is_searched_the_end_counts(runner: SpawnerPool, recorder: Recorder) -> None:
    line = "echo first; head -c 5M /dev/zero; echo middle; head -c 9M /dev/zero; echo last; exit 1"
    patterns = (("0", "out", "first"), ("1", "out", "middle"), ("2", "out", "last"))
    report = await run(runner, recorder, shell(line, patterns=patterns, output_limit_bytes=2**26))
    assert report.matched == ("1", "2")


async def test_many_patterns_at_once(runner: SpawnerPool, recorder: Recorder) -> None:
    patterns = [f"^word {number}$" for number in range(50)]
    said = b"".join(b"word %d\n" % number for number in range(0, 50, 7))
    assert await found(runner, recorder, said, *patterns) == set(range(0, 50, 7))


# -- harm -------------------------------------------------------------------------------------------------


@pytest.mark.must("d")
async def test_patterns_that_would_hang_others_take_their_time_only(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    said = b"a" * 100_000 + b"!"
    assert await found(runner, recorder, said, "(a+)+$", "(a|aa)+$", "(.*)*x", "(a*)*!") == {3}


@pytest.mark.must("d")
async def test_who_asks_for_too_much_is_told_and_ends_all_the_same(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeking, "PATIENCE_S", 0.05)
    slow = "(x|a)[^Q]{200}Q"
    line = "head -c 9M /dev/urandom | tr -dc 'xa\\n'; head -c 9M /dev/urandom | base64 -w0 | tr Q q; echo last; exit 3"
    patterns = (("0", "out", "last"), ("1", "out", slow), ("2", "out", "nothing"))
    report = await run(runner, recorder, shell(line, patterns=patterns))
    assert (report.end, report.code, report.matched) == (End.EXITED, 3, ("0",))
    assert report.note == seeking.NOT_ALL
    assert (await run(runner, recorder, shell("true", attempt=2))).code == 0


async def test_a_pattern_that_this_release_does_not_know_hides_no_other(
    runner: SpawnerPool, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    assert await found(runner, recorder, b"word", "(?=word)", "word") == {1}
    assert "(?=word)" in caplog.text


async def test_an_output_that_is_gone_keeps_no_report_back(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def read(attempt: int, stream: str) -> list[bytes]:
        if attempt == 1:
            raise OSError(5, "Input/output error")
        return [b"no zlib"]

    monkeypatch.setattr(runner._seeking, "_read", read)
    for attempt, why in ((1, "Input/output error"), (2, "incorrect header")):
        line = "head -c 1M /dev/zero; echo word >&2; exit 1"
        patterns = (("0", "out", "word"), ("1", "err", "word"), ("2", "out", r"\A\z"))
        report = await run(runner, recorder, shell(line, attempt=attempt, patterns=patterns))
        assert report.matched == ("1",)
        assert why in caplog.text


@pytest.mark.must("d")
async def test_a_job_whose_search_takes_long_lets_others_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take turns: another's report does not wait for all of the first one's."""
    monkeypatch.setattr(seeking, "TURN_S", 0.0)
    pieces = [zlib.compress(bytes(SEGMENT_BYTES))] * 4
    told: list[int] = []
    all_told = asyncio.Event()

    def on_done(reports: list[Report]) -> None:
        told.extend(report.attempt for report in reports)
        if len(told) == 21:
            all_told.set()

    seeks = seeking.Seeking(lambda *_: pieces, on_done)
    sought = Program(line="x", patterns=(("0", "out", "word"),))

    def failed(job: int, attempt: int, out: Output) -> Report:
        seeks.expect(Launch(0, job, 0, attempt, sought))
        return Report(job, 0, attempt, End.EXITED, 1, 1.0, 1.0, 1.0, 1, "", out)

    large = Output(4 * SEGMENT_BYTES, 4 * SEGMENT_BYTES, b"", 4)
    assert seeks.take([failed(1, attempt, large) for attempt in range(20)]) == []
    assert seeks.take([failed(2, 100, Output(4, 4, b"word"))]) == []
    await asyncio.wait_for(all_told.wait(), WAIT_S)
    assert told == [0, 100, *range(1, 20)]
    await seeks.stop()


async def test_reports_that_are_being_searched_are_told_before_the_runner_stops(
    tmp_path: Path, recorder: Recorder
) -> None:
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    program = Program(line="head -c 4M /dev/zero; echo word; exit 1", patterns=(("0", "out", "word"),))
    runner.launch([Launch(lane, 1, lane, lane, program) for lane in range(3)])
    await recorder.until(lambda: bool(recorder.reports))
    await runner.stop()
    assert set(recorder.reports) == {0, 1, 2}
    assert all(r.matched == ("0",) for r in recorder.reports.values() if r.end is End.EXITED)
    assert runner._seeking.expected == {}


async def test_a_runner_that_stops_waits_for_no_long_search(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeking, "STOP_S", 0.0)
    pieces = [zlib.compress(b"xa-" * (SEGMENT_BYTES // 3))] * 40
    seeks = seeking.Seeking(lambda *_: pieces, recorder.ended)
    program = Program(line="x", patterns=(("0", "out", "(x|a)[^Q]{200}Q"),))
    out = Output(40 * SEGMENT_BYTES, 40 * SEGMENT_BYTES, b"", 40)
    for attempt in range(20):
        seeks.expect(Launch(0, 1, 0, attempt, program))
    seeks.take([Report(1, 0, n, End.EXITED, 1, 1.0, 1.0, 1.0, 1, "it failed", out) for n in range(20)])
    await seeks.stop()
    assert recorder.order == list(range(20))
    assert recorder.reports[19].note == f"it failed; {seeking.NOT_ALL}"


# -- calls of functions -----------------------------------------------------------------------------------


def _raises(text: str) -> None:
    print("printed")
    raise PermissionError(13, text)


def _dies() -> None:
    print("last words", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)


async def test_what_a_function_raises_is_found_on_its_stderr(runner: SpawnerPool, recorder: Recorder) -> None:
    patterns = (
        ("0", "err", "^PermissionError: .*licence"),
        ("1", "out", "printed"),
        ("2", "err", "Traceback"),
        ("3", "out", "licence"),
    )
    report = await run(runner, recorder, call(_raises, "no licence", patterns=patterns))
    assert (report.end, report.code, report.matched) == (End.EXITED, 1, ("0", "1", "2"))


async def test_what_a_function_said_before_its_interpreter_died_is_found(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(runner, recorder, call(_dies, patterns=(("4", "err", "^last words$"),)))
    assert (report.end, report.matched) == (End.SIGNALLED, ("4",))


async def test_nothing_is_looked_for_in_a_call_that_went_well(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    report = await run(runner, recorder, call(print, "word", patterns=(("0", "out", "word"),)))
    assert (report.code, report.matched) == (0, ())
