"""A task that is blocked again and again: what is kept of its attempts is bounded, and says what it stands for."""

import re
from itertools import pairwise

import pytest

from tercel.core.judging import NOTED_BLOCKINGS
from tercel.core.reports import End, Outcome, Report

from .transcript import Stage

LICENCE = "block=exit:75>tcp:licence:1;every_10s_for_1h"


def begun() -> Stage:
    stage = Stage()
    stage.play("worker w1 joins cpus=1")
    stage.play(f"submit 1 tasks=0-1 {LICENCE}")
    return stage


def meet(stage: Stage, code: int = 75) -> int:
    """The attempt that runs ends; what is blocked by that is let go at once, by hand."""
    machine = stage.machine
    (flight,) = machine.workers["w1"].flights.values()
    report = Report(1, flight.task, flight.attempt, End.EXITED, code, stage.now, 6.0, 0.0, 0, "")
    machine.on_reports("w1", [report], stage.now)
    for condition in list(machine.conditions.values()):
        machine.on_release_condition(condition, 0, "ada", stage.now)
    machine.round()
    changes, _ = machine.take()
    stage.store.write(changes)
    stage.store.commit()
    return flight.attempt


def stands_for(record: Outcome) -> int:
    more = re.match(r"after ([0-9,]+) more like it: blocked on", record.report.note)
    return 1 + (int(more[1].replace(",", "")) if more else 0)


@pytest.mark.T(3)
def test_the_first_attempts_stay_and_the_newest_and_few_between() -> None:
    stage = begun()
    tried = [meet(stage) for _ in range(3000)]
    left = stage.store.history(1, 0)
    which = [tried.index(record.report.attempt) + 1 for record in left]
    assert which == [*range(1, NOTED_BLOCKINGS + 1), 32, 64, 128, 256, 512, 1024, 2048, 3000]
    assert [stands_for(record) for record in left[1:]] == [now - before for before, now in pairwise(which)]
    assert left[-1].report.note == "after 951 more like it: blocked on tcp:licence:1 (exit:75)"


def test_each_task_is_counted_for_itself_until_it_ends() -> None:
    stage = begun()
    for _ in range(NOTED_BLOCKINGS + 5):
        meet(stage)
    job = stage.machine.jobs[1]
    assert (job.blockings, len(job.last_blocked)) == ({0: NOTED_BLOCKINGS + 5}, 1)
    meet(stage, code=0)
    assert (job.blockings, job.last_blocked) == ({}, {})
    meet(stage)
    assert job.blockings == {}, "a task that is blocked once takes no memory for it"
    meet(stage)
    assert job.blockings == {1: 2}
    assert len(stage.store.history(1, 1)) == 2
