"""Quarantine and reservations in the whole machine, where no story tells it."""

import random
from collections.abc import Callable

import pytest

from tercel.core.accounts import Settings
from tercel.core.changes import Blamed, Change, Loaded, Reopened, WorkerSet
from tercel.core.effects import Offered
from tercel.core.flights import Flight
from tercel.core.invariants import violations
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Needs, QueueRow
from tercel.core.presence import Reservation, WorkerInfo, WorkerRow, WorkerState
from tercel.core.reports import End, Report

Ends = Callable[[Flight], int]
"""With which exit code a task ends."""


def row(id: int, tasks: int, owner: str = "ada", **spec: object) -> JobRow:
    return JobRow(
        id=id,
        owner=owner,
        spec=JobSpec(argv=("x",), **spec),  # type: ignore[arg-type]
        ranges=((0, tasks - 1),),
        max_running=0,
        submitted_at=0.0,
    )


class Pool:
    """Workers of one slot that report what they hold, one after the other."""

    def __init__(self, *names: str, loaded: Loaded | None = None) -> None:
        self.now = 0.0
        self.machine = Machine(Settings(), loaded or Loaded(1, 1, [], [], []), 0.0)
        self.changes: list[Change] = []
        self.tried: dict[str, int] = {}
        """How many tasks each worker ran."""
        for name in names:
            self.join(name)

    def join(self, name: str, tags: tuple[str, ...] = (), site: str = "") -> None:
        info = WorkerInfo(node=name, capacity=Needs(1000, 0), tags=tags, site=site)
        self.machine.on_hello(name, "1", info, [], self.now)

    def play(self, ends: Ends, steady: bool = False) -> None:
        """Until nothing is under way. `steady`: all tasks take equally long."""
        rng = random.Random(1)
        while True:
            self.now += 1.0
            self.machine.tick(self.now)
            self.machine.round()
            changes, _ = self.machine.take()
            self.changes += changes
            assert violations(self.machine) == []
            busy = [worker for worker in self.machine.workers.values() if worker.flights]
            if not busy:
                return
            for worker in busy:
                if not steady and rng.random() < 0.3:
                    continue
                self.tried[worker.id] = self.tried.get(worker.id, 0) + 1
                flight = next(iter(worker.flights.values()))
                ids = (flight.job.id, flight.task, flight.attempt)
                report = Report(*ids, End.EXITED, ends(flight), self.now, 10.0, 0.0, 0)
                self.machine.on_reports(worker.id, [report], self.now)

    def offered(self) -> set[str]:
        self.machine.tick(self.now)
        self.machine.round()
        changes, effects = self.machine.take()
        self.changes += changes
        return {effect.leases[0].worker for effect in effects if isinstance(effect, Offered)}


def failed_at(name: str) -> Ends:
    return lambda flight: flight.worker.id == name


# -- quarantine -------------------------------------------------------------------------------------------


@pytest.mark.must("b")
@pytest.mark.parametrize("retries", [0, 2])
def test_a_broken_worker_fails_nobodys_task(retries: int) -> None:
    pool = Pool("w1", "w2", "w3", "bad")
    pool.machine.on_accepted(row(1, 200, retries=retries))
    pool.play(failed_at("bad"))
    assert pool.machine.jobs == {}
    ended = [change for change in pool.changes if type(change).__name__ == "JobEnded"]
    assert [(end.finished, end.failed) for end in ended] == [(200, 0)]  # type: ignore[attr-defined]
    assert "quarantined" not in pool.machine.workers["w1"].row.quarantined
    assert pool.machine.workers["bad"].row.quarantined.startswith("failed ")
    assert pool.tried["bad"] <= 10


def test_nobody_is_quarantined_for_a_job_that_fails_everywhere() -> None:
    pool = Pool("w1", "w2", "w3")
    pool.machine.on_accepted(row(1, 100))
    pool.play(lambda _: 1)
    assert all(not worker.row.quarantined for worker in pool.machine.workers.values())
    assert not any(isinstance(change, Reopened) for change in pool.changes)


def test_tasks_that_fail_elsewhere_as_well_fail_for_good_and_clear_the_worker() -> None:
    """Every fourth is bad, and one worker happens to get all of those."""
    pool = Pool("w1", "w2", "w3", "w4")
    pool.machine.on_accepted(row(1, 100))
    pool.play(lambda flight: flight.task % 4 == 3, steady=True)
    ended = next(change for change in pool.changes if type(change).__name__ == "JobEnded")
    assert (ended.finished, ended.failed) == (75, 25)  # type: ignore[union-attr]
    assert all(not worker.row.quarantined for worker in pool.machine.workers.values())


