"""Cancel and time limit end the whole tree, whatever it does."""

import signal
import sys
from pathlib import Path

import pytest

from tercel.core.model import Program
from tercel.core.reports import End
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
from tercel.runners.run import ANNOUNCE_S
from tests.conformance.runners import WAIT_S, Lifeline, Recorder, python, run, shell, text


async def test_only_attempts_that_last_are_announced(runner: SpawnerPool, recorder: Recorder) -> None:
    runner.launch([shell("true", attempt=1), shell("sleep 0.3", attempt=2), shell("true", attempt=3)])
    await recorder.report(3)
    assert 2 in recorder.running
    # On a busy machine even `true` may last.
    assert all(recorder.reports[attempt].wall_s >= ANNOUNCE_S for attempt in recorder.running)


@pytest.mark.K(8)
async def test_cancel_ends_what_runs_and_keeps_what_waits_from_starting(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline, tmp_path: Path
) -> None:
    touched = tmp_path / "touched"
    runner.launch(
        [
            shell(f"echo here; exec 9>{lifeline.path}; echo x >&9; sleep 1000"),
            shell(f"touch {touched}", attempt=2),
            shell("echo 3", attempt=3),
        ]
    )
    await lifeline.held()
    runner.kill([1, 2, 77])
    report = await recorder.report(1)
    assert (report.end, report.code) == (End.CANCELLED, signal.SIGTERM)
    assert text(report.out) == "here\n"
    assert (await recorder.report(2)).end is End.CANCELLED
    assert text((await recorder.report(3)).out) == "3\n"
    assert not touched.exists()
    await lifeline.dropped()


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
    # Long enough that even a busy machine has started all of it by then.
    runner.launch([shell(line, time_limit_s=2.0), shell("true", attempt=2, time_limit_s=WAIT_S)])
    await lifeline.held()
    report = await recorder.report(1)
    assert report.end is End.TIMED_OUT
    assert "time limit of 2 s" in report.note
    assert report.wall_s >= 2.0
    await lifeline.dropped()
    assert (await recorder.report(2)).end is End.EXITED


DAEMON = """
import os, signal, sys, time
lifeline = os.dup2(os.open(sys.argv[1], os.O_WRONLY), 9)  # which exec does not close
there, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(lifeline, b"x\\n")
        os.write(tell, b"x")
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
os.wait()
os.read(there, 1)  # or it might be ended with this attempt before it has spoken
if len(sys.argv) > 2:
    time.sleep(1000)
"""


@pytest.mark.must("g")
async def test_daemon_that_left_session_and_environment_ends_with_its_attempt(
    runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline
) -> None:
    runner.launch([python(DAEMON, str(lifeline.path)), shell("true", attempt=2)])
    await lifeline.held()
    report = await recorder.report(1)
    await lifeline.dropped()
    assert (report.end, report.code) == (End.EXITED, 0)
    assert report.note == "1 process left behind by it ended"
    assert (await recorder.report(2)).note == ""


@pytest.mark.must("g")
async def test_cancel_reaches_a_daemon(runner: SpawnerPool, recorder: Recorder, lifeline: Lifeline) -> None:
    runner.launch([python(DAEMON, str(lifeline.path), "stay", kill_grace_s=0.2)])
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
