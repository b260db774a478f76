"""What kept an attempt from being run, where the system said so: its name travels with the report."""

import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tercel.core.model import Program
from tercel.core.reports import End, Report
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import Recorder, call, interpreters, run, shell, spawners

pytestmark = [pytest.mark.T(8), pytest.mark.C(7)]


def either(what: str, attempt: int = 1, **program: str) -> Launch:
    """A command or a call that does nothing."""
    return (
        shell("true", attempt, **program)
        if what == "command"
        else call(os.getpid, attempt=attempt, **program)
    )


def told(report: Report) -> tuple[End, str]:
    return report.end, report.errno


either_kind = pytest.mark.parametrize("what", ["command", "call"])


@either_kind
async def test_what_runs_has_none(runner: SpawnerPool, recorder: Recorder, what: str) -> None:
    assert told(await run(runner, recorder, either(what))) == (End.EXITED, "")
    failing = shell("exit 28", 2) if what == "command" else call(divmod, 1, 0, attempt=2)
    assert told(await run(runner, recorder, failing)) == (End.EXITED, "")


@either_kind
@pytest.mark.parametrize(
    ("cwd", "errno"),
    [("/no/such/directory", "ENOENT"), ("/etc/passwd", "ENOTDIR"), ("/" + 300 * "x", "ENAMETOOLONG")],
)
async def test_a_directory_that_cannot_be_entered(
    runner: SpawnerPool, recorder: Recorder, what: str, cwd: str, errno: str
) -> None:
    assert told(await run(runner, recorder, either(what, cwd=cwd))) == (End.REFUSED, errno)


@either_kind
async def test_a_sandbox_that_cannot_be_made(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, what: str
) -> None:
    sandboxes = tmp_path / "worker" / "sandboxes"
    sandboxes.rmdir()
    sandboxes.write_text("in the way")
    assert told(await run(runner, recorder, either(what))) == (End.INTERRUPTED, "ENOTDIR")
    sandboxes.unlink()
    sandboxes.mkdir()


async def test_want_of_descriptors(runner: SpawnerPool, recorder: Recorder) -> None:
    await run(runner, recorder, shell("echo"))
    [spawner] = spawners()
    limits = resource.prlimit(spawner, resource.RLIMIT_NOFILE)
    resource.prlimit(spawner, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{spawner}/fd")) + 1, limits[1]))
    assert told(await run(runner, recorder, shell("true", attempt=2))) == (End.INTERRUPTED, "EMFILE")


@either_kind
async def test_a_lanes_process_that_cannot_be_started(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        assert told(await run(runner, recorder, either(what))) == (End.INTERRUPTED, "ENOENT")
    assert spawners() == interpreters() == []


@pytest.mark.parametrize(
    ("path", "code", "errno"), [("no-such-program", 127, "ENOENT"), ("/etc/passwd", 126, "EACCES")]
)
async def test_a_command_that_cannot_be_executed(
    runner: SpawnerPool, recorder: Recorder, path: str, code: int, errno: str
) -> None:
    """It stays the command's own failure, with its code; the name is there for who wants to know."""
    report = await run(runner, recorder, Launch(0, 1, 0, 1, Program(argv=(path,))))
    assert (*told(report), report.code) == (End.EXITED, errno, code)


async def test_a_value_there_is_no_place_for(runner: SpawnerPool, recorder: Recorder, tmp_path: Path) -> None:
    (tmp_path / "worker" / "outputs").rmdir()
    report = await run(runner, recorder, call(bytes, 100_000))
    assert told(report) == (End.INTERRUPTED, "ENOENT")
    (tmp_path / "worker" / "outputs").mkdir()


@pytest.fixture
async def on_a_full_disk(tmp_path: Path, recorder: Recorder) -> AsyncIterator[SpawnerPool]:
    """Of its files there can be no more: a real file system, and root may not exceed it either."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "worker"
    disk.mkdir()
    options = "size=8m,nr_inodes=40"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tercel-test", disk], check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    runner = SpawnerPool(disk, "node-7")
    try:
        await runner.start(recorder)
        for number in range(os.statvfs(disk).f_ffree):
            (disk / f"ballast{number}").touch()
        yield runner
        await runner.stop()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False)


@pytest.mark.must("b")
@either_kind
async def test_a_full_disk(
    on_a_full_disk: SpawnerPool, recorder: Recorder, tmp_path: Path, what: str
) -> None:
    assert told(await run(on_a_full_disk, recorder, either(what))) == (End.INTERRUPTED, "ENOSPC")
    for ballast in (tmp_path / "worker").glob("ballast*"):
        ballast.unlink()
    assert told(await run(on_a_full_disk, recorder, either(what, attempt=2))) == (End.EXITED, "")


@either_kind
async def test_a_disk_without_room_for_files(
    on_a_full_disk: SpawnerPool, recorder: Recorder, tmp_path: Path, what: str
) -> None:
    for ballast in (tmp_path / "worker").glob("ballast*"):
        ballast.unlink()
    large, work = tmp_path / "large", tmp_path / "work"
    large.write_bytes(bytes(20_000_000))
    launch = msgspec.structs.replace(either(what), links=[(str(large), "input")])
    assert told(await run(on_a_full_disk, recorder, launch)) == (End.INTERRUPTED, "ENOSPC")
    work.mkdir()
    os.link(large, work / "result")
    launch = either(what, 2, cwd=str(work))
    to = str(tmp_path / "worker/outgoing")
    launch = msgspec.structs.replace(launch, gathers=[("result", "finished")], gather_dir=to)
    report = await run(on_a_full_disk, recorder, launch)
    assert (*told(report), report.gathered) == (End.INTERRUPTED, "ENOSPC", ())
    assert report.note.startswith("result cannot be saved on node-7: ")
