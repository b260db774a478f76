"""What happens to blocked tasks where two things meet. (The plain course of things is told in scenarios/blocked*.txt.)"""

import msgspec
import pytest

from tercel.core.accounts import Settings
from tercel.core.blocked import Condition
from tercel.core.blocking import parse_rule
from tercel.core.changes import Noted
from tercel.core.conditions import FIRST_WAVE, Verdict
from tercel.core.intervals import IntervalSet
from tercel.core.machine import Machine
from tercel.core.model import BlockRule
from tercel.core.reports import End, Report
from tercel.core.throttles import Rate, Rates, Throttle

from .transcript import Stage

LICENCE = "block=exit:75>tcp:licence:1;every_10s_for_1h"
NIGHT = "block=start>time:22:00-06:00@manager;every_1m_for_2d"


def played(*events: str, rates: Rates | None = None) -> Stage:
    stage = Stage()
    if rates is not None:
        stage.machine = Machine(Settings(grace_s=60.0, rates=rates), stage.store.load(), stage.now)
    for event in events:
        stage.play(event)
    return stage


def condition(stage: Stage, id: int = 1) -> Condition:
    return stage.machine.conditions[id]


def blocked(stage: Stage, job: int = 1) -> list[tuple[int, int]]:
    return stage.machine.jobs[job].blocked.ranges()


# -- asked before it starts --------------------------------------------------------------------------------


def test_what_was_held_is_asked_about_when_it_is_released() -> None:
    stage = played("worker w1 joins cpus=4", f"submit 1 tasks=0-2 {NIGHT}")
    stage.play("hold 1")
    assert not stage.machine.conditions
    told = stage.play("release 1")
    assert blocked(stage) == [(0, 2)]
    assert not [line for line in told if "offer" in line]


def test_the_history_names_what_a_task_waits_for_before_it_starts() -> None:
    stage = played("worker w1 joins cpus=4", "submit 1 tasks=0", f"submit 2 tasks=0 after=ok:1 {NIGHT}")
    (flight,) = stage.machine.workers["w1"].flights.values()
    report = Report(1, 0, flight.attempt, End.EXITED, 0, stage.now, 0.0, 0.0, 0, "")
    stage.machine.on_reports("w1", [report], stage.now)
    notes = [change.note for change in stage.machine.changes if isinstance(change, Noted)]
    assert notes[-1] == "before it starts, on time:22:00-06:00"


def test_a_retry_after_a_pause_is_not_asked_about_again() -> None:
    """It was let go once: a failure of its own is no reason to wait for the night."""
    stage = played(
        "worker w1 joins cpus=4",
        f"submit 1 tasks=0 retries=2 backoff=5 {NIGHT}",
        "C1 cleared",
        "w1 reports 1.0a exit 3",
    )
    told = stage.play("wait 5s")
    assert not stage.machine.conditions
    assert [line for line in told if "offer" in line]


def test_what_was_seen_is_known_of_the_fault_of_a_task_that_was_held_meanwhile() -> None:
    rule = parse_rule("stderr:/quota/ -> tcp:store:1 @site; every 10s for 1h")
    stage = played("worker w1 joins cpus=4", "submit 1 tasks=0")
    job = stage.machine.jobs[1]
    stage.machine.revise(job, msgspec.structs.replace(job.row.spec, block_on=(rule,)))
    stage.play("hold 1")
    (flight,) = stage.machine.workers["w1"].flights.values()
    report = Report(1, 0, flight.attempt, End.EXITED, 1, stage.now, 0.0, 0.0, 0, matched=(rule.on,))
    report = msgspec.structs.replace(report, seen=("cp: the quota is exceeded",))
    stage.machine.on_reports("w1", [report], stage.now)
    ((fault, _),) = job.postponed.values()
    assert fault.context == ("stderr:/quota/", "cp: the quota is exceeded")
    stage.machine.take()
    stage.machine.on_release(job, IntervalSet([(0, 0)]), stage.now)
    (note,) = [change.note for change in stage.machine.changes if isinstance(change, Noted)][-1:]
    assert note == "stderr:/quota/; cp: the quota is exceeded, on tcp:store:1"


# -- giving up ---------------------------------------------------------------------------------------------


