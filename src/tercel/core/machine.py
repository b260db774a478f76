"""Events in; changes to commit and effects to perform out.

    on_accepted  on_cancel  on_retry                       from clients
    on_hello  on_presence  on_started  on_reports  on_returned  on_bye  on_link_closed     from workers
    tick                                                    from the clock

Each moves the ledger and appends to `changes` and `effects`. The service calls `round` after a batch of events,
then `take`s both, commits the changes, and only then performs the effects. The ledger is thus a little ahead of
the disk; after a crash the new machine is built from what was committed, and workers say the rest again.

Blame: a report that an attempt ended by the worker's doing, and the loss of a worker, return the task to `ready`
and spend none of its retries.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tercel.core.books import Books
from tercel.core.changes import (
    AttemptSpent,
    Concluded,
    JobResumed,
    Reopened,
    SpanConcluded,
)
from tercel.core.effects import Acknowledged, Drained, Ended, Progressed, Welcomed
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Flight, Job, Worker
from tercel.core.model import (
    End,
    Held,
    JobRow,
    Needs,
    Outcome,
    Report,
    WorkerInfo,
    WorkerState,
)
from tercel.core.states import TaskEvent, TaskState, next_state

FORGET_OFFLINE_S = 3600.0
"""A worker that is gone and holds nothing is shown in the pool for so long."""


class Machine(Books):
    def round(self) -> None:
        """Offer what can be offered, take back what should be."""
        self.effects += self._dispatcher.round()

    # -- from clients -------------------------------------------------------------------------------------

    def on_accepted(self, row: JobRow) -> Job:
        """A submission whose commit is done."""
        job = self.jobs[row.id] = Job(row)
        self._settle(job)
        return job

    def on_cancel(self, job: Job, tasks: IntervalSet, reason: str, now: float) -> int:
        """End the unfinished ones among `tasks`. Returns how many."""
        doomed = job.ready.intersection(tasks)
        job.ready.difference_update(doomed)
        kills: dict[str, list[int]] = {}
        for task in _members(job.flights, tasks):
            flight = job.flights[task]
            self._abandon(flight)
            kills.setdefault(flight.worker.id, []).append(flight.attempt)
            self._conclude_strays(job, task, again=True)
            doomed.add(task)
        for first, last in doomed.ranges():
            self.changes.append(SpanConcluded(job.id, first, last, TaskState.CANCELLED, now, reason))
        for task in _members(job.strays, doomed):
            self._conclude_strays(job, task, again=True)
        for told in (job.failures, job.interruptions):
            for task in _members(told, doomed):
                del told[task]
        job.cancelled.update(doomed)
        self.effects += [Ended(worker, attempts) for worker, attempts in kills.items()]
        if doomed:
            self.effects.append(Progressed(job.id, [], []))
            self._settle_or_end(job, now)
        return len(doomed)

    def on_retry(self, job: Job, tasks: IntervalSet, now: float) -> int:
        """Run again the failed and cancelled ones among `tasks`. Returns how many."""
        again = IntervalSet()
        for state in (TaskState.FAILED, TaskState.CANCELLED):
            if next_state(state, TaskEvent.RETRY) is TaskState.READY:
                members = job.ended_in(state)
                chosen = members.intersection(tasks)
                members.difference_update(chosen)
                again.update(chosen)
        if again:
            if job.row.ended_at is not None:
                self.changes.append(JobResumed(job.id))
                job.row = msgspec.structs.replace(job.row, ended_at=None)
            self.changes.append(Reopened(job.id, tuple(again.ranges())))
            job.ready.update(again)
            self.effects.append(Progressed(job.id, [], []))
        self._settle_or_end(job, now)
        return len(again)

    # -- from workers -------------------------------------------------------------------------------------

    def on_hello(self, id: str, instance: str, info: WorkerInfo, held: Sequence[Held], now: float) -> int:
        """A worker joins or comes back: bring its books and ours together. Returns the number of this Hello."""
        worker = self.workers.get(id)
        if worker is None:
            worker = self.workers[id] = Worker(id, now)
        if worker.instance != instance:
            self._forgive_refusals(id)
            worker.draining, worker.note = False, ""
        worker.instance, worker.info, worker.capacity = instance, info, info.capacity
        worker.online, worker.lost_at, worker.since, worker.given_up = True, None, now, False
        worker.reported_state = WorkerState.AVAILABLE
        holds = {h.attempt: h for h in held}
        for flight in list(worker.flights.values()):
            if flight.attempt not in holds:
                worker.release(flight)
                if not flight.ending:
                    self._requeue(flight, TaskEvent.LOSE)
                    self._settle(flight.job)
        drop = [h.attempt for h in holds.values() if not self._still_wanted(worker, h, now)]
        self._hellos += 1
        self.effects.append(Welcomed(id, drop, self._hellos))
        if worker.draining:
            self.effects.append(Drained(id))  # it may have missed the first
        self._dispatcher.worker_changed(worker)
        return self._hellos

    def _forgive_refusals(self, worker: str) -> None:
        """A restarted worker may be able to run what it refused before; one that is forgotten refuses nothing."""
        for id in self._refusals.pop(worker, ()):
            if (job := self.jobs.get(id)) is not None:
                job.refused_by.pop(worker, None)
                self._settle(job)

    def _still_wanted(self, worker: Worker, held: Held, now: float) -> bool:
        """Whether the worker should go on with an attempt it says it holds."""
        flight = worker.flights.get(held.attempt) or self._reclaim(worker, held)
        if held.ended:
            return True  # its report follows and is judged when it comes
        if flight is None:
            return False
        flight.recalled = False  # what was asked on the old link may not have arrived
        if flight.ending:
            worker.release(flight)
        elif held.started:
            self._mark_running(flight, now)
        return not flight.ending

    def _reclaim(self, worker: Worker, held: Held) -> Flight | None:
        """An attempt given up as lost is back: take it up again unless the task is in better hands.

        Also if it has ended: until its report is here, the task must not be given to anybody.
        """
        job = self.jobs.get(held.job)
        stray = self._find_stray(job, held.task, held.attempt, worker.id)
        if job is None or stray is None:
            return None
        current = job.flights.get(held.task)
        if current is not None:
            if held.ended or current.worker.online:
                return None  # a stray stays one: if it is reported after all, that counts
            self._give_way(current)
        elif held.task in job.ready and job.cap_room > 0:
            job.ready.discard(held.task)
        else:
            return None
        self._promote(stray, worker)
        self._settle(job)
        return stray

    def _give_way(self, flight: Flight) -> None:
        """To an attempt that is known to go on, while this one's worker is away and may never have heard of it."""
        del flight.job.flights[flight.task]
        self._stray(flight)
        flight.gave_way_at = flight.worker.since

    def on_presence(self, id: str, state: WorkerState, capacity: Needs, now: float) -> None:
        worker = self.workers[id]
        if state is WorkerState.DRAINING and not worker.draining:
            worker.draining, worker.since = True, now
        worker.reported_state = state
        if capacity != worker.capacity:
            worker.capacity = capacity
            self._dispatcher.worker_changed(worker)

    def on_started(self, id: str, attempts: Iterable[int], now: float) -> None:
        worker = self.workers[id]
        for attempt in attempts:
            flight = worker.flights.get(attempt)
            if flight is not None and not flight.ending:
                self._mark_running(flight, now)
                self.effects.append(Progressed(flight.job.id, [], []))
        if worker.overbooked:
            self._dispatcher.worker_changed(worker)  # what waits behind these will wait for long

    def _mark_running(self, flight: Flight, now: float) -> None:
        if next_state(flight.state, TaskEvent.START) is TaskState.RUNNING:
            flight.running_since = now
            flight.recalled = False
            flight.job.running += 1

    def on_returned(self, id: str, attempts: Iterable[int]) -> None:
        """Tasks that the worker did not start and does not hold any more."""
        worker = self.workers[id]
        for attempt in attempts:
            flight = worker.flights.get(attempt)
            if flight is None:
                continue
            worker.release(flight)
            if not flight.ending:
                back = next_state(flight.state, TaskEvent.TAKE_BACK)
                self._requeue(flight, TaskEvent.LOSE if back is None else TaskEvent.TAKE_BACK)
                self._settle(flight.job)
        self._dispatcher.worker_changed(worker)

    def knows(self, id: str, attempt: int) -> bool:
        """Whether this worker was given this attempt and may still report it."""
        if attempt in self.workers[id].flights:
            return True
        stray = self._strays.get(attempt)
        return stray is not None and stray.worker.id == id

    def on_reports(self, id: str, reports: Sequence[Report], now: float) -> None:
        worker = self.workers[id]
        news: dict[int, Progressed] = {}
        touched: dict[int, Job] = {}
        for report in reports:
            job = self.jobs.get(report.job)
            flight = self._claim(worker, job, report)
            if flight is None:
                continue
            job = flight.job
            touched[job.id] = job
            if self._judge(worker, flight, report, now):
                ended = news.get(job.id)
                if ended is None:
                    ended = news[job.id] = Progressed(job.id, [], [])
                ended.ended.append(flight.task)
                if report.out is not None or report.err is not None:
                    ended.spoke.append(flight.task)
        self.effects.append(Acknowledged(id, [report.attempt for report in reports]))
        self.effects += news.values()
        for job in touched.values():
            self._settle_or_end(job, now)
        self._dispatcher.worker_changed(worker)

    def _claim(self, worker: Worker, job: Job | None, report: Report) -> Flight | None:
        """The flight a report speaks of, taken off its worker; None if the report is of no consequence."""
        flight = worker.flights.get(report.attempt)
        if flight is not None:
            worker.release(flight)
            if flight.job.id != report.job or flight.task != report.task:
                worker.note = f"reported attempt {report.attempt} under another task's name"
                if not flight.ending:
                    self._requeue(flight, TaskEvent.LOSE)  # it will hear no better report
                    self._settle(flight.job)
                return None
            worker.completed += 1
            return None if flight.ending else flight
        stray = self._find_stray(job, report.task, report.attempt, worker.id)
        if stray is None and job is not None:
            self._note_lie(worker, job, report)
        return stray

    def _note_lie(self, worker: Worker, job: Job, report: Report) -> None:
        """A report that settles nothing is mostly a late one; some cannot be true."""
        current = job.flights.get(report.task)
        if job.state_of(report.task) is None:
            worker.note = f"reported task {report.job}.{report.task}, which does not exist"
        elif report.attempt >= self._next_attempt or (current and current.attempt == report.attempt):
            worker.note = f"reported attempt {report.attempt} of task {report.job}.{report.task}, which it was not given"

    def _judge(self, worker: Worker, flight: Flight, report: Report, now: float) -> bool:
        """Move the task by what the report says. True if the task has ended."""
        job, task = flight.job, flight.task
        if report.end in (End.REFUSED, End.INTERRUPTED, End.CANCELLED):
            # CANCELLED too: had we asked for it, the flight would be `ending` and never come here.
            if report.end is End.INTERRUPTED:
                job.interruptions[task] = (job.interruptions.get(task, (0, ""))[0] + 1, report.note)
            elif report.end is End.REFUSED:
                job.refused_by[worker.id] = report.note
                self._refusals.setdefault(worker.id, set()).add(job.id)
            if job.flights.get(task) is flight:
                self._requeue(flight, TaskEvent.LOSE)
            else:
                self._forget_stray(flight)
                self._close(flight, again=False)
            return False
        event = self._verdict(job, task, report)
        before = job.state_of(task)
        after = next_state(before, event) if before is not None else None
        if after is None:
            return False
        if report.end is End.EXITED:
            mean = report.wall_s if job.mean_wall_s is None else job.mean_wall_s
            job.mean_wall_s = mean + 0.1 * (report.wall_s - mean)
        self._supersede(flight, again=after is not TaskState.FINISHED)
        outcome = Outcome(TaskState.FAILED if after is TaskState.READY else after, worker.id, now, report)
        if after is TaskState.READY:
            job.failures[task] = job.failures.get(task, 0) + 1
            job.ready.add(task)
            self.changes.append(AttemptSpent(outcome))
            return False
        job.ended_in(after).add(task)
        if job.failures:
            job.failures.pop(task, None)
        if job.interruptions:
            job.interruptions.pop(task, None)
        self.changes.append(Concluded(outcome))
        return True

    def _verdict(self, job: Job, task: int, report: Report) -> TaskEvent:
        if report.end is End.EXITED and report.code == 0:
            return TaskEvent.FINISH
        if job.failures.get(task, 0) < job.row.spec.retries:
            return TaskEvent.TRY_AGAIN
        return TaskEvent.FAIL

    def _supersede(self, flight: Flight, again: bool) -> None:
        """The report of `flight` settles its task: take the task out of wherever it is."""
        job, task = flight.job, flight.task
        current = job.flights.get(task)
        if current is flight:
            del job.flights[task]
            if flight.running_since is not None:
                job.running -= 1
            self._close(flight, again)
        elif current is not None:  # a late report: its task is under way again elsewhere
            self._abandon(current)
            self._end_later(current)
        else:
            job.ready.discard(task)
        if job.strays:
            self._conclude_strays(job, task, again)

    def _end_later(self, flight: Flight) -> None:
        """One message per worker and batch: between two, a lane could begin what the second one ends."""
        last = self.effects[-1] if self.effects else None
        if isinstance(last, Ended) and last.worker == flight.worker.id:
            last.attempts.append(flight.attempt)
        else:
            self.effects.append(Ended(flight.worker.id, [flight.attempt]))

    def on_link_closed(self, id: str, now: float) -> None:
        worker = self.workers[id]
        worker.online, worker.since = False, now
        self._set_deadline(worker, now + self.settings.grace_s)

    def on_bye(self, id: str, now: float) -> None:
        """The worker left of its own will and holds nothing."""
        worker = self.workers[id]
        for flight in list(worker.flights.values()):
            worker.release(flight)
            if not flight.ending:
                self._requeue(flight, TaskEvent.LOSE)
                self._settle(flight.job)
        worker.online, worker.since, worker.given_up = False, now, True
        worker.note = "left"
        self._set_deadline(worker, now)

    def on_drain(self, id: str, now: float) -> None:
        worker = self.workers[id]
        if not worker.draining:
            worker.draining, worker.since = True, now
            self.effects.append(Drained(id))

    # -- from the clock -----------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        return self._deadlines[0][0] if self._deadlines else None

    def tick(self, now: float) -> None:
        """Give up workers that have been away for too long; forget those long gone."""
        while self._deadlines and self._deadlines[0][0] <= now:
            at, id = heapq.heappop(self._deadlines)
            worker = self.workers.get(id)
            if worker is None or worker.lost_at != at:
                continue  # it came back, or its deadline was moved
            worker.given_up = True
            if worker.flights:
                self._lose(worker)
            elif now - worker.since >= FORGET_OFFLINE_S:
                self._forgive_refusals(id)
                del self.workers[id]
                continue
            self._set_deadline(worker, max(now, worker.since) + FORGET_OFFLINE_S)

    def _lose(self, worker: Worker) -> None:
        """Give its tasks to others. Its attempts stay known: their reports may come after all."""
        jobs = {}
        for flight in list(worker.flights.values()):
            worker.release(flight)
            if not flight.ending and next_state(flight.state, TaskEvent.LOSE) is TaskState.READY:
                job = jobs[flight.job.id] = flight.job
                self._stray(flight, release=False)
                del job.flights[flight.task]
                self._free(job, flight.task)
        for job in jobs.values():
            self.effects.append(Progressed(job.id, [], []))
            self._settle(job)


def _members(facts: Mapping[int, object], tasks: IntervalSet) -> list[int]:
    """Those of `tasks` that there are facts about, in order; looking through the smaller of the two."""
    if len(tasks) < len(facts):
        return [task for task in tasks if task in facts]
    return sorted(task for task in facts if task in tasks)
