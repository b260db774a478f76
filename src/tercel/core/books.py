"""The books: jobs, workers, attempts and leases, and the moves that keep them in step with one another.

Every move of an attempt (issue, requeue, abandon, stray, close) changes the job's side, the worker's side and the
lease together, and notes what must become durable. Which event calls for which move is the machine's to decide.
"""

import heapq
from collections.abc import Iterable

import msgspec

from tercel.core import graph
from tercel.core.accounts import Accounts, Settings
from tercel.core.changes import Change, JobEnded, LeaseClosed, Leased, LiveJob, Loaded
from tercel.core.dispatch import Dispatcher
from tercel.core.effects import Effect, Ended, JobDone, Offered, Progressed, Resumed
from tercel.core.filling import cost_of
from tercel.core.flights import Flight, LeaseBook
from tercel.core.inputs import Inputs, Keys
from tercel.core.intervals import IntervalSet, Range
from tercel.core.ledger import Job
from tercel.core.model import Lease, Needs
from tercel.core.names import FreeNames, Names
from tercel.core.ready import ReadyQueue
from tercel.core.saving import stop_saving
from tercel.core.shares import ADVANCE_MOST_S, Queue
from tercel.core.states import Stage, TaskEvent, TaskState, next_state
from tercel.core.throttles import StartThrottle, Throttle
from tercel.core.workers import Worker

EPOCH_BITS = 32
"""Attempt ids are epoch << 32 | counter: never repeated, and a larger one is a later one."""