def test_giving_up_one_job_may_end_another_that_waits_for_the_same() -> None:
    """`on_failure = stop`: the manager must not stumble over the second one, now or after a restart."""
    flow = "flow=1 on-failure=stop"
    stage = played(
        "worker w1 joins cpus=4",
        f"submit 1 tasks=0 {flow} {LICENCE}",
        f"submit 2 tasks=0 {flow} {LICENCE}",
        "w1 reports 1.0a exit 75",
        "w1 reports 2.0a exit 75",
    )
    stage.play("fail C1 no licences this year")
    assert not stage.machine.conditions
    assert not stage.machine.jobs


def test_what_the_last_test_cleared_is_not_given_up() -> None:
    stage = played(
        "worker w1 joins cpus=100", "submit 1 tasks=0-49 block=exit:75>tcp:licence:1;every_10s_for_1m"
    )
    for task in range(50):
        stage.play(f"w1 reports 1.{task}a exit 75")
    for _ in range(5):
        stage.play("wait 10s")
        stage.play("C1 not cleared: refused")
    stage.play("wait 10s")
    stage.play("C1 cleared")
    assert not stage.machine.jobs[1].failed
    stage.play("wait 5s")
    stage.play("C1 cleared")
    assert not stage.machine.jobs[1].failed


def test_the_time_in_which_nobody_could_be_asked_does_not_count() -> None:
    stage = played(
        "worker w1 joins cpus=4", f"submit 1 tasks=0 {LICENCE}", "w1 reports 1.0a exit 75", "w1 says bye"
    )
    stage.play("wait 90000s")
    stage.play("worker w2 joins cpus=4")
    stage.play("C1 not cleared: refused")
    assert blocked(stage) == [(0, 0)], "an hour's patience is not over after one test"


# -- paused ------------------------------------------------------------------------------------------------


def test_what_is_paused_is_not_tested_by_whoever_joins() -> None:
    stage = played(
        "worker w1 joins cpus=4", f"submit 1 tasks=0 {LICENCE}", "w1 reports 1.0a exit 75", "w1 says bye"
    )
    stage.play("wait 20s")
    stage.play("pause C1")
    stage.play("wait 90000s")
    told = stage.play("worker w2 joins cpus=4")
    assert not [line for line in told if "probe" in line]
    assert blocked(stage) == [(0, 0)]
    assert [line for line in stage.play("resume C1") if "probe" in line]


def test_what_is_paused_while_it_is_tested_is_not_given_up_by_that_test() -> None:
    stage = played(
        "worker w1 joins cpus=4",
        "submit 1 tasks=0 block=exit:75>tcp:licence:1;every_10s_at_most_1_tests",
        "w1 reports 1.0a exit 75",
        "wait 10s",
        "pause C1",
        "C1 not cleared: refused",
    )
    assert blocked(stage) == [(0, 0)]


# -- who is asked, how often -------------------------------------------------------------------------------


def test_who_does_not_answer_is_not_asked_again() -> None:
    stage = played(*(f"worker w{n} joins cpus=1" for n in range(3)), f"submit 1 tasks=0 {LICENCE}")
    stage.play("w0 reports 1.0a exit 75")
    stage.play("wait 10s")
    asked = {stage.machine.asked_of(condition(stage).probe)}
    for _ in range(2):
        stage.play("wait 45s")
        asked.add(stage.machine.asked_of(condition(stage).probe))
    assert asked == {"w0", "w1", "w2"}


def test_when_a_site_is_gone_another_is_asked() -> None:
    stage = played(
        "worker w1 joins cpus=1 site=eph", f"submit 1 tasks=0 {LICENCE}", "w1 reports 1.0a exit 75"
    )
    stage.play("w1 loses its link")
    stage.play("worker w2 joins cpus=1 site=lab")
    stage.play("wait 30s")
    assert not condition(stage).probe, "somebody of that site may come back"
    stage.play("wait 60s")
    assert stage.machine.asked_of(condition(stage).probe) == "w2"


