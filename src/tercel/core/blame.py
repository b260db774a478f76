"""Whose fault it was, and which worker fails what others run.

Every end of an attempt that is a fault has one `Blame`. Whether a worker is to blame for what looks like its tasks' own
failures is a question of numbers: a job's Record says how its tasks fared everywhere, a worker's Conduct how the last of
them fared there. If failing so often had, by how the same jobs fare elsewhere, a probability below UNLIKELY, the worker is
at fault. A job that fails everywhere thus accuses nobody, nor does one that nobody else has run.

Against a worker, failures of one lease that follow upon one another count as one: neighbours in an array often fail for
one reason. So do failures of one task, however often it is tried there.
Memory and time per report are bounded: records are halved as they grow, and a Conduct keeps WINDOW ends.
"""

import math
from collections import deque
from collections.abc import Iterable

import msgspec

from tercel.core.flights import LeaseBook
from tercel.core.ledger import Job
from tercel.core.reports import Blame, End, Outcome, Report

UNLIKELY = 1e-4
"""What would happen by chance less often is no chance."""
WINDOW = 64
"""The last ends at a worker that are looked at."""
OWN_RATE = 0.05
"""Of its tasks, a worker in order may well lose so many."""
COMPARABLE = 3
"""Jobs of fewer tasks say nothing about workers."""
LEAST_ELSEWHERE, ENOUGH_ELSEWHERE = 5, 20
"""Ends on two other workers or more; or on one."""
MOST_TRIES = 200
"""In a record, and twenty for each worker in it, before it is halved: what is long ago counts less."""
REMEMBERED_MOST = 1000
"""Tasks of a job that failed at a worker."""
FEWEST = 3
"""Faults before a worker is suspected at all."""


def blame_of(outcome: Outcome) -> Blame | None:
    """None: nothing was wrong, or somebody asked for it."""
    report = outcome.report
    if outcome.blame is not None or not report.attempt:
        return outcome.blame
    match report.end:
        case End.EXITED:
            return Blame.TASK if report.code else None
        case End.SIGNALLED | End.TIMED_OUT | End.EXCEEDED | End.UNSTAGED:
            return Blame.TASK
        case End.REFUSED:
            return Blame.NODE
        case End.INTERRUPTED:
            return blame_of_interruption(report)
    return None


def blame_of_interruption(report: Report) -> Blame:
    """What never ran found no room or no process on its node; what was taken back before it began is nobody's fault there."""
    if not report.started_at:
        return Blame.OUTSIDE
    return Blame.WORKER if report.wall_s > 0 else Blame.NODE


class Fared:
    """How tasks of one job fared on one worker, lately."""

    __slots__ = ("failed", "faults", "run", "tries")

    def __init__(self) -> None:
        self.tries = 0.0
        self.faults = 0.0
        self.run: Run | None = None
        """Its failures that end with the last end there, if that was one."""
        self.failed: dict[int, Run] | None = None
        """Which of them were which task's, if there are any."""


class Record:
    """How tasks of one job fared, lately, in all and on each worker. It may outlive the job."""

    __slots__ = ("all_faults", "all_tries", "by", "faults", "job", "tries")

    def __init__(self, job: int) -> None:
        self.job = job
        self.tries = 0.0
        self.faults = 0.0
        self.by: dict[str, Fared] = {}
        self.all_tries = 0
        """As `tries`, but never halved."""
        self.all_faults = 0

    def add(self, fared: Fared, tries: int, faults: int) -> None:
        self.tries += tries
        self.all_tries += tries
        fared.tries += tries
        self.faults += faults
        self.all_faults += faults
        fared.faults += faults
        while self.tries > MOST_TRIES and self.tries > 20 * len(self.by):
            self._halve()

    def _halve(self) -> None:
        self.tries /= 2
        self.faults /= 2
        for worker, fared in list(self.by.items()):
            fared.tries /= 2
            fared.faults /= 2
            if fared.tries < 0.1:
                del self.by[worker]

    def elsewhere(self, worker: str) -> tuple[float, float, int]:
        """(faults, tries, on so many workers) without this one."""
        own = self.by.get(worker)
        if own is None:
            return self.faults, self.tries, len(self.by)
        return self.faults - own.faults, self.tries - own.tries, len(self.by) - 1


