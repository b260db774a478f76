"""Whose fault it was: by the numbers."""

import math
import random
from collections.abc import Iterator
from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tercel.core import blame
from tercel.core.blame import Conduct, blame_of, chance, fails_what_others_run, loses_tasks
from tercel.core.flights import LeaseBook
from tercel.core.ledger import Job
from tercel.core.model import JobRow, JobSpec, Lease, Needs, QueueRow
from tercel.core.reports import Blame, End, Outcome, Report
from tercel.core.shares import Queue
from tercel.core.states import TaskState

RUNS = 10_000


def job_of(tasks: int, id: int = 1) -> Job:
    queue = Queue(QueueRow(name="lab", owner="ada"))
    row = JobRow(
        id=id, owner="ada", spec=JobSpec(), ranges=((0, tasks - 1),), max_running=0, submitted_at=0.0
    )
    return Job(row, queue)


def lease() -> LeaseBook:
    return LeaseBook(Lease(1, "w", 1, 0, 0), Needs())


# -- of one attempt ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code", "wall_s", "expected"),
    [
        (End.EXITED, 0, 1.0, None),
        (End.EXITED, 1, 1.0, Blame.TASK),
        (End.SIGNALLED, 11, 1.0, Blame.TASK),
        (End.TIMED_OUT, 15, 1.0, Blame.TASK),
        (End.EXCEEDED, 9, 1.0, Blame.TASK),
        (End.REFUSED, 0, 0.0, Blame.NODE),
        (End.INTERRUPTED, 0, 0.0, Blame.NODE),
        (End.INTERRUPTED, 0, 1.0, Blame.WORKER),
        (End.CANCELLED, 15, 1.0, None),
    ],
)
def test_every_end_is_booked_to_somebody_or_nobody(
    end: End, code: int, wall_s: float, expected: Blame | None
) -> None:
    report = Report(1, 0, 5, end, code, 10.0, wall_s, 0.0, 0)
    assert blame_of(Outcome(TaskState.FAILED, "w", 11.0, report)) is expected


def test_what_was_taken_back_before_it_began_is_nobodys_fault_there() -> None:
    report = Report(1, 0, 5, End.INTERRUPTED, 0, 0.0, 0.0, 0.0, 0)
    assert blame_of(Outcome(TaskState.CANCELLED, "w", 11.0, report)) is Blame.OUTSIDE


def test_what_was_found_out_later_counts_more_than_what_the_report_says() -> None:
    report = Report(1, 0, 5, End.EXITED, 1, 10.0, 1.0, 0.0, 0)
    assert blame_of(Outcome(TaskState.FAILED, "w", 11.0, report, Blame.WORKER)) is Blame.WORKER


# -- chance -----------------------------------------------------------------------------------------------


def exact_chance(faults: int, rates: list[float]) -> float:
    """Of so many faults or more, by looking at every possibility."""
    total = 0.0
    for ends in product((0, 1), repeat=len(rates)):
        if sum(ends) >= faults:
            total += math.prod(rate if end else 1 - rate for end, rate in zip(ends, rates, strict=True))
    return total


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=9), st.data())
def test_chance_is_never_less_than_the_truth(rates: list[float], data: st.DataObject) -> None:
    faults = data.draw(st.integers(0, len(rates)))
    assert chance(faults, [(1, rate) for rate in rates]) >= exact_chance(faults, rates) * (1 - 1e-9)


@given(st.integers(1, 40), st.floats(0.001, 0.5), st.data())
def test_chance_is_not_far_from_the_truth(tries: int, rate: float, data: st.DataObject) -> None:
    faults = data.draw(st.integers(0, tries))
    exact = sum(math.comb(tries, n) * rate**n * (1 - rate) ** (tries - n) for n in range(faults, tries + 1))
    assert chance(faults, [(tries, rate)]) <= max(exact * 40, 1e-300)


# -- a pool -----------------------------------------------------------------------------------------------


def ends(rng: random.Random, workers: int, jobs: list[tuple[Job, float]], longest: int) -> Iterator[str]:
    """Whoever is found guilty, while tasks of jobs, each with its rate of failures, end on workers at random."""
    conducts = {f"w{number}": Conduct() for number in range(workers)}
    left = {job: job.task_count for job, _ in jobs}
    rates = dict(jobs)
    while left:
        job = rng.choice(list(left))
        name, conduct = rng.choice(list(conducts.items()))
        count = min(rng.randint(1, longest), left[job])
        book = lease()
        for task in range(left[job] - count, left[job]):
            if rng.random() < rates[job]:
                conduct.failed(name, job, book, task, task)
                if fails_what_others_run(name, conduct) is not None:
                    yield name
            else:
                conduct.succeeded(name, job)
        left[job] -= count
        if not left[job]:
            del left[job]


