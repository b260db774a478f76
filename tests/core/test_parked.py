"""Attempts that have run, and wait at their workers to deliver what they left."""

import pytest

from tercel.core import registering
from tercel.core.states import Stage

from .test_blocked_edges import played

pytestmark = [pytest.mark.C(12)]


def test_a_job_that_cannot_deliver_begins_no_more_when_much_of_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or it would run to its end, and fill every disk."""
    monkeypatch.setattr(registering, "PARKED_MOST", 3)
    stage = played("worker w1 joins cpus=1", "submit 1 tasks=0-9 out=sftp://store/")
    for task in range(3):
        stage.play(f"w1 reports 1.{task}a unstaged stage-out down sftp://store/y kept")
    job = stage.machine.jobs[1]
    assert {met: tasks.ranges() for met, tasks in job.stages.items()} == {
        Stage.STAGE_OUT: [(0, 2)],
        Stage.ADMISSION: [(3, 9)],
    }
    assert len(stage.machine.conditions) == 1
    stage.play("wait 10s")
    told = stage.play("C1 cleared")
    assert "< go on at w1 1.0a 1.1a 1.2a" in told
    assert not job.blocked


def test_another_job_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registering, "PARKED_MOST", 1)
    stage = played(
        "worker w1 joins cpus=2",
        "submit 1 tasks=0-9 out=sftp://store/",
        "submit 2 tasks=0-9 out=sftp://other/",
    )
    told = stage.play("w1 reports 1.0a unstaged stage-out down sftp://store/y kept")
    assert "< offer w1 2.0a" in told
