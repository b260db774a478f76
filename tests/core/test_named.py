"""What tasks name by what they print: `--block-on known`."""

import msgspec

from tercel.core.conditions import Verdict
from tercel.core.judging import NAMED_MOST
from tercel.core.model import BlockRule
from tercel.core.reports import End, Report

from .test_blocked_edges import blocked, played, ruled
from .transcript import Stage


def tell_all(stage: Stage, code: int, tester: str) -> int:
    """All that is under way ends so, and has printed what names such a tester for each task."""
    flights = list(stage.machine.workers["w1"].flights.values())
    reports = [Report(1, f.task, f.attempt, End.EXITED, code, stage.now, 0.1, 0.0, 0) for f in flights]
    met = {f.attempt: BlockRule(on="known", tester=tester.format(f.task), at="site") for f in flights}
    stage.machine.on_reports("w1", reports, stage.now, met if code else {})
    return len(flights)


def test_however_many_things_tasks_name_they_wait_for_few() -> None:
    """Each writes to its own directory, of one full disk. There was a condition for each, and a probe."""
    stage = played("worker w1 joins cpus=400", "submit 1 tasks=0-299")
    ruled(stage, "known; every 10s for 1h")
    assert tell_all(stage, 1, "disk:/scratch/run-{}>=1G") == 300
    assert len(stage.machine.conditions) == NAMED_MOST
    assert blocked(stage) == [(0, 299)]
    shares = [one.count for one in stage.machine.conditions.values()]
    assert max(shares) <= 2 * min(shares), "none of them has much more than its part"
    for _ in range(30):
        stage.play("wait 10s")
        for one in list(stage.machine.conditions.values()):
            if one.probe:
                stage.machine.on_tested(one.probe, Verdict(True), stage.now)
        stage.play("wait 0s")
        tell_all(stage, 0, "")
    assert 1 not in stage.machine.jobs


def test_what_one_job_names_takes_no_room_from_another() -> None:
    stage = played("worker w1 joins cpus=400", "submit 1 tasks=0-119")
    ruled(stage, "known; every 10s for 1h")
    tell_all(stage, 1, "disk:/scratch/run-{}>=1G")
    stage.play("submit 2 tasks=0")
    stage.machine.revise(
        stage.machine.jobs[2],
        msgspec.structs.replace(stage.machine.jobs[2].row.spec, block_on=(BlockRule(on="known"),)),
    )
    (flight,) = stage.machine.workers["w1"].flights.values()
    report = Report(2, 0, flight.attempt, End.EXITED, 1, stage.now, 0.1, 0.0, 0)
    met = BlockRule(on="known", tester="disk:/other>=1G", at="site")
    stage.machine.on_reports("w1", [report], stage.now, {flight.attempt: met})
    assert "disk:/other>=1G" in {one.row.tester for one in stage.machine.conditions.values()}, "another job"