class Run:
    """Failures of one job's tasks on one worker, one after the other, out of one lease."""

    __slots__ = ("lease", "members", "record")

    def __init__(self, record: Record, lease: LeaseBook) -> None:
        self.record = record
        self.lease = lease
        self.members: list[tuple[int, int]] = []
        """(task, attempt)"""


class Conduct:
    """How a worker behaves: of the last ends there, and in all."""

    __slots__ = ("accused", "faults", "interruptions", "passed", "probing", "tries", "window")

    def __init__(self) -> None:
        self.window: deque[tuple[Record, Run | None]] = deque(maxlen=WINDOW)
        """The last ends there of jobs that may be compared: of which job, and the failures if it was one."""
        self.tries = 0.0
        """All ends there, lately, ..."""
        self.interruptions = 0.0
        """... and those that were its own doing, or its node's."""
        self.faults: dict[str, int] = {}
        """For people: how often what, since the manager started."""
        self.accused = False
        """Something went wrong there since it was last asked whether that is more than chance."""
        self.probing = False
        """It is quarantined, and may hold one task to show that it is well."""
        self.passed = 0
        """So many such tasks it ran without fault, one after the other."""

    def fault(self, kind: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1
        self.accused = True

    def succeeded(self, worker: str, job: Job, count: int = 1) -> None:
        if not count:
            return
        self._tried(count)
        if job.task_count >= COMPARABLE:
            record, fared = _entry(job, worker)
            record.add(fared, count, 0)
            fared.run = None
            self.window.extend(((record, None),) * min(count, WINDOW))

    def failed(self, worker: str, job: Job, lease: LeaseBook, task: int, attempt: int) -> None:
        self._tried()
        self.fault("failed")
        if job.task_count < COMPARABLE:
            return
        record, fared = _entry(job, worker)
        failed = fared.failed
        if failed is None:
            failed = fared.failed = {}
        run = failed.get(task) or fared.run
        if task not in failed:
            record.add(fared, 1, 1)
            if run is None or run.lease is not lease:
                run = Run(record, lease)
                self.window.append((record, run))
            fared.run = run
        assert run is not None
        run.members.append((task, attempt))
        failed[task] = run
        if len(failed) > REMEMBERED_MOST:
            del failed[next(iter(failed))]

    def interrupted(self, kind: str) -> None:
        self._tried()
        self.interruptions += 1.0
        self.fault(kind)

    def _tried(self, times: int = 1) -> None:
        self.tries += times
        if self.tries > WINDOW:
            self.interruptions *= WINDOW / 2 / self.tries
            self.tries = WINDOW / 2

    def forget(self) -> None:
        """It begins anew."""
        self.window.clear()
        self.tries = self.interruptions = 0.0
        self.probing, self.passed = False, 0


def _entry(job: Job, worker: str) -> tuple[Record, Fared]:
    record = job.record
    if record is None:
        record = job.record = Record(job.id)
    fared = record.by.get(worker)
    if fared is None:
        fared = record.by[worker] = Fared()
    return record, fared


# -- is it chance? ----------------------------------------------------------------------------------------


class Evidence(msgspec.Struct, frozen=True):
    """Why a worker is thought to be at fault."""

    text: str
    runs: tuple[Run, ...] = ()
    """What failed there."""
    rate: float = 1.0
    """Of its tasks, so many failed there."""


def loses_tasks(conduct: Conduct, others: Iterable[Conduct]) -> Evidence | None:
    """Whether a worker loses more tasks than one may, and than others do: a file system that is full may be everybody's."""
    faults, tries = conduct.interruptions, conduct.tries
    if faults < FEWEST or chance(faults, [(tries, OWN_RATE)]) >= UNLIKELY:
        return None
    theirs = [other for other in others if other is not conduct]
    rate = (sum(other.interruptions for other in theirs) + 0.5) / (
        sum(other.tries for other in theirs) + 10.0
    )
    if chance(faults, [(tries, max(rate, OWN_RATE))]) >= UNLIKELY:
        return None
    return Evidence(f"interrupted or lost {faults:.0f} of its last {tries:.0f} tasks")


def fails_what_others_run(worker: str, conduct: Conduct) -> Evidence | None:
    """Whether a worker fails more tasks than the same jobs' do elsewhere."""
    runs = tuple(dict.fromkeys(run for _, run in conduct.window if run is not None))
    if len(runs) < FEWEST:
        return None
    rates: dict[Record, float] = {}
    trials: dict[Record, int] = {}
    for record, _ in conduct.window:
        if record not in trials:
            rate = rate_elsewhere(record, worker)
            if rate is not None:
                rates[record] = rate
            trials[record] = 0
        trials[record] += 1
    telling = tuple(run for run in runs if run.record in rates)
    tries = sum(trials[record] for record in rates)
    if len(telling) < FEWEST:
        return None
    if chance(len(telling), [(trials[record], rate) for record, rate in rates.items()]) >= UNLIKELY:
        return None
    return Evidence(_told(worker, telling, conduct), telling, len(telling) / tries)


def rate_elsewhere(record: Record | None, worker: str) -> float | None:
    """How often tasks of a job fail on other workers: not the likeliest rate, but one that it hardly exceeds."""
    if record is None:
        return None
    faults, tries, workers = record.elsewhere(worker)
    if tries < (LEAST_ELSEWHERE if workers >= 2 else ENOUGH_ELSEWHERE):
        return None
    mean = (faults + 0.5) / (tries + 1.0)
    return min(1.0, mean + 2.0 * math.sqrt(mean * (1.0 - mean) / (tries + 2.0)))


def chance(faults: float, trials: Iterable[tuple[float, float]]) -> float:
    """At most so probable are this many faults or more in independent trials: (how many, the rate of each).

    Chernoff's bound: for every t > 0, P(X >= k) <= exp(-t k) E[exp(t X)]; the best t is found by halving.
    """
    trials = [(number, rate) for number, rate in trials if number > 0]
    count = sum(number for number, _ in trials)
    if faults <= sum(number * rate for number, rate in trials):
        return 1.0
    if faults >= count:
        return math.exp(sum(number * math.log(rate) for number, rate in trials if rate > 0))

    def slope(t: float) -> float:
        """How many faults would be usual if the odds of each were exp(t) times as large; less those there are."""
        grown = math.exp(t)
        return sum(n * rate * grown / (1 - rate + rate * grown) for n, rate in trials) - faults

    low, high = 0.0, 1.0
    while slope(high) < 0 and high < 500:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    log_mean = sum(number * math.log1p(rate * math.expm1(low)) for number, rate in trials)
    return math.exp(min(0.0, log_mean - low * faults))


def _told(worker: str, runs: Iterable[Run], conduct: Conduct) -> str:
    """In words: `failed 14 of 15 tasks of jobs 37, 41, which failed 3 of 812 on 9 other workers`."""
    records = {run.record for run in runs}
    failed = len({(run.record.job, task) for run in runs for task, _ in run.members})
    fine = sum(1 for record, run in conduct.window if run is None and record in records)
    faults = tries = 0.0
    others: set[str] = set()
    for record in records:
        more_faults, more_tries, _ = record.elsewhere(worker)
        faults, tries = faults + more_faults, tries + more_tries
        others |= record.by.keys() - {worker}
    ids = sorted(record.job for record in records)
    named = ", ".join(map(str, ids[:5])) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    plural = "s" if len(ids) > 1 else ""
    return (
        f"failed {failed:,} of {failed + fine:,} tasks of job{plural} {named}, which failed {faults:.0f} of {tries:.0f} "
        f"on {len(others)} other worker{'s' if len(others) > 1 else ''}"
    )