def test_a_tester_is_not_obeyed_that_asks_to_be_left_alone_for_years() -> None:
    stage = played("worker w1 joins cpus=1", f"submit 1 tasks=0-29 {NIGHT}")
    stage.machine.on_tested(condition(stage).probe, Verdict(False, not_before_s=1e9), stage.now)
    stage.play("wait 0s")
    assert condition(stage).row.next_test_at == stage.now + 3600.0


def test_a_throttle_of_releases_is_waited_for_as_long_as_it_takes() -> None:
    stage = played(
        "worker w1 joins cpus=100",
        "submit 1 tasks=0-29 block=start>time:22:00-06:00@manager;every_1m_for_2d",
        "C1 cleared",
        rates=Rates(releases=Rate(10, 600.0)),
    )
    assert len(stage.machine.jobs[1].blocked) == 20
    stage.play("wait 1s")
    stage.play("C1 cleared")
    assert len(stage.machine.jobs[1].blocked) == 20
    assert condition(stage).row.next_test_at == pytest.approx(1600.0)
    stage.play("wait 600s")
    stage.play("C1 cleared")
    assert len(stage.machine.jobs[1].blocked) == 10


def test_who_asks_not_to_be_asked_for_a_while_is_not_also_if_it_has_cleared() -> None:
    stage = played("worker w1 joins cpus=1", f"submit 1 tasks=0-29 {NIGHT}")
    stage.machine.on_tested(condition(stage).probe, Verdict(True, not_before_s=77.0), stage.now)
    stage.play("wait 0s")
    assert condition(stage).row.next_test_at == stage.now + 77.0


def test_keys_of_a_throttle_that_nothing_was_granted_to_lately_take_no_room() -> None:
    throttle: Throttle[int] = Throttle(Rate(10, 1.0))
    for key in range(10_000):
        throttle.take(key, 1, key * 0.1)
    assert len(throttle._granted) < 200


# -- one condition -----------------------------------------------------------------------------------------


def test_one_that_is_remembered_does_not_make_a_newer_one_forgotten() -> None:
    stage = played("worker w1 joins cpus=4", f"submit 1 tasks=0-1 {LICENCE}", "w1 reports 1.0a exit 75")
    first = condition(stage)
    stage.play("wait 10s")
    stage.play("C1 cleared")  # 1.0 is let go; the condition is remembered
    row = msgspec.structs.replace(first.row, id=7, closed_at=None)
    newer = stage.machine.adopt_condition(row, stage.now)
    stage.machine._none_out(first, stage.machine.jobs[1])
    assert stage.machine._known[row.key] is newer


def test_what_waits_for_a_condition_that_is_not_known_is_ready_after_a_restart() -> None:
    stage = played("worker w1 joins cpus=4", f"submit 1 tasks=0-1 {LICENCE}", "w1 reports 1.0a exit 75")
    loaded = stage.store.load()
    torn = msgspec.structs.replace(loaded, conditions=[])
    machine = Machine(Settings(), torn, stage.now)
    assert 0 in machine.jobs[1].ready


def test_a_newcomer_relieves_only_jobs_that_it_can_run() -> None:
    stage = played(
        "worker w1 joins cpus=4 mem=9000",
        "submit 1 tasks=0 mem=8000 cwd=/data",
        "submit 2 tasks=0 mem=10 cwd=/data",
        "w1 reports 1.0a interrupted no room errno=ENOSPC",
        "w1 reports 2.0a interrupted no room errno=ENOSPC",
    )
    assert blocked(stage) == blocked(stage, 2) == [(0, 0)]
    stage.play("worker w2 joins cpus=4 mem=100")
    assert blocked(stage) == [(0, 0)]
    assert not blocked(stage, 2)


# -- other rules -------------------------------------------------------------------------------------------


def test_new_rules_let_go_what_waits_by_old_ones() -> None:
    stage = played("worker w1 joins cpus=1", f"submit 1 tasks=0-1 {LICENCE}", "w1 reports 1.0a exit 75")
    assert blocked(stage) == [(0, 0)]
    told = stage.play("revise 1 block=exit:75>tcp:licence:2;every_10s_for_1h")
    assert not blocked(stage)
    assert "+ C1 closed: the job's rules were changed" in told
    stage.play("w1 reports 1.1a exit 75")
    assert [one.row.tester for one in stage.machine.conditions.values()] == ["tcp:licence:2"]


