"""Blocked tasks that people hold and release: they do not go into the outage all at once, and nothing is tested for them meanwhile."""

import msgspec
import pytest

from tercel.core.changes import JobRevised
from tercel.core.intervals import IntervalSet
from tercel.core.reports import End, Report
from tercel.core.states import TaskState

from .test_blocked_edges import LICENCE, blocked, played

WORKER = "worker w1 joins cpus=40"


def offers(told: list[str]) -> list[str]:
    return [line for line in told if "offer" in line]


@pytest.mark.parametrize("restarts", [False, True])
def test_they_wait_again_and_go_in_waves(restarts: bool) -> None:
    stage = played(
        WORKER, f"submit 1 tasks=0-39 {LICENCE}", *(f"w1 reports 1.{n}a exit 75" for n in range(40))
    )
    stage.play("hold 1")
    assert not stage.machine.conditions, "nobody is asked for what is held"
    if restarts:
        stage.play("the manager restarts")
        stage.play(WORKER)
    told = stage.play("release 1")
    assert not offers(told)
    assert blocked(stage) == [(0, 39)]
    id = next(iter(stage.machine.conditions))
    stage.play(f"C{id} cleared")
    assert blocked(stage) == [(10, 39)], "the first wave"


def test_held_twice_they_are_still_known_to_be_blocked() -> None:
    stage = played(WORKER, f"submit 1 tasks=0-1 {LICENCE}", "w1 reports 1.0a exit 75", "hold 1.0", "hold 1")
    assert not offers(stage.play("release 1"))
    assert blocked(stage) == [(0, 0)]


def test_one_that_meets_the_fault_while_it_is_held_is_blocked_when_it_is_released() -> None:
    stage = played(WORKER, f"submit 1 tasks=0 {LICENCE}", "hold 1", "w1 reports 1.0a exit 75")
    assert not stage.machine.conditions
    assert stage.machine.jobs[1].paused.ranges() == [(0, 0)]
    stage.play("the manager restarts")
    stage.play(WORKER)
    assert not offers(stage.play("release 1"))
    assert blocked(stage) == [(0, 0)]


def test_what_was_wrong_at_a_worker_that_is_there_holds_up_its_tasks() -> None:
    here = "block=exit:75>tcp:licence:1@worker;every_10s_for_1h"
    stage = played(WORKER, f"submit 1 tasks=0 {here}", "w1 reports 1.0a exit 75", "hold 1")
    assert not offers(stage.play("release 1"))
    assert blocked(stage) == [(0, 0)]


def test_a_held_job_that_asks_before_it_starts_asks_when_it_is_released() -> None:
    night = "block=start>time:22:00-06:00@manager;every_1m_for_2d"
    stage = played(WORKER, f"submit 1 tasks=0-1 {night}", "hold 1")
    stage.machine.jobs[1].take_postponed(IntervalSet([(0, 1)]))  # as if it had been held before it asked
    assert not offers(stage.play("release 1"))
    assert blocked(stage) == [(0, 1)]


def test_one_that_pauses_before_its_next_try_does_not_do_so_after_it_was_held() -> None:
    stage = played(WORKER, "submit 1 tasks=0 retries=1 backoff=3600", "w1 reports 1.0a exit 1", "hold 1")
    assert offers(stage.play("release 1"))


def test_a_held_task_tells_in_which_state_it_goes_on() -> None:
    stage = played(
        WORKER,
        f"submit 1 tasks=0-1 {LICENCE}",
        "submit 2 tasks=0 after=ok:1",
        "w1 reports 1.0a exit 75",
        "hold 1",
        "hold 2",
    )
    machine = stage.machine
    assert machine.resumes_in(machine.jobs[1], 0) is TaskState.BLOCKED
    assert machine.resumes_in(machine.jobs[1], 1) is None, "it is under way"
    assert machine.resumes_in(machine.jobs[2], 0) is TaskState.WAITING
    stage.play("submit 3 tasks=0")
    stage.play("hold 1.1")
    stage.play("w1 returns 1.1a")
    assert machine.resumes_in(machine.jobs[1], 1) is TaskState.READY


def test_thousands_that_block_while_they_are_held_are_kept_together() -> None:
    stage = played("worker w1 joins cpus=400", f"submit 1 tasks=0-399 {LICENCE}", "hold 1")
    machine = stage.machine
    machine.take()
    reports = [
        Report(1, flight.task, flight.attempt, End.EXITED, 75, stage.now, 0.1, 0.0, 0)
        for flight in machine.workers["w1"].flights.values()
    ]
    machine.on_reports("w1", reports, stage.now)
    changes, _ = machine.take()
    assert sum(isinstance(change, JobRevised) for change in changes) == 1
    (postponed,) = machine.jobs[1].row.postponed
    assert postponed.ranges == ((0, 399),)


def test_what_was_wrong_at_a_worker_that_is_gone_holds_up_nobody() -> None:
    here = "block=exit:75>tcp:licence:1@worker;every_10s_for_1h"
    stage = played(WORKER, f"submit 1 tasks=0 {here}", "w1 reports 1.0a exit 75", "hold 1", "w1 says bye")
    stage.play("worker w2 joins cpus=1")
    assert offers(stage.play("release 1"))


def test_after_a_rule_is_gone_nothing_waits_by_it() -> None:
    stage = played(WORKER, f"submit 1 tasks=0 {LICENCE}", "w1 reports 1.0a exit 75", "hold 1")
    job = stage.machine.jobs[1]
    stage.machine.revise(job, msgspec.structs.replace(job.row.spec, block_on=()))
    assert offers(stage.play("release 1"))


def test_one_that_was_cancelled_meanwhile_and_is_retried_is_not_blocked() -> None:
    stage = played(
        WORKER,
        f"submit 1 tasks=0-1 {LICENCE}",
        "w1 reports 1.0a exit 75",
        "hold 1.0",
        "cancel 1.0",
    )
    assert offers(stage.play("retry 1.0"))
    stage.play("hold 1.0")
    stage.play("release 1.0")
    assert not stage.machine.conditions
