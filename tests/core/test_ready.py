"""The ready queue against a deliberately naive one: all jobs in a list, sorted each time a task is given out."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.flights import Flight, LeaseBook
from tercel.core.kinds import Kind
from tercel.core.ledger import Job
from tercel.core.model import JobRow, JobSpec, Lease, Needs, QueueRow
from tercel.core.ready import STALE_MOST, Line, ReadyQueue, Stream, Walk
from tercel.core.shares import Account, Clock, Queue
from tercel.core.workers import Worker

COST = 1.0

QUEUE = st.tuples(
    st.sampled_from([0.5, 1.0, 1.0, 2.0, 4.0]),  # weight
    st.sampled_from([0, 0, 0, 3]),  # at most so many under way
    st.sampled_from([0, 0, 2]),  # at most so many of one user
    st.booleans(),  # paused, if also ...
)
JOB = st.tuples(
    st.sampled_from([0, 1000, 1000, 2000]),  # priority
    st.sampled_from([1.0, 2.0, 4.0]),  # cpus
    st.integers(1, 5),  # tasks
    st.sampled_from([0, 0, 1, 2]),  # at most so many at a time
    st.integers(0, 2),  # queue
    st.sampled_from(["ada", "bob"]),
)
STEP = st.tuples(
    st.sampled_from(["arrive", "issue", "issue", "conclude", "give back", "cancel", "refuse", "forgive"]),
    st.integers(0, 30),
)


class NaiveQueue:
    """By the words of the design: caps first, then shares, then priority, then users' shares, then arrival."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.had: dict[object, float] = {}
        """Cost of all that was given out, by queue, and by queue and user."""

    def charge(self, job: Job) -> None:
        for key in (job.queue.name, (job.queue.name, job.row.owner)):
            self.had[key] = self.had.get(key, 0.0) + COST

    def may_go(self, job: Job) -> bool:
        queue = job.queue
        under_way = [(j, len(j.flights)) for j in self.jobs if j.queue is queue]
        of_user = sum(count for j, count in under_way if j.row.owner == job.row.owner)
        return (
            not queue.row.paused
            and not 0 < queue.row.max_running <= sum(count for _, count in under_way)
            and not 0 < queue.row.user_max <= of_user
        )

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs if len(job.ready) and job.cap_room > 0]

    def next(self, passed: set[object]) -> Job | None:
        """The next whose class was not passed over."""
        eligible = [job for job in self.waiting() if self.may_go(job) and class_of(job) not in passed]
        return min(eligible, key=self.key, default=None)

    def key(self, job: Job) -> tuple[Any, ...]:
        queue = job.queue
        share = self.had.get(queue.name, 0.0) / queue.row.weight
        users = self.had.get((queue.name, job.row.owner), 0.0)
        return share, queue.name, job.row.spec.priority, users, job.id


def class_of(job: Job) -> object:
    return job.queue.name, job.row.owner, job.kind, frozenset(job.refused_by)


def queue_of(number: int, weight: float, max_running: int, user_max: int, paused: bool) -> Queue:
    paused = paused and max_running > 0  # seldom
    return Queue(
        QueueRow(
            name=f"q{number}",
            weight=weight,
            max_running=max_running,
            user_max=user_max,
            paused="by ada" if paused else "",
        )
    )


def job_of(
    id: int,
    queue: Queue,
    *,
    priority: int = 1000,
    cpus: float = 1.0,
    tasks: int = 1,
    limit: int = 0,
    owner: str = "ada",
) -> Job:
    spec = JobSpec(argv=("x",), priority=priority, cpus=cpus)
    row = JobRow(id=id, owner=owner, spec=spec, ranges=((0, tasks - 1),), max_running=limit, submitted_at=0.0)
    job = Job(row, queue)
    job.admitted = True
    return job


def jobs_of(shapes: list[Any], queues: list[Queue]) -> list[Job]:
    return [
        job_of(
            number,
            queues[queue],
            priority=priority,
            cpus=cpus,
            tasks=tasks,
            limit=limit,
            owner=owner,
        )
        for number, (priority, cpus, tasks, limit, queue, owner) in enumerate(shapes, 1)
    ]


def change(job: Job, what: str, worker: Worker, clock: Clock) -> int:
    """What a machine does to a job between two looks at the queue. Returns how many tasks were given out."""
    before = len(job.flights)
    if what == "issue" and len(job.ready) and job.cap_room > 0:
        ((task, _),) = job.ready.take_first(1)
        lease = LeaseBook(Lease(task, "w", job.id, task, task), job.needs)
        job.flights[task] = Flight(job, task, task, worker, lease)
        for account in (job.queue.account, job.user):
            account.charge(COST, clock)
    elif what == "conclude" and job.flights:
        job.finished.add(job.flights.popitem()[0])
    elif what == "give back" and job.flights:
        job.ready.add(job.flights.popitem()[0])
    elif what == "cancel" and len(job.ready):
        job.cancelled.add(job.ready.take_first(1)[0][0])
    elif what == "refuse":
        job.refused_by["w"] = "no"
    elif what == "forgive":
        job.refused_by.clear()
    for account in (job.queue.account, job.user):
        account.under_way += len(job.flights) - before
    return len(job.flights) - before