def test_rules_that_are_still_there_go_on_as_before() -> None:
    stage = played("worker w1 joins cpus=1", f"submit 1 tasks=0-1 {LICENCE}", "w1 reports 1.0a exit 75")
    stage.play(f"revise 1 {LICENCE},exit:9>tcp:x:1;every_10s_for_1h")
    assert blocked(stage) == [(0, 0)]


def test_what_asks_about_a_switch_hears_at_once_that_it_is_on() -> None:
    stage = played(
        "switch app=matlab off",
        "worker w1 joins cpus=1",
        "submit 1 tasks=0 block=start>enabled:app=matlab@here;every_1h_for_2d",
    )
    assert blocked(stage) == [(0, 0)]
    assert [line for line in stage.play("switch app=matlab on") if "offer" in line]


@pytest.mark.T(9)
@pytest.mark.parametrize(
    ("quota", "options"),
    [
        ("queue=chem<2", "queue=chem"),
        ("user=ada<2", ""),
        ("node=w1<2", ""),
        ("resource=gpus<2", "gpus=1"),
        ("resource=licence.matlab<2", "resources=licence.matlab:1"),
    ],
)
def test_a_quota_of_every_kind_counts_what_is_under_way(quota: str, options: str) -> None:
    stage = played(
        "worker w1 joins cpus=9 gpus=9 resources=licence.matlab:9",
        f"submit 1 tasks=0-4 {options} block=start>quota:{quota}@here",
    )
    assert len(stage.machine.jobs[1].flights) == 2
    stage.play("wait 300000s")
    assert (len(stage.machine.jobs[1].blocked), len(stage.machine.jobs[1].failed)) == (3, 0), "never rejected"
    stage.play("w1 reports 1.0a exit 0")
    stage.play("wait 60s")
    assert len(stage.machine.jobs[1].flights) == 2


@pytest.mark.T(9)
def test_a_floating_licence_is_counted_wherever_and_by_whomever_it_is_held() -> None:
    """There are five. Each worker says so, for tasks may hold all of them there."""
    licences = "resources=licence.matlab:5"
    stage = played(
        f"worker w1 joins cpus=2 {licences}",
        f"worker w2 joins cpus=9 {licences}",
        "submit 1 tasks=0 resources=licence.matlab:2",
        "submit 2 tasks=0-4 resources=licence.matlab:1 block=start>quota:resource=licence.matlab<5@here;every_1m",
    )

    def under_way() -> int:
        return len(stage.machine.jobs[2].flights)

    assert all(worker.flights for worker in stage.machine.workers.values())
    assert under_way() == 3
    stage.play("wait 60s")
    assert condition(stage).row.note == "5 of 5 under way"
    assert under_way() == 3
    (flight,) = stage.machine.jobs[1].flights.values()
    stage.play(f"{flight.worker.id} reports 1.0a exit 0")
    stage.play("wait 60s")
    assert under_way() == 5


@pytest.mark.T(8)
@pytest.mark.parametrize("what", ["worker=w1", "node=w1", "site=lab"])
def test_tasks_wait_while_a_worker_that_they_ask_about_takes_nothing(what: str) -> None:
    stage = played(
        "worker w1 joins cpus=1 site=lab",
        "quarantine w1 broken",
        "worker w2 joins cpus=1",
        f"submit 1 tasks=0 block=start>enabled:{what}@here",
    )
    assert blocked(stage) == [(0, 0)]
    stage.play("release worker w1")
    stage.play("wait 60s")
    assert not blocked(stage)


# -- workers to come ---------------------------------------------------------------------------------------


def test_who_waits_for_a_worker_goes_when_it_comes() -> None:
    gpu = "block=start>worker:worker.gpus>=1@here;every_1h_for_2d"
    stage = played("worker w1 joins cpus=4", f"submit 1 tasks=0 {gpu}")
    assert blocked(stage) == [(0, 0)]
    tests = condition(stage).row.tests
    for number in range(5):
        stage.play(f"worker plain{number} joins cpus=1")
    assert condition(stage).row.tests == tests, "who is not the one is no test"
    stage.play("worker w2 joins cpus=1 gpus=1")
    assert not stage.machine.conditions
    told = stage.play("worker w3 joins cpus=1 gpus=1")
    assert not [line for line in told if "C1" in line], "nobody waits for it any more"


