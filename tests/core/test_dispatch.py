"""Who is offered what: against a naive dispatcher that looks at every task, and by the rules for offers ahead."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.accounts import Settings
from tercel.core.changes import Leased, Loaded
from tercel.core.effects import Recalled
from tercel.core.filling import AHEAD_MOST, LONG_S, ahead_of
from tercel.core.kinds import Shape
from tercel.core.ledger import Job
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Needs, QueueRow
from tercel.core.presence import WorkerInfo, WorkerState
from tercel.core.reports import End, Report
from tercel.core.shares import Queue
from tercel.core.workers import Worker

JOB = st.tuples(
    st.sampled_from([0, 1000, 1000]),
    st.sampled_from([1.0, 1.0, 2.0, 0.5]),
    st.sampled_from([0, 0, 1, 2]),
    st.integers(1, 6),
    st.sampled_from([0, 0, 1, 3]),
)
CAPACITY = st.tuples(st.integers(1, 6), st.integers(0, 4)).map(lambda pair: Needs(pair[0] * 1000, pair[1]))


def machine() -> Machine:
    return Machine(Settings(), Loaded(1, 1, [], [], []), 0.0)


def row(
    id: int, *, priority: int = 1000, cpus: float = 1.0, mem: int = 0, tasks: int = 1, limit: int = 0
) -> JobRow:
    spec = JobSpec(argv=("x",), priority=priority, cpus=cpus, mem_bytes=mem)
    return JobRow(
        id=id, owner="ada", spec=spec, ranges=((0, tasks - 1),), max_running=limit, submitted_at=0.0
    )


def leases(machine: Machine) -> list[tuple[str, int, int]]:
    """(worker, job, task) of everything offered since the last look."""
    machine.round()
    changes, _ = machine.take()
    return [
        (change.lease.worker, change.lease.job, task)
        for change in changes
        if isinstance(change, Leased)
        for task in range(change.lease.first, change.lease.last + 1)
    ]


def naive_offers(rows: list[JobRow], workers: list[tuple[str, Needs]]) -> list[tuple[str, int, int]]:
    """Worker after worker: the most urgent, then the oldest task that still fits, one by one."""
    left = {one.id: list(range(one.task_count)) for one in rows}
    under_way = {one.id: 0 for one in rows}
    offers = []
    for name, capacity in workers:
        millicpus, mem = capacity.millicpus, capacity.mem_bytes
        while True:
            fitting = [
                one
                for one in sorted(rows, key=lambda one: (one.spec.priority, one.id))
                if left[one.id]
                and (not one.max_running or under_way[one.id] < one.max_running)
                and one.spec.needs.millicpus <= millicpus
                and one.spec.needs.mem_bytes <= mem
            ]
            if not fitting:
                break
            chosen = fitting[0]
            offers.append((name, chosen.id, left[chosen.id].pop(0)))
            under_way[chosen.id] += 1
            millicpus -= chosen.spec.needs.millicpus
            mem -= chosen.spec.needs.mem_bytes
    return offers


@settings(max_examples=400, deadline=None)
@given(st.lists(JOB, min_size=1, max_size=7), st.lists(CAPACITY, min_size=1, max_size=5))
def test_real_room_is_filled_as_a_naive_dispatcher_would(jobs: list, capacities: list[Needs]) -> None:
    rows = [
        row(at + 1, priority=priority, cpus=cpus, mem=mem, tasks=tasks, limit=limit)
        for at, (priority, cpus, mem, tasks, limit) in enumerate(jobs)
    ]
    workers = [(f"w{at}", capacity) for at, capacity in enumerate(capacities)]
    fast = machine()
    for one in rows:
        fast.on_accepted(one)
    offers = []
    for name, capacity in workers:
        fast.on_hello(name, "1", WorkerInfo(node=name, capacity=capacity), [], 0.0)
        offers += leases(fast)
    assert sorted(offers) == sorted(naive_offers(rows, workers))


def test_a_batch_is_one_lease_however_many_tasks_it_has() -> None:
    fast = machine()
    fast.on_hello("w", "1", WorkerInfo(node="w", capacity=Needs(64_000, 0)), [], 0.0)
    fast.on_accepted(row(1, tasks=1_000_000))
    fast.round()
    changes, _ = fast.take()
    assert [type(change) for change in changes] == [Leased]
    assert len(fast.jobs[1].flights) == 64


def test_a_round_without_news_does_nothing() -> None:
    fast = machine()
    fast.on_hello("w", "1", WorkerInfo(node="w", capacity=Needs(1000, 0)), [], 0.0)
    fast.on_accepted(row(1, tasks=3))
    assert len(leases(fast)) == 1
    fast.round()
    assert fast.take() == ([], [])


def test_who_may_run_what_is_asked_once_of_each_kind_and_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a full worker costs nothing, however many kinds of work wait."""
    fast = machine()
    for number in range(1, 301):
        fast.on_accepted(row(number, mem=number))
    for number in range(100):
        info = WorkerInfo(node="n", capacity=Needs(1000, 1000))
        fast.on_hello(f"w{number}", "1", info, [], 0.0)
    asked: list[Shape] = []
    rooms: list[Worker] = []
    has, room = Shape.has, Worker.room
    monkeypatch.setattr(Shape, "has", lambda shape, needs: asked.append(shape) or has(shape, needs))
    monkeypatch.setattr(Worker, "room", lambda worker, *of: rooms.append(worker) or room(worker, *of))
    assert [job for _, job, _ in leases(fast)] == list(range(1, 101))
    assert len(asked) == 300
    assert len(set(asked)) == 1
    assert len(rooms) == 100


