"""The runner's own mishaps: lost spawners, killed workers, stops."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tercel.core.model import Program
from tercel.core.reports import End, Report
from tercel.runners import lane, pool, trees
from tercel.runners.contract import Launch
from tercel.runners.pool import SpawnerPool
from tests.conformance.runners import WAIT_S, Lifeline, Recorder, run, shell, spawners, text


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


KILLS_ITS_SPAWNER = "kill -9 $PPID; sleep 600"


async def test_a_task_that_kills_its_spawner_again_and_again_fails_by_itself(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    """Else it would run for ever, a new attempt each second, and never be to blame."""
    for attempt in (1, 2):
        report = await run(runner, recorder, shell(KILLS_ITS_SPAWNER, attempt=attempt))
        assert (report.end, report.note) == (End.INTERRUPTED, "node-7: its spawner was lost")
    for attempt, times in ((3, 3), (4, 4)):
        report = await run(runner, recorder, shell(KILLS_ITS_SPAWNER, attempt=attempt))
        assert (report.end, report.code) == (End.SIGNALLED, 9)
        said = (
            f"its spawner was killed while it ran, {times} times: the task did that, or something on node-7"
        )
        assert report.note == said
    assert (await run(runner, recorder, shell("true", attempt=5))).code == 0
    again = await run(runner, recorder, shell(KILLS_ITS_SPAWNER, attempt=6))
    assert again.end is End.INTERRUPTED, "it has ended well meanwhile"


async def test_who_merely_waited_in_a_lane_that_was_lost_is_never_blamed(
    runner: SpawnerPool, recorder: Recorder
) -> None:
    for first in range(10, 50, 10):
        culprit = shell("sleep 0.2; " + KILLS_ITS_SPAWNER, attempt=first)
        behind = msgspec.structs.replace(culprit, task=15, attempt=first + 1)
        runner.launch([culprit, behind])
        ends = [(await recorder.report(attempt)).end for attempt in (first, first + 1)]
        assert ends == [End.SIGNALLED if first >= 30 else End.INTERRUPTED, End.INTERRUPTED]


async def test_outputs_that_cannot_be_removed_keep_no_report_back(
    runner: SpawnerPool, recorder: Recorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory stands where the output of a lost attempt would: it cannot be unlinked."""
    in_the_way = tmp_path / "worker" / "outputs" / "1.out"
    in_the_way.mkdir()
    runner.launch([shell("sleep 1000")])
    await recorder.until(lambda: recorder.running == [1])
    for spawner in spawners():
        os.kill(spawner, signal.SIGKILL)
    assert (await recorder.report(1)).end is End.INTERRUPTED
    assert "Cannot remove the output of attempt 1" in caplog.text
    in_the_way.rmdir()


async def test_spawner_that_cannot_start_interrupts(
    runner: SpawnerPool, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        assert (await run(runner, recorder, shell("true"))).end is End.INTERRUPTED
        patch.setattr(sys, "executable", "/bin/false")
        assert (await run(runner, recorder, shell("true", attempt=2))).end is End.INTERRUPTED
    assert (await run(runner, recorder, shell("true", attempt=3))).end is End.EXITED


@pytest.mark.parametrize(
    ("line", "blocked", "note"),
    [("true", True, "no sandbox"), ("kill -9 $PPID", False, "spawner was lost")],
    ids=["no room for a sandbox", "a task that kills its spawner"],
)
async def test_what_the_node_could_not_run_is_told_late_so_that_nobody_spins(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, line: str, blocked: bool, note: str
) -> None:
    monkeypatch.setattr(pool, "_INTERRUPTED_S", 1000.0)
    runner = SpawnerPool(tmp_path / "worker", "node-7")
    await runner.start(recorder)
    put_off = asyncio.Event()
    tell_later = runner._tell_later

    def see(reports: list[Report]) -> None:
        tell_later(reports)
        put_off.set()

    monkeypatch.setattr(runner, "_tell_later", see)
    if blocked:
        sandboxes = tmp_path / "worker" / "sandboxes"
        sandboxes.rmdir()
        sandboxes.write_text("in the way")
    runner.launch([shell(line)])
    async with asyncio.timeout(WAIT_S):
        await put_off.wait()
    assert recorder.reports == {}
    await runner.stop()
    assert note in recorder.reports[1].note, "told after all"


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
    assert ends == {1: End.EXITED, 2: End.INTERRUPTED, 3: End.INTERRUPTED, 4: End.EXITED}
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
