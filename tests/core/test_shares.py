"""The accounts that fair share goes by: what fades, what is charged in advance, and what is given back."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.accounts import Settings
from tercel.core.changes import Leased, Loaded
from tercel.core.intervals import IntervalSet
from tercel.core.invariants import violations
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Lease, Needs, QueueRow
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report
from tercel.core.shares import Account, Clock, Queue

SECONDS = st.floats(0.0, 10_000.0)


class NaiveAccount:
    """Remembers everything that was charged, and lets it fade when it is asked."""

    def __init__(self) -> None:
        self.charges: list[tuple[float, float]] = []

    def usage(self, now: float, half_life_s: float) -> float:
        return sum(amount * 0.5 ** ((now - at) / half_life_s) for at, amount in self.charges)


@pytest.mark.must("b")
@given(
    st.lists(st.tuples(SECONDS, st.integers(0, 2), st.floats(0.01, 100.0)), max_size=30),
    st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=3, max_size=3),
    st.sampled_from([1.0, 60.0, 600.0]),
)
def test_accounts_stand_as_if_everything_charged_had_faded(
    charges: list[tuple[float, int, float]], weights: list[float], half_life_s: float
) -> None:
    """Also over times in which all accounts are brought down, again and again."""
    clock = Clock(5_000.0, half_life_s)
    accounts = [Account(weight) for weight in weights]
    naive = [NaiveAccount() for _ in weights]
    for pause, which, amount in charges:
        factor = clock.advance(clock.now + pause)
        for account in accounts:
            account.usage *= factor
        accounts[which].charge(amount, clock)
        naive[which].charges.append((clock.now, amount))
    for account, other in zip(accounts, naive, strict=True):
        expected = other.usage(clock.now, half_life_s) / account.weight
        told = account.passed(clock) / clock.worth
        assert math.isclose(told, expected, rel_tol=1e-6, abs_tol=1e-12)


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=6), st.floats(1.0, 1e6), st.integers(61, 500))
def test_bringing_the_accounts_down_changes_nobodys_place(
    usages: list[float], first_s: float, half_lives: int
) -> None:
    clock = Clock(0.0, 600.0)
    queues = [Queue(QueueRow(name=f"q{number}", weight=number + 1)) for number in range(len(usages))]
    clock.advance(min(first_s, 30_000.0))
    for queue, usage in zip(queues, usages, strict=True):
        queue.account.charge(usage, clock)
        queue.user("ada").charge(usage, clock)
    before = sorted(queues, key=lambda queue: (queue.account.passed(clock), queue.name))
    factor = clock.advance(clock.now + half_lives * 600.0)
    assert factor < 1.0
    for queue in queues:
        queue.scale(factor)
    assert sorted(queues, key=lambda queue: (queue.account.passed(clock), queue.name)) == before
    assert all(queue.user("ada").usage == queue.account.usage for queue in queues)
    assert clock.worth == 1.0


@given(st.floats(0.1, 1e5), SECONDS)
def test_what_was_had_counts_half_after_a_half_life(amount: float, now: float) -> None:
    clock, account = Clock(now, 600.0), Account()
    account.charge(amount, clock)
    assert clock.advance(now + 600.0) == 1.0
    assert math.isclose(account.passed(clock) / clock.worth, amount / 2, rel_tol=1e-9)


@given(st.lists(SECONDS, min_size=1, max_size=10))
def test_a_clock_that_is_set_back_stands_still(times: list[float]) -> None:
    clock = Clock(5_000.0, 600.0)
    latest = 5_000.0
    for now in times:
        clock.advance(now)
        latest = max(latest, now)
        assert clock.now == latest
        assert clock.worth >= 1.0


@given(st.lists(st.tuples(st.floats(0.1, 8.0), SECONDS), min_size=1, max_size=10), st.floats(10_000.0, 2e4))
def test_what_is_under_way_is_charged_as_time_goes_by_until_it_is_closed(
    opened: list[tuple[float, float]], now: float
) -> None:
    clock, account = Clock(0.0, 600.0), Account(2.0)
    worths = []
    for cpus, at in sorted(opened, key=lambda one: one[1]):
        clock.advance(at)
        worths.append((cpus, clock.worth))
        account.open(cpus, clock.worth)
    clock.advance(now)
    expected = sum(cpus * faded(now - at) for cpus, at in opened) / 2.0
    assert math.isclose(account.passed(clock) / clock.worth, expected, rel_tol=1e-3)
    for cpus, worth in worths:
        account.close(cpus, worth)
    assert math.isclose(account.passed(clock) / clock.worth, 0.0, abs_tol=1e-6)
    assert account.passed(clock) >= 0.0


def faded(seconds: float) -> float:
    """What is left of so many seconds of use until now, summed up bit by bit."""
    bits = 1000
    return sum(seconds / bits * 0.5 ** (seconds * (at + 0.5) / bits / 600.0) for at in range(bits))


@given(SECONDS)
def test_the_first_of_many_seconds_have_faded_when_the_last_is_charged(seconds: float) -> None:
    clock = Clock(0.0, 600.0)
    clock.advance(1234.0)
    told = clock.worth_of(seconds) / clock.worth
    assert math.isclose(told, faded(seconds), rel_tol=1e-4, abs_tol=1e-9)
    assert told <= seconds * (1 + 1e-9)


def test_room_is_what_all_caps_leave() -> None:
    queue = Queue(QueueRow(name="q"))
    ada = queue.user("ada")
    assert queue.room(ada) > 10**9
    queue.set(QueueRow(name="q", max_running=5, user_max=3))
    queue.account.under_way, ada.under_way = 3, 1
    assert queue.room(ada) == 2
    ada.under_way = 2
    assert queue.room(ada) == 1
    assert queue.room(queue.user("bob")) == 2
    queue.set(QueueRow(name="q", paused="by ada"))
    assert queue.room(ada) == 0


# -- the machine's accounts ---------------------------------------------------------------------------------

STEP = st.tuples(
    st.sampled_from(
        [
            "start",
            "report",
            "report",
            "report",
            "fail",
            "interrupt",
            "lose",
            "return",
            "cancel",
            "wait",
            "night",
        ]
    ),
    st.integers(0, 99),
    st.floats(0.5, 500.0),
)


class Pool:
    """Two workers, two queues, two users each; what tasks really took is written down."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.machine = Machine(Settings(grace_s=60.0, half_life_s=600.0), Loaded(1, 1, [], [], []), self.now)
        self.used: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        """When it ended, on how many processors, for how long."""
        self.alive = {"v": True, "w": True}
        for name in self.alive:
            self.join(name)
        for id, (queue, owner) in enumerate((q, u) for q in ("a", "b") for u in ("ada", "bob")):
            self.machine.on_accepted(row(id + 1, queue, owner))
        self.play()

    def join(self, name: str) -> None:
        info = WorkerInfo(node=name, capacity=Needs(3000, 0))
        self.machine.on_hello(name, str(self.now), info, [], self.now)

    def play(self) -> None:
        self.machine.tick(self.now)
        self.machine.round()
        assert violations(self.machine) == []
        self.machine.take()

    def step(self, what: str, choice: int, seconds: float) -> None:
        flights = [flight for worker in self.machine.workers.values() for flight in worker.flights.values()]
        online = [flight for flight in flights if self.alive[flight.worker.id]]
        if what == "wait":
            self.now += seconds
        elif what == "night":
            self.now += 100 * 600.0  # all accounts are brought down
        elif what == "lose":
            name = sorted(self.alive)[choice % 2]
            if self.alive[name]:
                self.machine.on_link_closed(name, self.now)
                self.now += 61.0
            else:
                self.join(name)
            self.alive[name] = not self.alive[name]
        elif what == "cancel":
            self.cancel(
                list(self.machine.jobs.values())[choice % max(1, len(self.machine.jobs)) :][:1], choice
            )
        elif online:
            flight = online[choice % len(online)]
            if what == "start":
                self.machine.on_started(flight.worker.id, [flight.attempt], self.now)
            elif what == "return":
                self.machine.on_returned(flight.worker.id, [flight.attempt])
            else:
                self.report(flight, what, seconds)
        self.play()

    def cancel(self, jobs: list[Any], task: int) -> None:
        for job in jobs:
            flight = job.flights.get(task % 6)
            if flight is not None and flight.running_since is not None:
                self.use(job, self.machine._clock.now - flight.running_since)
            self.machine.on_cancel(job, IntervalSet([(task % 6, task % 6)]), "enough", self.now)

    def report(self, flight: Any, what: str, seconds: float) -> None:
        end = End.INTERRUPTED if what == "interrupt" else End.EXITED
        report = Report(
            flight.job.id, flight.task, flight.attempt, end, int(what == "fail"), 0.0, seconds, 0.0, 0
        )
        self.now += 1.0
        counts = end is End.EXITED and not flight.ending
        self.machine.on_reports(flight.worker.id, [report], self.now)
        if counts:
            self.use(flight.job, seconds)

    def use(self, job: Any, seconds: float) -> None:
        used = self.used.setdefault((job.queue.name, job.row.owner), [])
        used.append((self.machine._clock.now, job.needs.millicpus / 1000, seconds))

    def faded(self, queue: str, owner: str) -> float:
        return sum(
            cpus * faded(seconds) * 0.5 ** ((self.machine._clock.now - at) / 600.0)
            for at, cpus, seconds in self.used.get((queue, owner), ())
        )


