"""The machine: stories (scenarios/*.txt), what no story tells, and a worker that says anything at all."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.books import EPOCH_BITS, Settings
from tercel.core.changes import Concluded, LeaseClosed, Leased, LiveJob, Loaded
from tercel.core.effects import Acknowledged, Effect, Offered, Welcomed
from tercel.core.intervals import IntervalSet
from tercel.core.invariants import violations
from tercel.core.joining import FORGET_OFFLINE_S
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Lease, Needs
from tercel.core.presence import Held, WorkerInfo, WorkerState
from tercel.core.reports import End, Report

from .transcript import rewritten

STORIES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"), key=lambda path: path.name)
INFO = WorkerInfo(node="node", capacity=Needs(2000, 0))


@pytest.mark.must("b", "c", "f")
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_machine_tells_the_story_as_it_is_written(path: Path) -> None:
    told = rewritten(path)
    if os.environ.get("TERCEL_REWRITE"):
        path.write_text(told)
    assert told == path.read_text()


def row(id: int, tasks: int = 1, retries: int = 0) -> JobRow:
    spec = JobSpec(argv=("x",), retries=retries)
    return JobRow(id=id, owner="ada", spec=spec, ranges=((0, tasks - 1),), max_running=0, submitted_at=0.0)


def machine(
    *, epoch: int = 1, jobs: list[LiveJob] | None = None, leases: list[Lease] | None = None
) -> Machine:
    return Machine(Settings(grace_s=60.0), Loaded(epoch, 1, jobs or [], leases or [], []), 0.0)


def played(machine: Machine) -> list[Effect]:
    machine.round()
    assert violations(machine) == []
    return machine.take()[1]


def finished(attempt: int, task: int = 0, job: int = 1) -> Report:
    return Report(job, task, attempt, End.EXITED, 0, 0.0, 10.0, 0.0, 0)


# -- what no story tells -----------------------------------------------------------------------------------


def test_attempt_ids_of_a_later_epoch_are_larger_whatever_came_before() -> None:
    firsts = []
    for epoch in (1, 2, 7):
        one = machine(epoch=epoch)
        one.on_hello("w", "1", INFO, [], 0.0)
        one.on_accepted(row(1))
        (lease,) = [lease for effect in played(one) if isinstance(effect, Offered) for lease in effect.leases]
        firsts.append(lease.id)
    assert firsts == sorted(firsts)
    assert [id >> EPOCH_BITS for id in firsts] == [1, 2, 7]


def test_two_hellos_that_share_a_commit_are_told_apart() -> None:
    """What is due after the first Welcome belongs to the first link, and must not be sent on the second."""
    one = machine()
    one.on_accepted(row(1))
    first = one.on_hello("w", "1", INFO, [], 0.0)
    one.round()
    second = one.on_hello("w", "1", INFO, [], 0.0)
    effects = played(one)
    assert first != second
    order = [effect for effect in effects if isinstance(effect, Welcomed | Offered)]
    assert [effect.hello for effect in order if isinstance(effect, Welcomed)] == [first, second]
    stale, fresh = [lease.id for effect in order if isinstance(effect, Offered) for lease in effect.leases]
    assert order.index(Welcomed("w", [], second)) == 2, "between the two: the stale offer"
    assert [flight.attempt for flight in one.workers["w"].flights.values()] == [fresh] != [stale]


def test_an_acknowledgement_is_made_even_if_the_report_means_nothing() -> None:
    one = machine()
    one.on_hello("w", "1", INFO, [], 0.0)
    played(one)
    one.on_reports("w", [finished(5, job=77)], 0.0)
    assert played(one) == [Acknowledged("w", [5])]


def test_a_worker_that_is_gone_is_shown_for_a_while_and_then_forgotten() -> None:
    one = machine()
    one.on_hello("w", "1", INFO, [], 0.0)
    one.on_link_closed("w", 10.0)
    assert one.next_deadline() == 70.0
    one.tick(70.0)
    assert "w" in one.workers
    one.tick(70.0 + FORGET_OFFLINE_S)
    assert "w" not in one.workers
    assert one.next_deadline() is None


def test_a_worker_that_came_back_is_not_forgotten_at_its_old_deadline() -> None:
    one = machine()
    one.on_hello("w", "1", INFO, [], 0.0)
    one.on_link_closed("w", 10.0)
    one.on_hello("w", "1", INFO, [], 20.0)
    one.tick(10_000.0)
    assert one.workers["w"].online


def test_the_report_of_a_forgotten_worker_is_still_taken() -> None:
    one = machine()
    one.on_hello("w", "1", INFO, [], 0.0)
    one.on_accepted(row(1))
    (lease,) = [lease for effect in played(one) if isinstance(effect, Offered) for lease in effect.leases]
    assert one.knows("w", lease.id)
    one.on_link_closed("w", 0.0)
    one.tick(60.0)
    one.tick(60.0 + FORGET_OFFLINE_S)
    assert "w" not in one.workers
    one.on_hello("w", "2", INFO, [Held(1, 0, lease.id, True, True)], 9000.0)
    assert one.knows("w", lease.id)
    one.on_reports("w", [finished(lease.id)], 9000.0)
    one.round()
    changes, _ = one.take()
    assert [type(change) for change in changes[:2]] == [LeaseClosed, Concluded]
    assert not one.knows("w", lease.id)


def _rivals() -> tuple[Machine, int, int]:
    """Attempts of one task at v, given up as lost, and at w, which is away since 70 and may never have heard of it."""
    one = machine()
    one.on_accepted(row(1))
    attempts = []
    for worker, now in (("v", 0.0), ("w", 65.0)):
        one.on_hello(worker, "1", INFO, [], now)
        attempts += [
            lease.id for effect in played(one) if isinstance(effect, Offered) for lease in effect.leases
        ]
        one.on_link_closed(worker, now + 5.0)
        one.tick(65.0)
    return one, *attempts


def _returned(one: Machine, attempt: int) -> list[int]:
    """v is back and still runs the attempt. Returns what it is to drop."""
    one.on_hello("v", "1", INFO, [Held(1, 0, attempt, True, False)], 80.0)
    (drop,) = [effect.drop for effect in played(one) if isinstance(effect, Welcomed)]
    return drop


def test_an_attempt_that_runs_is_not_dropped_for_one_whose_worker_is_away() -> None:
    one, old, new = _rivals()
    assert _returned(one, old) == []
    assert one.jobs[1].flights[0].attempt == old
    one.on_hello("w", "1", INFO, [Held(1, 0, new, True, False)], 90.0)
    assert [effect.drop for effect in played(one) if isinstance(effect, Welcomed)] == [[new]]
    assert violations(one) == []


@pytest.mark.parametrize(("now", "who"), [(100.0, "w"), (131.0, "v")], ids=["within its grace", "after it"])
def test_what_gave_way_counts_again_if_the_other_ends_without_a_result(now: float, who: str) -> None:
    one, old, _ = _rivals()
    _returned(one, old)
    one.tick(now)
    one.on_reports("v", [Report(1, 0, old, End.INTERRUPTED, 0, 0.0, 1.0, 0.0, 0)], now)
    played(one)
    assert one.jobs[1].flights[0].worker.id == who
    assert violations(one) == []


def _refused(one: Machine, worker: str, now: float) -> None:
    """Job 1, by a worker that then leaves."""
    one.on_hello(worker, "1", INFO, [], now)
    (lease,) = [lease for effect in played(one) if isinstance(effect, Offered) for lease in effect.leases]
    refusal = Report(1, 0, lease.id, End.REFUSED, 0, 0.0, 0.0, 0.0, 0, note="no such directory")
    one.on_reports(worker, [refusal], now)
    one.on_bye(worker, now)


def test_refusals_of_workers_that_come_under_ever_new_names_do_not_pile_up() -> None:
    one = machine()
    one.on_accepted(row(1))
    for number in range(10):
        one.tick(number * 2 * FORGET_OFFLINE_S)
        _refused(one, f"pilot-{number}", number * 2 * FORGET_OFFLINE_S)
    assert list(one.jobs[1].refused_by) == ["pilot-9"]
    assert list(one._refusals) == ["pilot-9"]


def test_refusals_of_a_job_are_forgotten_with_it() -> None:
    one = machine()
    job = one.on_accepted(row(1))
    _refused(one, "w", 0.0)
    one.on_cancel(job, IntervalSet([(0, 0)]), "enough", 1.0)
    assert one._refusals == {"w": set()}


def test_a_worker_that_is_back_has_not_left() -> None:
    one = machine()
    one.on_hello("w", "1", INFO, [], 0.0)
    one.on_bye("w", 1.0)
    assert one.workers["w"].note == "left"
    one.on_hello("w", "2", INFO, [], 2.0)
    assert one.workers["w"].note == ""


def test_leases_without_unfinished_tasks_are_closed_at_a_restart() -> None:
    live = LiveJob(row(1, tasks=2), [(0, 0)], [], [], {})
    one = machine(
        jobs=[live], leases=[Lease(5, "w", 1, 0, 0), Lease(9, "w", 1, 1, 1), Lease(12, "w", 7, 0, 3)]
    )
    assert one.changes == [LeaseClosed(5), LeaseClosed(12)]
    assert violations(one) == []


def test_of_two_leases_of_one_task_the_newer_counts_and_the_older_may_still_report() -> None:
    leases = [Lease(9, "new", 1, 0, 0), Lease(5, "old", 1, 0, 0)]
    one = machine(epoch=2, jobs=[LiveJob(row(1), [], [], [], {})], leases=leases)
    assert one.jobs[1].flights[0].worker.id == "new"
    assert one.knows("old", 5)
    one.on_hello("old", "1", INFO, [Held(1, 0, 5, True, True)], 0.0)
    one.on_reports("old", [finished(5)], 0.0)
    one.round()
    changes, _ = one.take()
    assert one.jobs == {}
    assert {change.id for change in changes if isinstance(change, LeaseClosed)} == {5, 9}


def test_a_million_ready_tasks_are_cancelled_as_one_span() -> None:
    one = machine()
    job = one.on_accepted(row(1, tasks=1_000_000))
    assert one.on_cancel(job, job.ready.copy(), "enough", 0.0) == 1_000_000
    changes, _ = one.take()
    assert len(changes) == 2


def test_many_failures_in_one_batch_cost_one_rewriting_of_their_lease() -> None:
    one = machine()
    one.on_hello("w", "1", WorkerInfo(node="n", capacity=Needs(100_000, 0)), [], 0.0)
    one.on_accepted(row(1, tasks=100, retries=1))
    (lease,) = [lease for effect in played(one) if isinstance(effect, Offered) for lease in effect.leases]
    bad = [Report(1, task, lease.id + task, End.EXITED, 1, 0.0, 10.0, 0.0, 0) for task in range(60)]
    one.on_reports("w", bad, 0.0)
    changes, _ = one.take()
    rows = [change for change in changes if isinstance(change, Leased | LeaseClosed)]
    assert rows == [Leased(Lease(lease.id + 60, "w", 1, 60, 99)), LeaseClosed(lease.id)]


# -- a worker that says anything at all --------------------------------------------------------------------

WILD = st.integers(-5, 5) | st.integers(-(2**63), 2**64)
PICK = st.integers(0, 6) | st.integers(0, 30)
"""Of the attempts issued so far; beyond them: one that never was."""
TRULY = st.sampled_from([True, True, False])
CLAIM = st.tuples(PICK, WILD, WILD, TRULY, st.just(End.EXITED) | st.sampled_from(End))
WORD = (
    st.tuples(st.just("reports"), st.lists(CLAIM, min_size=1, max_size=6))
    | st.tuples(st.sampled_from(["starts", "returns"]), st.lists(PICK, max_size=5))
    | st.tuples(st.just("holds"), st.lists(CLAIM, max_size=4))
    | st.tuples(st.just("gives"), st.integers(0, 9000))
    | st.tuples(
        st.sampled_from(["loses its link", "says bye", "waits", "honest work", "honest loss"]), st.none()
    )
)


class LyingWorld:
    """An honest worker and a liar, at one manager."""

    def __init__(self) -> None:
        self.now = 0.0
        self.machine = machine()
        self.issued: list[Lease] = []
        self.concluded: dict[tuple[int, int], str] = {}
        for name in ("honest", "liar"):
            self.machine.on_hello(name, "1", INFO, [], self.now)
        self.machine.on_accepted(row(1, tasks=12, retries=1))
        self.machine.on_accepted(row(2, tasks=4))
        self.play()

    def play(self) -> None:
        self.machine.tick(self.now)
        self.machine.round()
        assert violations(self.machine) == []
        changes, _ = self.machine.take()
        for change in changes:
            if isinstance(change, Leased):
                self.issued.append(change.lease)
            if isinstance(change, Concluded):
                report = change.outcome.report
                task = report.job, report.task
                assert task not in self.concluded, "one result per task"
                self.concluded[task] = change.outcome.worker
                assert self.owner(report.attempt) == (change.outcome.worker, *task), (
                    "only of what it was given"
                )

    def owner(self, attempt: int) -> tuple[str, int, int] | None:
        for lease in self.issued:
            if lease.id <= attempt <= lease.id + lease.last - lease.first:
                return lease.worker, lease.job, lease.first + attempt - lease.id
        return None

    def attempt(self, pick: int) -> tuple[int, int, int]:
        """An attempt that was issued to anybody, with its job and task; or one that never was."""
        all_ = [
            (lease.id + at, lease.job, lease.first + at)
            for lease in self.issued
            for at in range(lease.last - lease.first + 1)
        ]
        return all_[pick] if pick < len(all_) else (pick << 40, 1, pick)

    def claim(self, pick: int, job: int, task: int, truly: bool, end: End) -> Report:
        attempt, its_job, its_task = self.attempt(pick)
        return Report(
            its_job if truly else job, its_task if truly else task, attempt, end, 0, 0.0, 1.0, 0.0, 0
        )

    def say(self, what: str, argument: object) -> None:
        machine, now = self.machine, self.now
        online = "liar" in machine.workers and machine.workers["liar"].online
        match what, argument:
            case "holds", list(claims):
                reports = [self.claim(*claim) for claim in claims]
                held = [Held(r.job, r.task, r.attempt, r.code == 0, r.end is End.EXITED) for r in reports]
                machine.on_hello("liar", "1", INFO, held, now)
            case "waits", _:
                self.now += 70.0
            case "honest loss", _ if machine.workers["honest"].online:
                machine.on_link_closed("honest", now)
                self.now += 61.0
            case "honest work", _:
                if not machine.workers["honest"].online:
                    machine.on_hello("honest", "1", INFO, [], now)
                flights = list(machine.workers["honest"].flights.values())
                machine.on_reports("honest", [finished(f.attempt, f.task, f.job.id) for f in flights], now)
            case _ if not online:
                return
            case "reports", list(claims):
                machine.on_reports("liar", [self.claim(*claim) for claim in claims], now)
            case "starts", list(picks):
                machine.on_started("liar", [self.attempt(pick)[0] for pick in picks], now)
            case "returns", list(picks):
                machine.on_returned("liar", [self.attempt(pick)[0] for pick in picks])
            case "gives", int(millicpus):
                machine.on_presence("liar", WorkerState.AVAILABLE, Needs(millicpus, 0), now)
            case "loses its link", _:
                machine.on_link_closed("liar", now)
            case "says bye", _:
                machine.on_bye("liar", now)


@pytest.mark.must("f")
@settings(max_examples=400, deadline=None)
@given(st.lists(WORD, max_size=30))
def test_whatever_a_worker_says_the_books_are_right_and_others_tasks_are_not_touched(words: list) -> None:
    world = LyingWorld()
    for what, argument in words:
        world.say(what, argument)
        world.play()
    # The liar is shown the door, and everything ends all the same.
    if world.machine.workers["liar"].online:
        world.say("says bye", None)
    for _ in range(60):
        world.play()
        world.say("waits", None)
        world.say("honest work", None)
    assert world.machine.jobs == {}
    assert len(world.concluded) == 16
