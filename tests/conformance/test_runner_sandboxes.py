"""What becomes of sandboxes: left for a cleanup, kept, or removed."""

import asyncio
import os
import sys
from pathlib import Path

import cloudpickle
import pytest

from tercel.core.model import Keep, Program
from tercel.core.reports import Report
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import Recorder, call, shell, text

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LEAVES = Program(line="mkdir d; echo data > d/file; echo out", cleanup="ls -A")
LOOK = Program(line="ls -A; pwd")


async def ended(runner: SpawnerPool, recorder: Recorder, launch: Launch) -> Report:
    """Of this launch: the number may have been another's before."""
    recorder.reports.pop(launch.attempt, None)
    runner.launch([launch])
    await recorder.until(lambda: launch.attempt in recorder.reports)
    return recorder.reports[launch.attempt]


@pytest.mark.K(12)
async def test_a_cleanup_finds_the_sandbox_as_its_attempt_left_it(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    first = await ended(runner, recorder, Launch(0, 1, 5, 100, LEAVES))
    assert text(first.out) == "out\n"
    env = Program(line="ls -A; echo $TERCEL_ATTEMPT $TERCEL_TASK_ID; touch more", env={})
    assert text((await ended(runner, recorder, Launch(0, 1, 5, 100, env))).out) == "d\n100 5\n"
    names = text((await ended(runner, recorder, Launch(0, 1, 6, 101, LOOK))).out).splitlines()
    assert len(names) == 1, "the next attempt finds it empty"


async def test_a_sandbox_that_nobody_cleaned_up_is_empty_for_the_next_attempt(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    for attempt in (100, 101):
        await ended(runner, recorder, Launch(0, 1, 0, attempt, LEAVES))
    names = text((await ended(runner, recorder, Launch(0, 2, 0, 102, LOOK))).out).splitlines()
    assert len(names) == 1


@pytest.mark.C(11)
@pytest.mark.parametrize(
    ("keep", "line", "is_kept"),
    [
        (Keep.KEEP, "echo data > file", True),
        (Keep.KEEP, "echo data > file; chmod 0 .", True),
        (Keep.KEEP, "true", False),
        (Keep.KEEP_ON_FAILURE, "echo data > file", False),
        (Keep.KEEP_ON_FAILURE, "echo data > file; exit 1", True),
        (Keep.KEEP_ON_FAILURE, "echo data > file; kill -9 $$", True),
        (Keep.KEEP_ON_FAILURE, "echo data > file; sleep 1000", True),
        (Keep.REMOVE, "echo data > file; exit 1", False),
    ],
)
async def test_a_sandbox_is_kept_if_it_is_to_be_and_has_anything_in_it(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, keep: Keep, line: str, is_kept: bool
) -> None:
    program = Program(line=line, sandbox=keep, time_limit_s=0.3 if "sleep" in line else 0.0, kill_grace_s=0.1)
    report = await ended(runner, recorder, Launch(0, 7, 3, 100, program))
    [kept] = list(tmp_path.rglob("kept/7.3.100")) or [None]
    assert (kept is not None) is is_kept
    assert ("sandbox kept: " in report.note) is is_kept
    if kept is not None:
        assert report.note.endswith(f":{kept.resolve()}")
        assert (kept / "file").read_text() == "data\n"
    look = await ended(runner, recorder, Launch(0, 8, 0, 101, LOOK))
    assert len(text(look.out).splitlines()) == 1


async def test_what_an_attempt_kept_is_not_there_for_its_cleanup(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    program = Program(line="touch file", sandbox=Keep.KEEP, cleanup="ls -A")
    await ended(runner, recorder, Launch(0, 1, 0, 100, program))
    cleanup = await ended(runner, recorder, Launch(0, 1, 0, 100, Program(line="ls -A")))
    assert (cleanup.code, cleanup.out) == (0, None)


async def test_a_sandbox_that_cannot_be_kept_is_told(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path
) -> None:
    await ended(runner, recorder, Launch(0, 1, 0, 99, LOOK))
    [trash] = await asyncio.to_thread(lambda: list(tmp_path.rglob("trash")))
    (trash.parent / "kept").write_text("in the way")
    report = await ended(
        runner, recorder, Launch(0, 1, 0, 100, Program(line="touch file", sandbox=Keep.KEEP))
    )
    assert (report.code, "sandbox not kept on " in report.note) == (0, True)


def _here(fifo: str) -> None:
    (Path(os.environ["TERCEL_SANDBOX"]) / "here").touch()
    with open(fifo) as told:
        told.read()


@pytest.mark.C(15)
@pytest.mark.parametrize("calls", [False, True], ids=["command", "call"])
async def test_where_an_attempt_works_is_known_while_it_runs(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, calls: bool
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    function = call(_here, str(fifo), attempt=5)
    runner.launch([function if calls else shell(f"touch here; cat {fifo}", attempt=5)])
    await recorder.until(lambda: 5 in recorder.running)
    directory = runner.directories().get(5)
    assert directory is not None
    assert directory.parent == (tmp_path / "worker/sandboxes").resolve()
    assert 6 not in runner.directories()
    with await asyncio.to_thread(fifo.open, "w"):  # when it reads, it has made its file
        assert [path.name for path in directory.glob("*/here")] == ["here"]
    await recorder.report(5)
    assert 5 not in runner.directories()
