"""The ready queue against a deliberately naive one: all jobs in a list, sorted each time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.ledger import Flight, Job, LeaseBook, Worker
from tercel.core.model import JobRow, JobSpec, Lease, Needs
from tercel.core.ready import STALE_MOST, Line, Order, ReadyQueue

JOB = st.tuples(
    st.sampled_from([0, 1000, 1000, 2000]),  # priority
    st.sampled_from([1.0, 2.0, 4.0]),  # cpus
    st.integers(1, 5),  # tasks
    st.sampled_from([0, 0, 1, 2]),  # at most so many at a time
)
STEP = st.tuples(
    st.sampled_from(["arrive", "issue", "issue", "conclude", "give back", "cancel", "refuse", "forgive"]),
    st.integers(0, 30),
)


ClassKey = tuple[Needs, frozenset[str]]


def class_of(job: Job) -> ClassKey:
    return job.needs, frozenset(job.refused_by)


class NaiveQueue:
    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def waiting(self) -> list[Job]:
        eligible = [job for job in self.jobs if len(job.ready) and job.cap_room > 0]
        return sorted(eligible, key=lambda job: (job.row.spec.priority, job.id))

    def heads(self) -> list[Job]:
        """The first of each class, in order."""
        first: dict[ClassKey, Job] = {}
        for job in self.waiting():
            first.setdefault(class_of(job), job)
        return list(first.values())


def job_of(id: int, priority: int, cpus: float, tasks: int, limit: int) -> Job:
    spec = JobSpec(argv=("x",), priority=priority, cpus=cpus)
    row = JobRow(id=id, owner="ada", spec=spec, ranges=((0, tasks - 1),), max_running=limit, submitted_at=0.0)
    return Job(row)


def change(job: Job, what: str, worker: Worker) -> None:
    """What a machine does to a job between two looks at the queue."""
    if what == "issue" and len(job.ready) and job.cap_room > 0:
        ((task, _),) = job.ready.take_first(1)
        job.flights[task] = Flight(job, task, task, worker, LeaseBook(Lease(task, "w", job.id, task, task)))
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


@settings(max_examples=400, deadline=None)
@given(st.lists(JOB, min_size=1, max_size=8), st.lists(STEP, max_size=60), st.randoms(use_true_random=False))
def test_the_next_job_is_always_the_one_a_sorted_list_would_give(jobs: list, steps: list, rng) -> None:  # type: ignore[no-untyped-def]
    queue, naive, worker = ReadyQueue(), NaiveQueue(), Worker("w", 0.0)
    coming = [job_of(number + 1, *shape) for number, shape in enumerate(jobs)]
    for what, choice in steps:
        if what == "arrive" and coming:
            job = coming.pop(0)
            naive.jobs.append(job)
        elif naive.jobs:
            job = naive.jobs[choice % len(naive.jobs)]
            change(job, what, worker)
        else:
            continue
        before = job.id in queue
        newly = queue.settle(job)
        waiting = naive.waiting()
        assert newly >= (job in waiting and not before), "whoever appears is announced"
        assert len(queue) == len(waiting)
        assert all((job.id in queue) == (job in waiting) for job in naive.jobs)
        assert in_order(queue.order()) == naive.heads()
        urgent = queue.order(lambda job: job.row.spec.priority < 2000)
        assert in_order(urgent) == [job for job in naive.heads() if job.row.spec.priority < 2000]


def in_order(order: Order) -> list[Job]:
    return [job for at in range(len(order)) if (job := order.job(at)) is not None]


@settings(max_examples=400, deadline=None)
@given(st.lists(JOB, min_size=1, max_size=8), st.lists(st.lists(st.booleans(), max_size=20), max_size=6))
def test_the_order_stays_right_while_tasks_are_taken(jobs: list, walks: list[list[bool]]) -> None:  # type: ignore[type-arg]
    queue, naive, worker = ReadyQueue(), NaiveQueue(), Worker("w", 0.0)
    for number, shape in enumerate(jobs):
        naive.jobs.append(job_of(number + 1, *shape))
        queue.settle(naive.jobs[-1])
    order = queue.order()
    for walk in walks:  # a worker each: from the front, take or pass
        place = 0
        for take in walk:
            job = order.job(place)
            heads = naive.heads()
            assert job is (heads[place] if place < len(heads) else None)
            if job is None:
                break
            if take:
                change(job, "issue", worker)
                queue.settle(job)
            else:
                place += 1


def test_a_job_that_is_dropped_is_not_next_any_more() -> None:
    queue = ReadyQueue()
    job = job_of(1, 0, 1.0, 1, 0)
    assert queue.settle(job)
    order = queue.order()
    assert order.job(0) is job
    queue.drop(job)
    assert order.job(0) is None
    assert len(queue.order()) == 0


def test_very_many_jobs_of_one_kind_are_one_line() -> None:
    queue = ReadyQueue()
    for id in range(1, 2001):
        queue.settle(job_of(id, 1000, 1.0, 1, 0))
    assert len(queue) == 2000
    assert len(queue.order()) == 1


def test_jobs_that_come_and_go_behind_one_that_stays_leave_nothing_behind() -> None:
    line = Line(frozenset())
    line.join(job_of(1, 0, 1.0, 1, 0))
    for id in range(2, 2000):
        job = job_of(id, 1000, 1.0, 1, 0)
        line.join(job)
        line.leave(job)
    assert len(line) == 1
    assert len(line._heap) <= STALE_MOST + 3