@settings(max_examples=300, deadline=None)
@given(
    st.lists(QUEUE, min_size=3, max_size=3),
    st.lists(JOB, min_size=1, max_size=8),
    st.lists(STEP, max_size=60),
)
def test_the_next_job_is_always_the_one_a_sorted_list_would_give(
    shapes: list[Any], jobs: list[Any], steps: list[tuple[str, int]]
) -> None:
    queues = [queue_of(number, *shape) for number, shape in enumerate(shapes)]
    clock, worker, naive = Clock(0.0), Worker("w", 0.0), NaiveQueue()
    queue = ReadyQueue(clock)
    coming = jobs_of(jobs, queues)
    for what, choice in steps:
        if what == "arrive" and coming:
            job = coming.pop(0)
            naive.jobs.append(job)
        elif naive.jobs:
            job = naive.jobs[choice % len(naive.jobs)]
            if change(job, what, worker, clock) > 0:
                naive.charge(job)
        else:
            continue
        before = job.id in queue
        newly = queue.settle(job)
        waiting = naive.waiting()
        assert newly >= (job in waiting and not before), "whoever appears is announced"
        assert len(queue) == len(waiting)
        assert all((job.id in queue) == (job in waiting) for job in naive.jobs)
        assert queue.has_work == any(naive.may_go(job) for job in waiting)
        assert in_order(queue) == naive_order(naive)


def in_order(queue: ReadyQueue) -> list[Job]:
    """The first of each class, as one who passes over everything sees them."""
    walk = Walk(queue.order())
    found = []
    while (job := walk.job()) is not None:
        found.append(job)
        walk.pass_over()
    return found


def naive_order(naive: NaiveQueue) -> list[Job]:
    passed: set[object] = set()
    found = []
    while (job := naive.next(passed)) is not None:
        found.append(job)
        passed.add(class_of(job))
    return found


@pytest.mark.must("b")
@settings(max_examples=400, deadline=None)
@given(
    st.lists(QUEUE, min_size=3, max_size=3),
    st.lists(JOB, min_size=1, max_size=8),
    st.lists(st.lists(st.booleans(), max_size=20), max_size=6),
)
def test_the_order_stays_right_while_tasks_are_taken(
    shapes: list[Any], jobs: list[Any], walks: list[list[bool]]
) -> None:
    """Caps, shares, priorities and arrival: one worker after the other takes what it likes, in the right order."""
    queues = [queue_of(number, *shape) for number, shape in enumerate(shapes)]
    clock, worker, naive = Clock(0.0), Worker("w", 0.0), NaiveQueue()
    queue = ReadyQueue(clock)
    for job in jobs_of(jobs, queues):
        naive.jobs.append(job)
        queue.settle(job)
    order = queue.order()
    for takes in walks:  # a worker each: from the front, take or pass
        walk = Walk(order)
        passed: set[object] = set()
        for take in takes:
            job = walk.job()
            assert job is naive.next(passed)
            if job is None:
                break
            if take:
                change(job, "issue", worker, clock)
                naive.charge(job)
                queue.settle(job)
            else:
                passed.add(class_of(job))
                walk.pass_over()


@pytest.mark.must("b")
@settings(max_examples=400, deadline=None)
@given(st.lists(QUEUE, min_size=3, max_size=3), st.lists(JOB, min_size=1, max_size=8))
def test_several_turns_at_once_are_as_many_as_one_by_one(shapes: list[Any], jobs: list[Any]) -> None:
    """A batch ends exactly where somebody else's turn begins."""
    queues = [queue_of(number, *shape) for number, shape in enumerate(shapes)]
    clock, worker, naive = Clock(0.0), Worker("w", 0.0), NaiveQueue()
    queue = ReadyQueue(clock)
    for job in jobs_of(jobs, queues):
        naive.jobs.append(job)
        queue.settle(job)
    walk = Walk(queue.order())
    while (job := walk.job()) is not None:
        turns = min(walk.turns(job, COST), len(job.ready), job.cap_room, job.queue.room(job.user))
        assert turns >= 1
        for _ in range(turns):
            assert naive.next(set()) is job
            change(job, "issue", worker, clock)
            naive.charge(job)
        queue.settle(job)
    assert naive.next(set()) is None


def test_a_job_that_is_dropped_is_not_next_any_more() -> None:
    queue = ReadyQueue(Clock(0.0))
    job = job_of(1, Queue(QueueRow(name="q")))
    assert queue.settle(job)
    walk = Walk(queue.order())
    assert walk.job() is job
    queue.drop(job)
    assert walk.job() is None
    assert len(queue.order()) == 0


def test_a_job_that_its_queue_holds_back_is_not_next() -> None:
    queue = ReadyQueue(Clock(0.0))
    job = job_of(1, Queue(QueueRow(name="q")))
    job.admitted = False
    assert not queue.settle(job)
    assert job.id not in queue


def test_very_many_jobs_of_one_kind_are_one_line() -> None:
    queue, ada = ReadyQueue(Clock(0.0)), Queue(QueueRow(name="ada"))
    for id in range(1, 2001):
        queue.settle(job_of(id, ada))
    assert len(queue) == 2000
    walk = Walk(queue.order())
    assert walk.job() is not None
    walk.pass_over()
    assert walk.job() is None


def test_jobs_that_come_and_go_behind_one_that_stays_leave_nothing_behind() -> None:
    ada = Queue(QueueRow(name="ada"))
    line = Line(Stream(ada, Account()), (Kind(Needs()), frozenset(), -1))
    line.join(job_of(1, ada))
    for id in range(2, 10_000):
        job = job_of(id, ada)
        line.join(job)
        line.leave(job)
    assert len(line._heap) <= 2 + STALE_MOST
    head = line.head
    assert head is not None
    assert head.id == 1
