"""Queues and their accounts, kept in step with what jobs have under way.

Jobs are counted when they are settled: by the difference to what the accounts know of them, so that no move of an attempt
needs to think of it. See shares for what is charged and why.
"""

import heapq

import msgspec

from tercel.core.changes import Loaded
from tercel.core.flights import Flight, LeaseBook
from tercel.core.ledger import Job
from tercel.core.model import JobRow, QueueRow
from tercel.core.ready import rank
from tercel.core.shares import HALF_LIFE_S, Clock, Queue
from tercel.core.throttles import Rates


class Settings(msgspec.Struct, frozen=True):
    grace_s: float = 60.0
    """How long a worker may be away before its tasks are given to others."""
    half_life_s: float = HALF_LIFE_S
    """How fast what a queue has had is forgotten."""
    rates: Rates = Rates()
    """Throttles."""
    fixed_wave: int = 0
    """Conditions let go so many tasks at a time, always, as Tapis does; 0: ever more, while none comes back."""


class Accounts:
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        self.settings = settings
        self.jobs: dict[int, Job] = {}
        self.queues = {row.name: Queue(row) for row in loaded.queues}
        self._clock = Clock(now, settings.half_life_s)
        self._strays: dict[int, Flight] = {}
        """All strays of all jobs, by attempt."""

    def queue_of(self, row: JobRow) -> Queue:
        """By its name. A user's own queue needs no making."""
        name = row.spec.queue or row.owner
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(QueueRow(name=name, owner=row.owner))
        return queue

    def usage_of(self, queue: Queue) -> float:
        """Processor seconds that a queue has had lately. For people."""
        return max(0.0, queue.account.passed(self._clock) * queue.account.weight / self._clock.worth)

    def worth_of(self, flight: Flight, seconds: float) -> float:
        """So much of a processor (or several), until now."""
        return flight.lease.needs.millicpus / 1000 * self._clock.worth_of(max(0.0, seconds))

    def _advance(self, now: float) -> None:
        factor = self._clock.advance(now)
        if factor == 1.0:
            return
        for queue in self.queues.values():
            queue.scale(factor)
        books: dict[LeaseBook, None] = {}
        for job in self.jobs.values():
            job.due *= factor
            books |= dict.fromkeys(flight.lease for flight in job.flights.values())
        books |= dict.fromkeys(stray.lease for stray in self._strays.values())
        for book in books:
            book.charge *= factor
            if book.timed_from is not None:
                book.timed_from *= factor

    def _count(self, job: Job) -> bool:
        """Tell the accounts what has changed since they last heard of the job. Whether a cap has room again."""
        queue, user = job.queue, job.user
        if job.due:
            queue.account.usage += job.due
            user.usage += job.due
            job.due = 0.0
        more = len(job.flights) - job.counted
        if more:
            queue.account.under_way += more
            user.under_way += more
            job.counted += more
        # What waits for others does not count: it may wait for a job that stands back.
        queued = len(job.ready) + len(job.flights)
        if not job.admitted and queued:
            job.admitted = queue.admits
            if not job.admitted and not job.stands_back:
                job.stands_back = True
                heapq.heappush(queue.standing_back, rank(job))
        if job.admitted:
            queue.backlog += queued - job.queued
            job.queued = queued
            job.admitted = queued > 0
        return more < 0 and bool(queue.row.max_running or queue.row.user_max)

    def _time(self, job: Job, book: LeaseBook) -> None:
        book.timed_from = self._clock.worth
        for account in (job.queue.account, job.user):
            account.open(book.open * book.needs.millicpus / 1000, book.timed_from)

    def _stop_time(self, flight: Flight) -> None:
        if (since := flight.lease.timed_from) is not None:
            for account in (flight.job.queue.account, flight.job.user):
                account.close(flight.lease.needs.millicpus / 1000, since)

    def _go_on_with_time(self, flight: Flight) -> None:
        if (since := flight.lease.timed_from) is not None:
            for account in (flight.job.queue.account, flight.job.user):
                account.open(flight.lease.needs.millicpus / 1000, since)
