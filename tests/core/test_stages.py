"""A blocked task goes on as is right for the stage in which it met its fault, also after it was held, or the manager restarted."""

import msgspec
import pytest

from tercel.core import states
from tercel.core.accounts import Settings
from tercel.core.changes import TasksUnblocked
from tercel.core.intervals import IntervalSet, Range
from tercel.core.invariants import violations
from tercel.core.machine import Machine
from tercel.core.states import RESUMES, TaskState

from .test_blocked_edges import LICENCE, blocked, played
from .transcript import Stage

pytestmark = [pytest.mark.T(3)]

ADMISSION, LAUNCH, RUN = states.Stage.ADMISSION, states.Stage.LAUNCH, states.Stage.RUN
WORKER = "worker w1 joins cpus=4"


def two_stages() -> Stage:
    """1.0 could not be begun without its job's directory; 1.1 had, and was ended for the same."""
    return played(
        WORKER,
        "submit 1 tasks=0-3 cwd=/data",
        "w1 reports 1.0a refused: no /data errno=ENOENT",
        "w1 reports 1.1a interrupted errno=ENOENT",
        "w1 reports 1.2a refused: no /data errno=ENOENT",
    )


def stages(stage: Stage, job: int = 1) -> dict[states.Stage, list[Range]]:
    return {met: tasks.ranges() for met, tasks in sorted(stage.machine.jobs[job].stages.items())}


def resuming(stage: Stage, count: int = 4) -> list[TaskState | None]:
    job = stage.machine.jobs[1]
    return [stage.machine.resumes_in(job, task) for task in range(count)]


