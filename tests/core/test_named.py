"""What tasks name by what they print: `--block-on known`."""

import msgspec
import pytest

from tercel.core.conditions import Verdict
from tercel.core.model import BlockRule
from tercel.core.naming import EACH_MOST, HOSTS_MOST, Named
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


def clear_all(stage: Stage, code: int = 0, tester: str = "") -> None:
    """All that is waited for has cleared; what goes on ends so."""
    for _ in range(30):
        stage.play("wait 10s")
        for one in list(stage.machine.conditions.values()):
            if one.probe:
                stage.machine.on_tested(one.probe, Verdict(True), stage.now)
        stage.play("wait 0s")
        tell_all(stage, code, tester)


def waited_for(stage: Stage) -> set[str]:
    return {one.row.tester for one in stage.machine.conditions.values()}


def test_however_many_things_tasks_name_they_wait_for_few() -> None:
    """Each writes to its own directory, of one full disk. There was a condition for each, and a probe."""
    stage = played("worker w1 joins cpus=400", "submit 1 tasks=0-299")
    ruled(stage, "known; every 10s for 1h")
    assert tell_all(stage, 1, "disk:/scratch/run-{}>=1G") == 300
    assert len(stage.machine.conditions) == EACH_MOST
    assert blocked(stage) == [(0, 299)]
    assert {one.count for one in stage.machine.conditions.values()} == {300 // EACH_MOST}
    clear_all(stage)
    assert 1 not in stage.machine.jobs


def test_what_was_mended_long_ago_stands_for_nothing_else() -> None:
    stage = played("worker w1 joins cpus=60", "submit 1 tasks=0-119")
    ruled(stage, "known; every 10s for 1h")
    tell_all(stage, 1, "https://a.lab/{}.dat<500")
    assert {tester.split("/")[2] for tester in waited_for(stage)} == {"a.lab"}
    stage.play("hold 1.60-119")
    clear_all(stage)
    assert not stage.machine.conditions
    stage.play("release 1")
    tell_all(stage, 1, "https://b.lab/{}.dat<500")
    assert len(waited_for(stage)) == EACH_MOST
    assert {tester.split("/")[2] for tester in waited_for(stage)} == {"b.lab"}


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
    assert "disk:/other>=1G" in waited_for(stage)


@pytest.mark.parametrize(
    "name", ["tcp:{}.lab:443", "dns:{}.lab", "https://{}.lab/a<500", "ssh-auth:ada@{}.lab"]
)
def test_few_hosts_are_told_apart_and_the_oldest_makes_room(name: str) -> None:
    named = Named()
    waited: set[str] = set()

    def chosen(number: int) -> str:
        tester = named.chosen(name.format(f"h{number}"), number, waited.__contains__)
        waited.add(tester)
        return tester

    first = [chosen(number) for number in range(HOSTS_MOST)]
    assert first == [name.format(f"h{number}") for number in range(HOSTS_MOST)]
    assert [chosen(number) for number in range(100, 110)] == first[:10], (
        "one after the other stands for the new ones"
    )
    waited.clear()
    assert chosen(200) == name.format("h200"), "nobody waits for the oldest any more"
    assert chosen(201) == name.format("h201")
    assert named.chosen("file:/a", 0, waited.__contains__) == "file:/a", "of another kind there is room"


@pytest.mark.parametrize(
    "name",
    ["database:postgresql://{}.lab:5432/x", "database:mysql://{}.lab", "tcp:{}.lab:443", "ssh:{}.lab:22"],
)
def test_servers_of_one_kind_are_told_apart(name: str) -> None:
    named = Named()
    testers = [name.format(f"h{number}") for number in range(2 * EACH_MOST)]
    assert [named.chosen(tester, 0, lambda _: True) for tester in testers] == testers


def test_who_waits_for_what_others_have_named_is_not_given_up_with_that() -> None:
    stage = played("worker w1 joins cpus=5", "submit 1 tasks=0-4")
    ruled(stage, "known; every 10s for 1h")
    tell_all(stage, 1, "disk:/d{}>=1G")
    (first,) = [one for one in stage.machine.conditions.values() if one.row.tester == "disk:/d0>=1G"]
    assert first.count == 2, "its own task, and one that named another"
    stage.machine.on_fail_condition(first, "enough", stage.now)
    stage.play("wait 0s")
    job = stage.machine.jobs[1]
    assert (list(job.failed), list(job.flights)) == ([0], [4])
    tell_all(stage, 1, "disk:/d{}>=1G")
    assert "disk:/d4>=1G" in waited_for(stage), "there is room for it now"