def row(id: int, queue: str, owner: str) -> JobRow:
    spec = JobSpec(argv=("x",), queue=queue, cpus=0.5 * id, retries=1)
    return JobRow(id=id, owner=owner, spec=spec, ranges=((0, 5),), max_running=0, submitted_at=0.0)


@pytest.mark.must("b")
@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_when_all_has_ended_accounts_hold_what_was_really_used(steps: list[tuple[str, int, float]]) -> None:
    """Whatever was charged in advance or by the clock is given back, to the last: of lost and returned ones, too."""
    pool = Pool()
    for what, choice, seconds in steps:
        pool.step(what, choice, seconds)
    for name, alive in pool.alive.items():
        if not alive:
            pool.join(name)
            pool.alive[name] = True
    pool.play()
    for _ in range(500):
        if not pool.machine.jobs:
            break
        pool.step("report", 0, 1.0)
    assert not pool.machine.jobs
    for queue in pool.machine.queues.values():
        assert abs(queue.account.open_cpus) < 1e-6
        assert queue.account.under_way == 0
        for name, user in queue.users.items():
            told = user.passed(pool.machine._clock) / pool.machine._clock.worth
            assert math.isclose(told, pool.faded(queue.name, name), rel_tol=1e-4, abs_tol=1e-3)
        total = sum(pool.faded(queue.name, name) for name in queue.users)
        assert math.isclose(pool.machine.usage_of(queue), total, rel_tol=1e-4, abs_tol=1e-3)


def test_nobody_pays_for_tasks_of_a_lost_worker() -> None:
    machine = Machine(Settings(grace_s=60.0, half_life_s=600.0), Loaded(1, 1, [], [], []), 0.0)
    machine.on_hello("w", "1", WorkerInfo(node="w", capacity=Needs(3000, 0)), [], 0.0)
    job = machine.on_accepted(row(1, "a", "ada"))
    machine.round()
    (lease, *_) = [change.lease for change in machine.take()[0] if isinstance(change, Leased)]
    assert isinstance(lease, Lease)
    machine.tick(30.0)
    going_on = machine.usage_of(job.queue)
    assert going_on > 80.0, "six tasks of half a processor for 30 s"
    machine.on_link_closed("w", 30.0)
    machine.tick(90.0)
    machine.tick(10_000.0)
    assert machine.usage_of(job.queue) < 6.0