class Books(Accounts):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self.epoch = loaded.epoch
        self.past: dict[int, Job] = {}
        """Jobs that have ended and that others (may) need."""
        self.pinned: dict[int, int] = {}
        """Jobs that must not be forgotten, for somebody is about to need them."""
        self.flows: dict[int, set[int]] = {}
        """Unfinished jobs that were submitted together."""
        self.workers: dict[str, Worker] = {}
        self.changes: list[Change] = []
        self.effects: list[Effect] = []
        self.names: Names = FreeNames()
        """Of files. Set by whoever keeps the catalogue."""
        self.ready = ReadyQueue(self._clock)
        self.switches = {row.name: row for row in loaded.switches}
        """What people turned off."""
        self.throttle = StartThrottle(settings.rates)
        self._transfers: Throttle[str] = Throttle(settings.rates.transfers)
        """By endpoint."""
        self._dispatcher = Dispatcher(self.workers, self.ready, self._clock, self, self.throttle)
        self._next_attempt = loaded.epoch << EPOCH_BITS
        self._deadlines: list[tuple[float, str]] = []
        self._hellos = 0
        self.ever: set[str] = set()
        """Attributes and resources that any worker has had: what nobody ever had may be misspelt."""
        self._timed = False
        """Whether there ever was a worker with a time limit: else nobody asks how long tasks take."""
        self._cut: dict[LeaseBook, None] = {}
        """Leases with attempts to cut out at the next `take`."""
        self._unserved: list[Worker] = []
        """They were to have tasks in this round that go on where they are kept, and may have others."""
        self._refusals: dict[str, set[int]] = {}
        """Which jobs each worker refused."""
        for live in loaded.past:
            self.past[live.job.id] = self._remembered(live)
        for live in loaded.jobs:
            self.restore(live)
        for lease in sorted(loaded.leases, key=lambda lease: lease.id):
            self._restore_lease(lease, now)

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

    def _change_files(self, change: Change) -> None:
        self.changes.append(change)
        self.names.note(change)

    # -- after a restart ----------------------------------------------------------------------------------

    def restore(self, live: LiveJob) -> Job:
        """A job as the store has it; also one that had ended and is about to be retried."""
        job = self.past.get(live.job.id) or self._remembered(live)
        self.bring_back(job)
        return job

    def bring_back(self, job: Job) -> None:
        """One that has ended and is remembered is about to have unfinished tasks again."""
        self.past.pop(job.id, None)
        job.queue = self.queue_of(job.row)  # the one it knew may have been removed since
        job.user = job.queue.user(job.row.owner)
        self._enter(job)

    def set_inputs(self, job: Job, keys: Keys | None) -> None:
        """What data each of its tasks takes, if its rank asks about that."""
        if keys is not None:
            self.ready.drop(job)
            job.inputs = Inputs(keys)
            self.settle(job)

    def _remembered(self, live: LiveJob) -> Job:
        job = Job(live.job, self.queue_of(live.job))
        job.restore(live.finished, live.failed, live.cancelled, live.skipped)
        for *_, ranges in live.blocked:
            job.ready.difference_update(IntervalSet(ranges))
            job.blocked.update(IntervalSet(ranges))
        job.failures = dict(live.failures)
        job.edges = live.edges
        job.left = IntervalSet((task, task) for task in sorted(live.left))
        return job

    def _enter(self, job: Job) -> None:
        self.jobs[job.id] = job
        if job.row.flow:
            self.flows.setdefault(job.row.flow, set()).add(job.id)

    def _restore_lease(self, lease: Lease, now: float) -> None:
        """Whoever held the lease may still hold its unfinished tasks: they wait for it, up to the grace time."""
        job = self.jobs.get(lease.job)
        book = LeaseBook(lease, job.needs if job is not None else Needs())
        book.open = 0
        worker = self._expect(lease.worker, now)
        if job is not None:
            for task in range(lease.first, lease.last + 1):
                self._restore_attempt(Flight(job, task, lease.id + task - lease.first, worker, book))
        if book.open == 0:
            self.changes.append(LeaseClosed(lease.id))

    def _restore_attempt(self, flight: Flight) -> None:
        """Unless its task was concluded."""
        job, task = flight.job, flight.task
        earlier = job.flights.get(task)
        if task in job.blocked:
            # By a later attempt: this one was thought lost, and may yet have finished the task.
            self._stray(flight, release=False)
            flight.outdone = True
        elif earlier is not None or task in job.ready:
            if earlier is not None:
                self._stray(earlier)
            job.ready.discard(task)
            job.flights[task] = flight
            flight.worker.board(flight)
        else:
            return
        flight.lease.open += 1

    def _expect(self, id: str, now: float) -> Worker:
        """A worker of before the restart: it may come back, up to the grace time."""
        worker = self.workers.get(id)
        if worker is None:
            worker = self.workers[id] = Worker(id, now)
            self._set_deadline(worker, now + self.settings.grace_s)
        return worker

    # -- attempts and leases ------------------------------------------------------------------------------

    def issue(self, job: Job, worker: Worker, tasks: list[Range]) -> None:
        """Give tasks of a job that were ready to a worker: one lease per run of task numbers."""
        if job.strays:
            tasks = self._without_parked(job, worker, tasks)
        charge = cost_of(job) * self._clock.worth
        timed = job.mean_wall_s is None or job.mean_wall_s > ADVANCE_MOST_S
        leases: list[Lease] = []
        before = self._next_attempt
        for first, last in tasks:
            lease = Lease(self._next_attempt, worker.id, job.id, first, last)
            self._next_attempt += last - first + 1
            book = LeaseBook(lease, job.needs, charge)
            if timed:
                self._time(job, book)
            for task in range(first, last + 1):
                flight = Flight(job, task, lease.id + task - first, worker, book)
                job.flights[task] = flight
                worker.board(flight)
            leases.append(lease)
            self.changes.append(Leased(lease))
        count = self._next_attempt - before
        job.due += charge * count
        self.throttle.take(worker.info.node, count, self._clock.now)
        if leases:
            self.effects.append(Offered(leases))

    # -- attempts that have run, and wait to deliver what they left ------------------------------------------

    def _without_parked(self, job: Job, worker: Worker, tasks: list[Range]) -> list[Range]:
        """Those of which nothing is kept at a worker that is there; the others go on at theirs."""
        going = [
            stray
            for first, last in tasks
            for task in range(first, last + 1)
            if (stray := parked_at_hand(job, task)) is not None
        ]
        if not going:
            return tasks
        self._unserved.append(worker)
        rest = IntervalSet(tasks)
        for stray in going:
            rest.discard(stray.task)
            self._resume(stray)
        return rest.ranges()

    def _resume(self, stray: Flight) -> None:
        """It goes on where it was kept, as the attempt that counts. Its task rests in no set any more."""
        worker = stray.worker
        self._promote(stray, worker)
        stray.moving, stray.running_since = Stage.STAGE_OUT, self._clock.now
        stray.job.running += 1
        worker.lighten(stray)
        last = self.effects[-1] if self.effects else None
        if isinstance(last, Resumed) and last.worker == worker.id:
            last.attempts.append(stray.attempt)
        else:
            self.effects.append(Resumed(worker.id, [stray.attempt]))

    def _requeue(self, flight: Flight, event: TaskEvent, again: bool = False) -> None:
        """An attempt that will not be reported (`again`: was): its task is ready again. It is off its worker already."""
        job, task = flight.job, flight.task
        if next_state(flight.state, event) is not TaskState.READY:
            return
        if flight.running_since is not None:
            job.running -= 1
        del job.flights[task]
        self._free(job, task)
        self._close(flight, again)
        self.effects.append(Progressed(job.id, [], []))

    def _free(self, job: Job, task: int) -> None:
        """Nobody has the task any more: it is ready, unless an attempt of it gave way whose worker may still come back."""
        for stray in job.strays.get(task, ()):
            worker = stray.worker
            if worker.since == stray.gave_way_at and not worker.online and not worker.given_up:
                self._promote(stray, worker)
                return
        job.rest(task)

    def _promote(self, stray: Flight, worker: Worker) -> None:
        """A stray is the attempt that counts again."""
        self._forget_stray(stray)
        stray.worker, stray.running_since, stray.gave_way_at, stray.outdone = worker, None, None, False
        stray.moving, stray.parked = None, False
        stray.job.flights[stray.task] = stray
        worker.board(stray)

    def _abandon(self, flight: Flight) -> None:
        """The task is settled without this attempt, which only still occupies its worker."""
        job = flight.job
        flight.ending = True
        if flight.running_since is not None:
            job.running -= 1
            job.due += self.worth_of(flight, self._clock.now - flight.running_since)
        del job.flights[flight.task]
        self._close(flight, again=True)

    def _land(self, flight: Flight, again: bool) -> None:
        """The attempt that counted is over. `again` as of `_close`."""
        del flight.job.flights[flight.task]
        if flight.running_since is not None:
            flight.job.running -= 1
        self._close(flight, again)

    @staticmethod
    def _outdo_strays(job: Job, task: int) -> None:
        for stray in job.strays.get(task, ()):
            stray.outdone = True

    def _stray(self, flight: Flight, release: bool = True) -> None:
        if release:
            flight.worker.release(flight)
        if flight.running_since is not None:
            flight.job.running -= 1
            flight.running_since = None
        flight.recalled, flight.moving = False, None
        flight.job.strays.setdefault(flight.task, []).append(flight)
        self._strays[flight.attempt] = flight
        self._stop_time(flight)  # nobody pays for what may not run any more

    def _find_stray(self, job: Job | None, task: int, attempt: int, worker: str) -> Flight | None:
        stray = self._strays.get(attempt)
        if stray is None or (stray.job, stray.task, stray.worker.id) != (job, task, worker):
            return None
        return stray

    def _no_stray(self, stray: Flight) -> None:
        """It counts again, if only to be closed."""
        del self._strays[stray.attempt]
        self._go_on_with_time(stray)

    def _forget_stray(self, stray: Flight) -> None:
        self._no_stray(stray)
        others = stray.job.strays[stray.task]
        others.remove(stray)
        if not others:
            del stray.job.strays[stray.task]

    def _conclude_strays(self, job: Job, task: int, again: bool) -> None:
        for stray in job.strays.pop(task, ()):
            if stray.parked and stray.worker.online:
                self._end_later(stray)  # nobody will tell it to go on
            self._no_stray(stray)
            self._close(stray, again)

    def _end_later(self, flight: Flight) -> None:
        """One message per worker and batch: between two, a lane could begin what the second one ends."""
        last = self.effects[-1] if self.effects else None
        if isinstance(last, Ended) and last.worker == flight.worker.id:
            last.attempts.append(flight.attempt)
        else:
            self.effects.append(Ended(flight.worker.id, [flight.attempt]))

    def _close(self, flight: Flight, again: bool) -> None:
        """An attempt is concluded; its lease is closed with the last one.

        `again`: its task may run again. Then a copy of its report (the worker did not hear our acknowledgement, or
        forgot that it did) must find nothing to settle, even if we start anew before the lease is closed.
        """
        book = flight.lease
        book.open -= 1
        flight.job.due -= book.charge
        self._stop_time(flight)
        if book.open == 0:
            self.changes += [LeaseClosed(row.id) for row in book.rows]
            book.rows, book.cut = [], []
        elif again:
            book.cut.append(flight.attempt)
            self._cut[book] = None

    def _fence(self, job: Job, tasks: IntervalSet) -> None:
        """Finished tasks are to run again: their attempts leave the leases that others keep open, as in `_close`."""
        strays = (stray for strays in job.strays.values() for stray in strays)
        for book in dict.fromkeys(flight.lease for flight in (*job.flights.values(), *strays)):
            for row in book.rows:
                for task in tasks.intersection(IntervalSet([(row.first, row.last)])):
                    book.cut.append(row.id + task - row.first)
                    self._cut[book] = None

    def book_transfers(self, endpoints: Iterable[str], now: float) -> float:
        """In how many seconds a file may be moved that burdens all of these. Each has a slot of it taken."""
        return max((self._transfers.book(endpoint, now) - now for endpoint in endpoints), default=0.0)

    # -- jobs ---------------------------------------------------------------------------------------------

    def _account(self, job: Job) -> None:
        if self._count(job):
            self._dispatcher.work_appeared()  # for others in the queue, on workers that had room before

    def _admit_more(self, queue: Queue) -> None:
        """Jobs that stood back, if the queue has become short enough for them."""
        while queue.standing_back and queue.admits:
            job = self.jobs.get(heapq.heappop(queue.standing_back)[1])
            if job is not None:
                job.stands_back = False
                self.settle(job)

    def find(self, id: int) -> Job | None:
        """A job, also one that has ended if it is needed."""
        return self.jobs.get(id) or self.past.get(id)

    def pin(self, id: int) -> None:
        self.pinned[id] = self.pinned.get(id, 0) + 1

    def unpin(self, id: int) -> None:
        self.pinned[id] -= 1
        if not self.pinned[id]:
            del self.pinned[id]
        self._forget_past(id)

    def remember(self, live: LiveJob) -> None:
        """A job that has ended and is about to be needed; it must be pinned."""
        id = live.job.id
        if self.find(id) is None:
            self.past[id] = self._remembered(live)

    def _forget_past(self, id: int) -> None:
        job = self.past.get(id)
        if job is not None and not job.dependents and id not in self.pinned:
            del self.past[id]

    def settle(self, job: Job) -> None:
        self._account(job)
        if job.queue.standing_back:
            self._admit_more(job.queue)
        if self.ready.settle(job):
            self._dispatcher.work_appeared()
        if job.saver is not None and job.id not in self.ready:
            self._stop_saving(job)

    def _stop_saving(self, job: Job) -> None:
        if (worker := stop_saving(job)) is not None:
            self._dispatcher.worker_changed(worker)

    def _settle_or_end(self, job: Job, now: float) -> None:
        if job.ended_count < job.task_count:
            self.settle(job)
            return
        self.ready.drop(job)
        self._stop_saving(job)
        self._leave(job)
        self._forgive_job(job)
        if job.row.ended_at is None:
            counts = len(job.finished), len(job.failed), len(job.cancelled)
            self.changes.append(JobEnded(job.id, now, *counts))
            self.effects.append(JobDone(job.id, *counts))
            job.row = msgspec.structs.replace(
                job.row, ended_at=now, finished=counts[0], failed=counts[1], cancelled=counts[2]
            )

    def _forgive_job(self, job: Job) -> None:
        """No worker refuses it any more: it has ended, or what they lacked may be there again."""
        for worker in job.refused_by:
            self._refusals[worker].discard(job.id)
        job.refused_by.clear()

    def _leave(self, job: Job) -> None:
        """It has ended: it stays known only to those who need it, or are about to."""
        self._account(job)
        job.admitted = job.stands_back = False
        if job.queue.standing_back:
            self._admit_more(job.queue)
        if self.jobs.pop(job.id, None) is None:
            return
        if (flow := self.flows.get(job.row.flow)) is not None:
            flow.discard(job.id)
            if not flow:
                del self.flows[job.row.flow]
        for needed in graph.detach(job, self.find):
            if (other := self.find(needed)) is not None:
                other.dependents.pop(job.id, None)
                self._forget_past(needed)
        if job.dependents or job.id in self.pinned:
            self.past[job.id] = job

    def _set_deadline(self, worker: Worker, at: float) -> None:
        worker.lost_at = at
        heapq.heappush(self._deadlines, (at, worker.id))


def parked_at_hand(job: Job, task: int) -> Flight | None:
    """The attempt of a task that has run, and what it left is kept at a worker that is there."""
    for stray in job.strays.get(task, ()):
        if stray.parked and stray.worker.online:
            return stray
    return None