@pytest.fixture
def launched_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if what a worker could not begin were to be looked at by people."""
    monkeypatch.setitem(RESUMES, LAUNCH, TaskState.PAUSED)


BOTH = {LAUNCH: [(0, 0), (2, 2)], RUN: [(1, 1)]}


def test_tasks_that_met_the_same_in_different_stages_share_one_condition_and_one_probe() -> None:
    stage = two_stages()
    assert stages(stage) == BOTH
    (condition,) = stage.machine.conditions.values()
    assert condition.count == 3
    told = stage.play("wait 10s")
    assert [line for line in told if "probe" in line] == ["< probe C1 by w1: dir:/data"]


@pytest.mark.usefixtures("launched_elsewhere")
@pytest.mark.parametrize("event", ["C1 cleared", "release C1 0"])
def test_each_goes_on_by_the_table(event: str) -> None:
    stage = two_stages()
    assert resuming(stage) == [TaskState.PAUSED, TaskState.READY, TaskState.PAUSED, None]
    stage.play("wait 10s")
    told = stage.play(event)
    assert [line for line in told if "offer" in line] == ["< offer w1 1.1b"]
    job = stage.machine.jobs[1]
    assert job.paused.ranges() == [(0, 0), (2, 2)]
    assert not job.stages
    assert not stage.machine.conditions


@pytest.mark.usefixtures("launched_elsewhere")
def test_so_does_each_of_a_job_that_another_worker_can_run() -> None:
    stage = played(
        "worker w1 joins cpus=2",
        "submit 1 tasks=0-1",
        "w1 reports 1.0a refused: too many processes errno=EAGAIN",
        "w1 reports 1.1a interrupted errno=EAGAIN",
    )
    assert stages(stage) == {LAUNCH: [(0, 0)], RUN: [(1, 1)]}
    told = stage.play("worker w2 joins cpus=2")
    assert [line for line in told if "offer" in line] == ["< offer w2 1.1b"]
    assert stage.machine.jobs[1].paused.ranges() == [(0, 0)]


@pytest.mark.usefixtures("launched_elsewhere")
def test_a_restart_keeps_the_stages() -> None:
    stage = two_stages()
    stage.play("the manager restarts")
    assert stages(stage) == BOTH
    stage.play("release C1 0")
    job = stage.machine.jobs[1]
    assert (job.paused.ranges(), 1 in job.ready) == ([(0, 0), (2, 2)], True)


@pytest.mark.usefixtures("launched_elsewhere")
def test_what_waits_for_a_condition_that_nobody_knows_goes_on_by_the_table_too() -> None:
    stage = two_stages()
    loaded = msgspec.structs.replace(stage.store.load(), conditions=[])
    machine = Machine(Settings(grace_s=60.0), loaded, stage.now)
    job = machine.jobs[1]
    assert (job.paused.ranges(), 1 in job.ready, job.blocked.ranges()) == ([(0, 0), (2, 2)], True, [])
    assert sum(isinstance(change, TasksUnblocked) for change in machine.changes) == 2
    assert violations(machine) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_held_and_released_they_wait_as_before(restarts: bool) -> None:
    stage = two_stages()
    stage.play("hold 1.0-2")
    assert not stage.machine.conditions
    kept = {one.fault.stage: list(one.ranges) for one in stage.machine.jobs[1].row.postponed}
    assert kept == BOTH
    if restarts:
        stage.play("the manager restarts")
        stage.play(WORKER)
    stage.play("release 1.1-2")
    assert stages(stage) == {LAUNCH: [(2, 2)], RUN: [(1, 1)]}
    stage.play("release 1.0")
    assert stages(stage) == BOTH
    assert len(stage.machine.conditions) == 1


def test_one_that_meets_the_fault_while_it_is_held_is_kept_with_its_stage() -> None:
    night = "block=exit:75>tcp:licence:1@manager;every_10s_for_1h"
    asks = "block=start>tcp:licence:1@manager;every_10s_for_1h"
    stage = played(
        WORKER, f"submit 1 tasks=0 {night}", "hold 1", "w1 reports 1.0a exit 75", f"submit 2 tasks=0 {asks}"
    )
    stage.play("release 1")
    assert (stages(stage), stages(stage, 2)) == ({RUN: [(0, 0)]}, {ADMISSION: [(0, 0)]})
    assert len(stage.machine.conditions) == 1


def test_what_is_called_back_before_it_was_tried_is_kept_from_being_so() -> None:
    """Whatever it had met before: it was ready, and is again when it is let go."""
    stage = played("worker w1 joins cpus=1", f"submit 1 tasks=0-3 {LICENCE}")
    for task in range(4):
        stage.play(f"w1 reports 1.{task}a exit 75")
    assert stages(stage) == {RUN: [(0, 3)]}
    stage.play("wait 10s")
    stage.play("C1 cleared")
    stage.play("w1 reports 1.0b exit 75")
    assert stages(stage) == {ADMISSION: [(1, 3)], RUN: [(0, 0)]}
    stage.play("the manager restarts")
    assert stages(stage) == {ADMISSION: [(1, 3)], RUN: [(0, 0)]}


@pytest.mark.parametrize("event", ["cancel 1.0-2", "fail C1 enough", "hold 1.0-2"])
def test_no_stage_is_kept_of_what_waits_no_more(event: str) -> None:
    stage = two_stages()
    stage.play(event)
    assert stages(stage) == {}
    assert blocked(stage) == []


def test_a_task_that_meets_it_again_in_another_stage_has_that_one() -> None:
    stage = two_stages()
    stage.play("release C1 0")
    stage.play("w1 reports 1.0b interrupted errno=ENOENT")
    assert stages(stage)[RUN] == [(0, 0)]


def test_stages_that_are_out_of_step_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = two_stages()
    job = stage.machine.jobs[1]
    for wrong in (
        {RUN: [(1, 1)]},
        {LAUNCH: [(0, 0), (2, 2)], RUN: [(1, 2)]},
        {LAUNCH: [(0, 2)], RUN: []},
    ):
        monkeypatch.setattr(job, "stages", {met: IntervalSet(ranges) for met, ranges in wrong.items()})
        assert violations(stage.machine) == ["job 1: some blocked task met its fault in no stage, or in two"]
