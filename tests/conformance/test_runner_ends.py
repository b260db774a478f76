"""How attempts end, and whose fault it is; shown on the spawner pool with real processes."""

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from tercel.core.model import Program
from tercel.core.reports import End
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import Recorder, python, run, shell, spawners, text


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