def test_a_worker_that_runs_other_jobs_well_is_only_kept_from_the_one_it_fails() -> None:
    pool = Pool("w1", "w2", "w3", "w4", "odd")
    pool.machine.on_queue_set(QueueRow(name="bob", weight=2.0))
    pool.machine.on_accepted(row(1, 100))
    pool.machine.on_accepted(row(2, 200, owner="bob"))
    pool.play(lambda flight: flight.worker.id == "odd" and flight.job.id == 1)
    assert not pool.machine.workers["odd"].row.quarantined
    assert pool.tried["odd"] > 20
    assert [change.job for change in pool.changes if isinstance(change, Blamed)] == [1]
    ended = [change for change in pool.changes if type(change).__name__ == "JobEnded"]
    assert all(end.failed == 0 for end in ended)  # type: ignore[attr-defined]


def test_the_only_worker_that_could_run_a_job_is_not_quarantined() -> None:
    pool = Pool("w1", "w2")
    pool.join("big", tags=("gpu",))
    pool.machine.on_accepted(row(1, 50))
    pool.machine.on_accepted(row(2, 50, owner="bob", requires=("gpu",)))
    pool.play(failed_at("big"))
    worker = pool.machine.workers["big"]
    assert not worker.row.quarantined
    assert pool.machine.jobs == {}


def test_a_quarantined_worker_is_better_than_none() -> None:
    pool = Pool("w1", "w2", "w3", "bad")
    pool.machine.on_accepted(row(1, 60))
    pool.play(failed_at("bad"))
    assert pool.machine.workers["bad"].row.quarantined
    for name in ("w1", "w2", "w3"):
        pool.machine.on_bye(name, pool.now)
    worker = pool.machine.workers["bad"]
    assert (worker.row.quarantined, worker.note) == ("", "was quarantined, but no other worker is left")


def test_a_retry_that_a_bad_worker_spent_is_given_back() -> None:
    """Tasks wait for long between tries, so that the bad one is found before they are tried again."""
    pool = Pool("w1", "w2", "w3", "bad")
    pool.machine.on_accepted(row(1, 100, retries=1, backoff_s=1000.0))
    failed: set[int] = set()

    def ends(flight: Flight) -> int:
        failed.update({flight.task} if flight.worker.id == "bad" else ())
        return flight.worker.id == "bad"

    pool.play(ends)
    assert failed
    assert pool.machine.jobs[1].failures == {}
    assert {task for c in pool.changes if isinstance(c, Blamed) for task, _ in c.attempts} == failed


@pytest.mark.K(13)
def test_a_machine_that_is_restarted_by_a_cleanup_is_no_fault_of_its_worker() -> None:
    """It loses what runs in its other slots each time."""
    pool = Pool("w1")
    machine = pool.machine
    info = WorkerInfo(node="w2", capacity=Needs(2000, 0))
    machine.on_accepted(row(1, 99))
    for instance, state in [(n, WorkerState.CLEANING) for n in range(9)] + [(9, WorkerState.AVAILABLE)]:
        machine.on_hello("w2", str(instance), info, [], pool.now)
        pool.offered()
        machine.on_started("w2", list(machine.workers["w2"].flights), pool.now)
        machine.on_presence("w2", state, info.capacity, pool.now)
        machine.on_link_closed("w2", pool.now)
    assert machine.workers["w2"].conduct.faults == {}
    machine.on_hello("w2", "10", info, [], pool.now)
    assert machine.workers["w2"].conduct.faults == {"lost": 1}


def test_a_worker_that_is_gone_for_long_comes_back_with_a_clean_slate_but_what_people_made_of_it() -> None:
    pool = Pool("w1", "w2", "w3", "bad", "old")
    machine = pool.machine
    machine.on_accepted(row(1, 60))
    pool.play(failed_at("bad"))
    machine.on_tag("bad", ["gpu"], [], pool.now)
    machine.on_quarantine("old", "ada", "", pool.now)
    for name in ("bad", "old"):
        machine.on_bye(name, pool.now)
    assert machine.rows["bad"].quarantined
    while (deadline := machine.next_deadline()) is not None and deadline < pool.now + 20_000:
        machine.tick(deadline)
    assert "bad" not in machine.workers
    assert machine.rows["bad"] == WorkerRow(name="bad", tags=("gpu",))
    assert machine.rows["old"].quarantined == "by ada"


def test_a_quarantine_of_yesterday_is_over_when_the_manager_starts_without_the_worker() -> None:
    pilot = WorkerRow(name="pilot", quarantined="failed", quarantined_at=-100_000.0, pause_s=60.0)
    person = WorkerRow(name="w1", quarantined="by ada", quarantined_at=-100_000.0)
    pool = Pool(loaded=Loaded(1, 1, [], [], [], workers=[person, pilot]))
    assert pool.machine.rows == {"w1": person}
    assert pool.machine.take()[0] == [WorkerSet(WorkerRow(name="pilot"))]