def test_many_workers_that_come_together_do_not_hurry_the_waves() -> None:
    gpu = "block=start>worker:worker.gpus>=1@here;every_1h_for_2d"
    stage = played("worker w1 joins cpus=1", f"submit 1 tasks=0-99 {gpu}")
    for number in range(5):
        stage.play(f"worker gpu{number} joins cpus=1 gpus=1")
    assert len(stage.machine.jobs[1].blocked) == 100 - FIRST_WAVE


# -- clocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["C1 not cleared: refused", "pause C1"])
def test_a_clock_that_was_set_back_while_the_manager_was_down_makes_no_test_late(last: str) -> None:
    stage = played(
        "wait 90000s",
        "worker w1 joins cpus=4",
        f"submit 1 tasks=0 {LICENCE}",
        "w1 reports 1.0a exit 75",
        "wait 10s",
        last,
    )
    before = condition(stage).row
    ran_s = stage.now - before.opened_at
    stage.now -= 3600.0
    stage.play("the manager restarts")
    row = condition(stage).row
    assert row.next_test_at - stage.now <= 10.0
    assert max(row.opened_at, row.arose_at, row.tested_at, row.paused_at) <= stage.now
    assert stage.now - row.opened_at == pytest.approx(ran_s)
    if row.paused:
        stage.play("wait 1800s")
        stage.play("resume C1")
        assert stage.now - condition(stage).row.opened_at == pytest.approx(ran_s), "pauses do not count"


# -- rules that are changed --------------------------------------------------------------------------------


def ruled(stage: Stage, *rules: str) -> None:
    job = stage.machine.jobs[1]
    stage.machine.revise(job, msgspec.structs.replace(job.row.spec, block_on=tuple(map(parse_rule, rules))))


def test_what_waits_by_what_is_known_goes_when_that_is_no_rule_any_more() -> None:
    stage = played("worker w1 joins cpus=1", "submit 1 tasks=0")
    ruled(stage, "known; every 10s for 1h", "exit:76 -> tcp:b:1 @site")
    (flight,) = stage.machine.workers["w1"].flights.values()
    report = Report(1, 0, flight.attempt, End.EXITED, 1, stage.now, 0.1, 0.0, 0)
    met = BlockRule(on="known", tester="tcp:a:1", at="site")
    stage.machine.on_reports("w1", [report], stage.now, {flight.attempt: met})
    assert condition(stage).row.tester == "tcp:a:1"
    ruled(stage, "known; every 10s for 1h")
    assert blocked(stage) == [(0, 0)], "another rule went"
    ruled(stage, "exit:76 -> tcp:b:1 @site")
    assert not stage.machine.conditions


def test_a_workers_own_fault_is_no_rules() -> None:
    stage = played("worker w1 joins cpus=1 dir=/scratch", "submit 1 tasks=0")
    ruled(stage, "known")
    (flight,) = stage.machine.workers["w1"].flights.values()
    report = Report(1, 0, flight.attempt, End.REFUSED, 0, stage.now, 0.0, 0.0, 0, "full", errno="EAGAIN")
    stage.machine.on_reports("w1", [report], stage.now)
    assert condition(stage).row.own
    notes = [change for change in stage.machine.changes if isinstance(change, Noted)]
    assert notes[-1].note.startswith("launch at w1: EAGAIN; full")
    ruled(stage)
    assert blocked(stage) == [(0, 0)]


def test_a_condition_forgets_the_jobs_that_wait_for_it_no_more() -> None:
    stage = played("worker w1 joins cpus=1", f"submit 1 tasks=0 {LICENCE}", "w1 reports 1.0a exit 75")
    one = condition(stage)
    for job in range(2, 9):
        stage.play(f"submit {job} tasks=0 {LICENCE}")
        stage.play(f"w1 reports {job}.0a exit 75")
    stage.machine.on_release_condition(one, 7, "ada", stage.now)
    assert len(one.jobs) == 1
    assert one.last.keys() <= one.jobs.keys()