def job_with_mean(mean: float | None, cpus: float = 1.0) -> Job:
    job = Job(row(1, cpus=cpus, tasks=1000), Queue(QueueRow(name="ada")))
    job.mean_wall_s = mean
    return job


def worker_with(millicpus: int) -> Worker:
    worker = Worker("w", 0.0)
    worker.capacity = Needs(millicpus, 0)
    return worker


def test_offers_ahead_are_seconds_of_work_not_numbers_of_tasks() -> None:
    one, eight = worker_with(1000), worker_with(8000)
    assert ahead_of(job_with_mean(None), one) == 0, "nothing is known yet"
    assert ahead_of(job_with_mean(LONG_S + 0.1), one) == 0, "a round trip is nothing to long tasks"
    assert ahead_of(job_with_mean(1.0), one) == 1
    assert ahead_of(job_with_mean(0.1), one) == 3
    assert ahead_of(job_with_mean(0.1), eight) == 24
    assert ahead_of(job_with_mean(0.1, cpus=4.0), eight) == 6
    assert ahead_of(job_with_mean(0.0), one) == AHEAD_MOST
    assert ahead_of(job_with_mean(1e-9), eight) == AHEAD_MOST


def quick(task: int, attempt: int) -> Report:
    return Report(1, task, attempt, End.EXITED, 0, 0.0, 0.05, 0.0, 0)


def test_a_returned_task_is_given_to_the_idle_worker_and_does_not_bounce() -> None:
    """One take-back brings both workers to about the same load, and then there is peace."""
    fast = machine()
    fast.on_hello("busy", "1", WorkerInfo(node="a", capacity=Needs(1000, 0)), [], 0.0)
    fast.on_accepted(row(1, tasks=7))
    ((_, _, task),) = leases(fast)
    fast.on_reports("busy", [quick(task, next(iter(fast.workers["busy"].flights)))], 0.0)
    assert len(leases(fast)) == 6
    fast.on_hello("idle", "1", WorkerInfo(node="b", capacity=Needs(1000, 0)), [], 0.0)
    fast.round()
    _, effects = fast.take()
    (recalled,) = [effect for effect in effects if isinstance(effect, Recalled)]
    fast.on_returned("busy", recalled.attempts)
    moved = leases(fast)
    assert [worker for worker, _, _ in moved].count("idle") == len(moved) == 2
    fast.round()
    assert not any(isinstance(effect, Recalled) for effect in fast.take()[1])


def test_a_draining_or_absent_worker_is_offered_nothing() -> None:
    fast = machine()
    for name in ("draining", "gone"):
        fast.on_hello(name, "1", WorkerInfo(node=name, capacity=Needs(1000, 0)), [], 0.0)
    fast.on_drain("draining", 0.0)
    fast.on_link_closed("gone", 0.0)
    fast.on_accepted(row(1, tasks=5))
    assert leases(fast) == []


@pytest.mark.B(13)
@pytest.mark.parametrize("given", [Needs(0, 0), Needs(1000, 0)])
def test_short_tasks_are_not_offered_ahead_to_a_worker_that_gives_too_little_for_any(given: Needs) -> None:
    """It has the cores, but others use them: it would return the offer, and get it again, without end."""
    one = machine()
    one.on_hello("w", "1", WorkerInfo(node="w", capacity=Needs(4000, 0)), [], 0.0)
    one.on_accepted(row(1, cpus=2.0, tasks=50))
    assert len(leases(one)) == 2
    held = list(one.workers["w"].flights.values())
    one.on_reports("w", [Report(1, f.task, f.attempt, End.EXITED, 0, 0.0, 0.01, 0.0, 0) for f in held], 1.0)
    one.on_presence("w", WorkerState.AVAILABLE, given, 1.0)
    assert leases(one) == []
    one.on_presence("w", WorkerState.AVAILABLE, Needs(2000, 0), 2.0)
    assert leases(one)


def test_a_place_that_a_ranked_job_gives_up_at_a_worker_it_still_uses_is_filled_in_the_same_round() -> None:
    """Both places of w0 were held for job 1; ranks gave it one task there, and the other place would have stayed empty."""
    one = machine()
    one.on_hello("w0", "1", WorkerInfo(node="w0", capacity=Needs(2000, 0), tags=("a",)), [], 0.0)
    one.on_hello("w1", "1", WorkerInfo(node="w1", capacity=Needs(4000, 0)), [], 0.0)
    ranked = JobSpec(argv=("x",), priority=0, rank="worker.cpus")
    other = JobSpec(argv=("x",), requires=("a",))
    for id, spec, last in ((1, ranked, 4), (2, other, 2)):
        one.on_accepted(
            JobRow(id=id, owner="ada", spec=spec, ranges=((0, last),), max_running=0, submitted_at=0.0),
            now=0.0,
        )
    found = leases(one)
    assert sorted(worker for worker, job, _ in found if job == 1) == ["w0", *["w1"] * 4]
    assert [worker for worker, job, _ in found if job == 2] == ["w0"]
