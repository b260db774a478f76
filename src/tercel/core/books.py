"""The books: jobs, workers, attempts and leases, and the moves that keep them in step with one another.

Every move of an attempt (issue, requeue, abandon, stray, close) changes the job's side, the worker's side and the
lease together, and notes what must become durable. Which event calls for which move is the machine's to decide.
"""

import heapq

import msgspec

from tercel.core.changes import Change, JobEnded, LeaseClosed, Leased, LiveJob, Loaded
from tercel.core.dispatch import Dispatcher
from tercel.core.effects import Effect, JobDone, Offered, Progressed
from tercel.core.ledger import Flight, Job, LeaseBook, Worker
from tercel.core.model import Lease
from tercel.core.ready import ReadyQueue
from tercel.core.states import TaskEvent, TaskState, next_state

EPOCH_BITS = 32
"""Attempt ids are epoch << 32 | counter: never repeated, and a larger one is a later one."""


class Settings(msgspec.Struct, frozen=True):
    grace_s: float = 60.0
    """How long a worker may be away before its tasks are given to others."""


class Books:
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        self.settings = settings
        self.epoch = loaded.epoch
        self.jobs: dict[int, Job] = {}
        self.workers: dict[str, Worker] = {}
        self.changes: list[Change] = []
        self.effects: list[Effect] = []
        self.ready = ReadyQueue()
        self._dispatcher = Dispatcher(self.workers, self.ready, self._issue)
        self._next_attempt = loaded.epoch << EPOCH_BITS
        self._deadlines: list[tuple[float, str]] = []
        self._hellos = 0
        self._cut: dict[LeaseBook, None] = {}
        """Leases with attempts to cut out at the next `take`."""
        self._strays: dict[int, Flight] = {}
        """All strays of all jobs, by attempt."""
        self._refusals: dict[str, set[int]] = {}
        """Which jobs each worker refused."""
        for live in loaded.jobs:
            self.restore(live)
        for lease in sorted(loaded.leases, key=lambda lease: lease.id):
            self._restore_lease(lease, now)
        for job in self.jobs.values():
            self._settle(job)

    def take(self) -> tuple[list[Change], list[Effect]]:
        """What is to be committed, and what to do after that."""
        for book in self._cut:
            gone, fresh = book.cut_out()
            self.changes += [Leased(lease) for lease in fresh]
            self.changes += [LeaseClosed(id) for id in gone]
        self._cut.clear()
        changes, effects = self.changes, self.effects
        self.changes, self.effects = [], []
        return changes, effects

    # -- after a restart ----------------------------------------------------------------------------------

    def restore(self, live: LiveJob) -> Job:
        """A job as the store has it; also one that had ended and is about to be retried."""
        job = Job(live.job)
        job.restore(live.finished, live.failed, live.cancelled)
        job.failures = dict(live.failures)
        self.jobs[job.id] = job
        return job

    def _restore_lease(self, lease: Lease, now: float) -> None:
        """Whoever held the lease may still hold its unfinished tasks: they wait for it, up to the grace time."""
        job = self.jobs.get(lease.job)
        book = LeaseBook(lease)
        book.open = 0
        worker = self.workers.get(lease.worker)
        if worker is None:
            worker = self.workers[lease.worker] = Worker(lease.worker, now)
            self._set_deadline(worker, now + self.settings.grace_s)
        if job is not None:
            for task in range(lease.first, lease.last + 1):
                earlier = job.flights.get(task)
                if earlier is None and task not in job.ready:
                    continue  # concluded
                if earlier is not None:
                    self._stray(earlier)
                job.ready.discard(task)
                flight = Flight(job, task, lease.id + task - lease.first, worker, book)
                job.flights[task] = flight
                worker.board(flight)
                book.open += 1
        if book.open == 0:
            self.changes.append(LeaseClosed(lease.id))

    # -- attempts and leases ------------------------------------------------------------------------------

    def _issue(self, job: Job, worker: Worker, count: int) -> None:
        """Give the first `count` ready tasks of a job to a worker: one lease per run of task numbers."""
        for first, last in job.ready.take_first(count):
            lease = Lease(self._next_attempt, worker.id, job.id, first, last)
            self._next_attempt += last - first + 1
            book = LeaseBook(lease)
            for task in range(first, last + 1):
                flight = Flight(job, task, lease.id + task - first, worker, book)
                job.flights[task] = flight
                worker.board(flight)
            self.changes.append(Leased(lease))
            self.effects.append(Offered(lease))
        self._settle(job)

    def _requeue(self, flight: Flight, event: TaskEvent) -> None:
        """An attempt that will not be reported: its task is ready again. The flight is off its worker already."""
        job, task = flight.job, flight.task
        if next_state(flight.state, event) is not TaskState.READY:
            return
        if flight.running_since is not None:
            job.running -= 1
        del job.flights[task]
        self._free(job, task)
        self._close(flight, again=False)
        self.effects.append(Progressed(job.id, [], []))

    def _free(self, job: Job, task: int) -> None:
        """Nobody has the task any more: it is ready, unless an attempt of it gave way whose worker may still come back."""
        for stray in job.strays.get(task, ()):
            worker = stray.worker
            if worker.since == stray.gave_way_at and not worker.online and not worker.given_up:
                self._promote(stray, worker)
                return
        job.ready.add(task)

    def _promote(self, stray: Flight, worker: Worker) -> None:
        """A stray is the attempt that counts again."""
        self._forget_stray(stray)
        stray.worker, stray.running_since, stray.gave_way_at = worker, None, None
        stray.job.flights[stray.task] = stray
        worker.board(stray)

    def _abandon(self, flight: Flight) -> None:
        """The task is settled without this attempt, which only still occupies its worker."""
        flight.ending = True
        if flight.running_since is not None:
            flight.job.running -= 1
        del flight.job.flights[flight.task]
        self._close(flight, again=True)

    def _stray(self, flight: Flight, release: bool = True) -> None:
        if release:
            flight.worker.release(flight)
        if flight.running_since is not None:
            flight.job.running -= 1
            flight.running_since = None
        flight.recalled = False
        flight.job.strays.setdefault(flight.task, []).append(flight)
        self._strays[flight.attempt] = flight

    def _find_stray(self, job: Job | None, task: int, attempt: int, worker: str) -> Flight | None:
        stray = self._strays.get(attempt)
        if stray is None or (stray.job, stray.task, stray.worker.id) != (job, task, worker):
            return None
        return stray

    def _forget_stray(self, stray: Flight) -> None:
        del self._strays[stray.attempt]
        others = stray.job.strays[stray.task]
        others.remove(stray)
        if not others:
            del stray.job.strays[stray.task]

    def _conclude_strays(self, job: Job, task: int, again: bool) -> None:
        for stray in job.strays.pop(task, ()):
            del self._strays[stray.attempt]
            self._close(stray, again)

    def _close(self, flight: Flight, again: bool) -> None:
        """An attempt is concluded; its lease is closed with the last one.

        `again`: its task may run again. Then a copy of its report (the worker did not hear our acknowledgement, or
        forgot that it did) must find nothing to settle, even if we start anew before the lease is closed.
        """
        book = flight.lease
        book.open -= 1
        if book.open == 0:
            self.changes += [LeaseClosed(row.id) for row in book.rows]
            book.rows, book.cut = [], []
        elif again:
            book.cut.append(flight.attempt)
            self._cut[book] = None

    # -- jobs ---------------------------------------------------------------------------------------------

    def _settle(self, job: Job) -> None:
        if self.ready.settle(job):
            self._dispatcher.work_appeared()

    def _settle_or_end(self, job: Job, now: float) -> None:
        if job.ended_count < job.task_count:
            self._settle(job)
            return
        self.ready.drop(job)
        self.jobs.pop(job.id, None)
        for worker in job.refused_by:
            self._refusals[worker].discard(job.id)
        if job.row.ended_at is None:
            counts = len(job.finished), len(job.failed), len(job.cancelled)
            self.changes.append(JobEnded(job.id, now, *counts))
            self.effects.append(JobDone(job.id, *counts))

    def _set_deadline(self, worker: Worker, at: float) -> None:
        worker.lost_at = at
        heapq.heappush(self._deadlines, (at, worker.id))