@pytest.mark.must("a")
def test_workers_in_order_are_hardly_ever_accused_whatever_the_jobs() -> None:
    rng = random.Random(4)
    accused = 0
    for _ in range(RUNS):
        rates = [
            rng.choice([0.0, 0.01, 0.05, 0.2, 0.5, 0.9, 1.0, rng.random()]) for _ in range(rng.randint(1, 3))
        ]
        jobs = [(job_of(rng.randint(3, 60), id), rate) for id, rate in enumerate(rates, 1)]
        accused += any(ends(rng, rng.randint(2, 8), jobs, longest=rng.choice([1, 1, 5])))
    assert accused <= RUNS * blame.UNLIKELY


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("workers", [3, 10, 40])
def test_a_broken_worker_is_found_after_a_few_of_its_tasks(rate: float, workers: int) -> None:
    """Each worker gets every so many-th task; one fails all."""
    rng = random.Random(5)
    for _ in range(50):
        job = job_of(40 * workers)
        conducts = {f"w{number}": Conduct() for number in range(workers)}
        found = None
        for round_ in range(40):
            for name, conduct in conducts.items():
                if name == "w0" or rng.random() < rate:
                    conduct.failed(name, job, lease(), round_, round_)
                    if fails_what_others_run(name, conduct) is not None:
                        assert name == "w0"
                        found = found or round_ + 1
                else:
                    conduct.succeeded(name, job)
        assert found is not None
        assert found <= {0.0: 7, 0.05: 12, 0.2: 24}[rate]


def test_a_job_that_nobody_else_has_run_accuses_nobody() -> None:
    job, conduct = job_of(100), Conduct()
    for task in range(100):
        conduct.failed("w0", job, lease(), task, task)
    assert fails_what_others_run("w0", conduct) is None


def test_neighbours_that_fail_in_one_lease_count_once() -> None:
    job, bad, good = job_of(1000), Conduct(), Conduct()
    for _ in range(100):
        good.succeeded("w1", job)
    book = lease()
    for task in range(50):
        bad.failed("w0", job, book, task, task)
    assert fails_what_others_run("w0", bad) is None
    for task in range(50, 54):
        bad.failed("w0", job, lease(), task, task)
    evidence = fails_what_others_run("w0", bad)
    assert evidence is not None
    assert evidence.text == "failed 54 of 54 tasks of job 1, which failed 0 of 100 on 1 other worker"


def test_a_job_that_mostly_fails_accuses_nobody_who_is_given_its_tasks_one_by_one() -> None:
    """Others get many at a time, and their failures follow upon one another."""
    rng = random.Random(6)
    for _ in range(200):
        job, one, others = job_of(10_000), Conduct(), Conduct()
        for task in range(400):
            if task % 20 == 0:
                book = lease()
            if rng.random() < 0.9:
                others.failed("w1", job, book, task, task)
            else:
                others.succeeded("w1", job)
        for task in range(400, 500):
            if rng.random() < 0.9:
                one.failed("w0", job, lease(), task, task)
                assert fails_what_others_run("w0", one) is None
            else:
                one.succeeded("w0", job)


def test_one_task_that_is_tried_again_and_again_counts_once() -> None:
    job, bad, good = job_of(1000), Conduct(), Conduct()
    for _ in range(100):
        good.succeeded("w1", job)
    for attempt in range(50):
        bad.failed("w0", job, lease(), 7, attempt)
        bad.succeeded("w0", job)
    assert fails_what_others_run("w0", bad) is None


def test_what_happened_long_ago_is_forgotten() -> None:
    job, conduct, other = job_of(10_000), Conduct(), Conduct()
    for _ in range(40):
        other.succeeded("w1", job)
    for task in range(3):
        conduct.failed("w0", job, lease(), task, task)
    for _ in range(blame.WINDOW):
        conduct.succeeded("w0", job)
    conduct.failed("w0", job, lease(), 3, 3)
    assert fails_what_others_run("w0", conduct) is None


def test_records_stay_small_however_many_tasks_end() -> None:
    job, conduct = job_of(100_000), Conduct()
    for _ in range(50_000):
        conduct.succeeded("w0", job)
    assert job.record is not None
    assert job.record.tries <= blame.MOST_TRIES + 1
    assert len(conduct.window) == blame.WINDOW
    assert job.record.all_tries == 50_000


def test_who_loses_most_of_its_tasks_is_accused_unless_everybody_does() -> None:
    bad, good = Conduct(), Conduct()
    for _ in range(30):
        good.succeeded("w1", job_of(1))
    for _ in range(4):
        assert loses_tasks(bad, [bad, good]) is None
        bad.interrupted("interrupted")
    assert loses_tasks(bad, [bad, good]) is not None
    for _ in range(20):
        good.interrupted("interrupted")
    assert loses_tasks(bad, [bad, good]) is None