# -- tags -------------------------------------------------------------------------------------------------


def test_people_add_tags_and_take_some_away_for_as_long_as_they_like() -> None:
    pool = Pool()
    pool.join("w1", tags=("old", "big"))
    machine = pool.machine
    machine.on_tag("w1", ["gpu"], ["old"], pool.now)
    assert machine.workers["w1"].tags == {"gpu", "big"}
    pool.join("w1", tags=("old", "big", "gpu"))
    assert machine.workers["w1"].tags == {"gpu", "big"}
    machine.on_tag("w1", ["old"], ["gpu"], pool.now)
    assert machine.workers["w1"].tags == {"old", "big"}
    machine.on_tag("w1", ["gpu"], [], pool.now)
    assert machine.rows == {}


def test_a_worker_that_is_given_a_tag_runs_what_waited_for_it() -> None:
    pool = Pool("w1")
    pool.machine.on_accepted(row(1, 1, requires=("gpu",)))
    assert pool.offered() == set()
    pool.machine.on_tag("w1", ["gpu"], [], pool.now)
    assert pool.offered() == {"w1"}


def test_a_second_quarantine_without_a_reason_keeps_the_first() -> None:
    machine = Pool("a").machine
    machine.on_quarantine("a", "ada", "loud", 1.0)
    machine.on_quarantine("a", "bob", "", 2.0)
    assert machine.row_of("a").quarantined == "by ada: loud"
    machine.on_quarantine("a", "bob", "hot", 3.0)
    assert machine.row_of("a").quarantined == "by bob: hot"


def test_a_quarantine_by_hand_keeps_the_evidence_of_one_for_faults() -> None:
    faulty = WorkerRow(name="a", quarantined="failed 9 of 9", quarantined_at=0.0, pause_s=60.0)
    machine = Pool("a", loaded=Loaded(1, 1, [], [], [], workers=[faulty])).machine
    machine.on_quarantine("a", "ada", "", 1.0)
    assert machine.row_of("a") == WorkerRow(name="a", quarantined="by ada: failed 9 of 9", quarantined_at=1.0)


# -- reservations -----------------------------------------------------------------------------------------


def reservation(id: int = 1, until: float = 100.0, **more: object) -> Reservation:
    return Reservation(id=id, owner="root", until=until, **more)  # type: ignore[arg-type]


@pytest.mark.must("b")
def test_a_reserved_worker_runs_only_what_it_is_reserved_for() -> None:
    pool = Pool()
    pool.join("a", site="lab1")
    pool.join("b", site="lab2")
    where = 'worker.site == "lab1"'
    pool.machine.on_reserve(reservation(where=where, user="bob"), pool.now)
    pool.machine.on_accepted(row(1, 9))
    assert pool.offered() == {"b"}
    pool.machine.on_accepted(row(2, 9, owner="bob"))
    assert pool.offered() == {"a"}


def test_a_reservation_ends_by_itself() -> None:
    pool = Pool("a")
    pool.machine.on_reserve(reservation(user="bob"), pool.now)
    pool.machine.on_accepted(row(1, 9))
    assert pool.offered() == set()
    assert pool.machine.next_deadline() == 100.0
    pool.now = 100.0
    assert pool.offered() == {"a"}
    assert pool.machine.reservations == {}


def test_of_two_reservations_the_earlier_counts_until_it_ends() -> None:
    pool = Pool("a")
    machine = pool.machine
    machine.on_reserve(reservation(2, user="bob"), pool.now)
    machine.on_reserve(reservation(1, user="eve"), pool.now)
    assert machine.workers["a"].reservation == machine.reservations[1]
    machine.on_unreserve(1, pool.now)
    assert machine.workers["a"].reservation == machine.reservations[2]
    pool.join("b")
    assert machine.workers["b"].reservation == machine.reservations[2]


def test_what_is_kept_has_its_effect_after_a_restart() -> None:
    loaded = Loaded(
        2,
        1,
        [],
        [],
        [],
        workers=[WorkerRow(name="a", quarantined="failed", quarantined_at=-30.0, pause_s=60.0, tags=("x",))],
        reservations=[reservation(4, user="bob")],
    )
    pool = Pool("a", "b", loaded=loaded)
    pool.machine.on_accepted(row(1, 9, owner="bob"))
    assert pool.offered() == {"b"}
    assert pool.machine.workers["a"].tags == {"x"}
    assert pool.machine.next_reservation == 5
    pool.now = 31.0
    assert pool.offered() == {"a"}
    assert len(pool.machine.workers["a"].flights) == 1
