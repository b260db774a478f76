"""Workers come, go and come back: their books and ours are brought together.

What a worker holds is in both its books and ours, and they may differ after any trouble: a frame was lost, the manager
was restarted, the worker was away for longer than its grace time. Its Hello names all it holds; whatever we think it has
beside that is ready again, and of what it has, each attempt goes on unless its task is in better hands.
"""

import heapq
from collections.abc import Iterable, Sequence

from tercel.core.booking import Booking
from tercel.core.books import parked_at_hand
from tercel.core.changes import AttemptLost
from tercel.core.demands import told_by
from tercel.core.effects import Drained, Progressed, Resumed, Welcomed
from tercel.core.flights import Flight
from tercel.core.ledger import Job
from tercel.core.model import Needs
from tercel.core.presence import Facts, Held, WorkerInfo, WorkerState
from tercel.core.reports import Blame, End, Outcome, Report
from tercel.core.states import Stage, TaskEvent, TaskState, next_state
from tercel.core.workers import Worker

WAS_CLEANING = "was cleaning up; it is expected back"
FORGET_OFFLINE_S = 3600.0
"""A worker that is gone and holds nothing is shown in the pool for so long."""


class Joining(Booking):
    # -- coming -------------------------------------------------------------------------------------------

    def on_hello(self, id: str, instance: str, info: WorkerInfo, held: Sequence[Held], now: float) -> int:
        """A worker joins or comes back: bring its books and ours together. Returns the number of this Hello."""
        worker = self.workers.get(id)
        if worker is None:
            worker = self.workers[id] = Worker(id, now)
        if worker.instance != instance:
            self._forgive_refusals(id)
            worker.draining, worker.note = False, ""
        if worker.note == WAS_CLEANING:
            worker.note = ""
        worker.instance = instance
        worker.describe(info, now)
        self.ever |= told_by(worker)
        self._timed = self._timed or worker.ends_at is not None
        worker.online, worker.lost_at, worker.since, worker.given_up = True, None, now, False
        self._seat(worker, now)
        holds = {h.attempt: h for h in held}
        if any(f.running_since is not None and f.attempt not in holds for f in worker.flights.values()):
            self._book_loss(worker, now)
        worker.reported_state = WorkerState.AVAILABLE
        for flight in list(worker.flights.values()):
            if flight.attempt not in holds:
                worker.release(flight)
                if not flight.ending:
                    self._note_lost(flight, now, "its worker came back without it")
                    self._requeue(flight, TaskEvent.LOSE)
                    self.settle(flight.job)
        drop = [h.attempt for h in holds.values() if not self._still_wanted(worker, h, now)]
        self._hellos += 1
        self.effects.append(Welcomed(id, drop, self._hellos))
        self._resume_all(worker, [h for h in held if h.parked])
        if worker.draining:
            self.effects.append(Drained(id))  # it may have missed the first
        self._dispatcher.worker_changed(worker)
        return self._hellos

    def _still_wanted(self, worker: Worker, held: Held, now: float) -> bool:
        """Whether the worker should go on with an attempt it says it holds."""
        if held.parked and held.attempt not in worker.flights:
            return self._stays_parked(worker, held)
        flight = worker.flights.get(held.attempt) or self._reclaim(worker, held, now)
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

    def _stays_parked(self, worker: Worker, held: Held) -> bool:
        """Whether what an attempt left is to be kept: not if its task has ended, or is in hands that do it anew."""
        job = self.jobs.get(held.job)
        stray = self._find_stray(job, held.task, held.attempt, worker.id)
        if job is None or stray is None:
            return False
        current = job.flights.get(held.task)
        stray.worker = worker  # the one it was given to may have been forgotten meanwhile
        stray.parked = current is None or not current.worker.online
        return stray.parked

    def _resume_all(self, worker: Worker, parked: Iterable[Held]) -> None:
        """Those of which the task waits for nothing any more, or that were told so on a link that is gone."""
        for held in parked:
            job = self.jobs.get(held.job)
            flight = worker.flights.get(held.attempt)
            if flight is not None and not flight.ending:
                flight.moving = Stage.STAGE_OUT
                worker.lighten(flight)
                self.effects.append(Resumed(worker.id, [held.attempt]))
            elif job is not None and held.task in job.ready and job.cap_room > 0:
                self._resume_ready(job, held.task)

    def _resume_ready(self, job: Job, task: int) -> None:
        """A ready task goes on at the worker that keeps what it left. Of one that is away it waits for that, up to the grace time."""
        stray = parked_at_hand(job, task) or _expected_back(job, task)
        if stray is None or job.cap_room <= 0:
            return
        job.ready.discard(task)
        if stray.worker.online:
            self._resume(stray)
        else:
            self._promote(stray, stray.worker)  # it is told to go on when it says that it still has it
        self.settle(job)

    def _reclaim(self, worker: Worker, held: Held, now: float) -> Flight | None:
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
        elif any(held.task in members for members in job.resting) and job.cap_room > 0:
            self._take_out(job, held.task, now)
        else:
            return None
        self._promote(stray, worker)
        self.settle(job)
        return stray

    def _give_way(self, flight: Flight) -> None:
        """To an attempt that is known to go on, while this one's worker is away and may never have heard of it."""
        del flight.job.flights[flight.task]
        self._stray(flight)
        flight.gave_way_at = flight.worker.since

    def on_presence(
        self, id: str, state: WorkerState, capacity: Needs, now: float, facts: Facts | None = None
    ) -> None:
        worker = self.workers[id]
        if facts is not None and facts != worker.facts:
            worker.facts = facts
            worker.forget_attributes()
            self._dispatcher.worker_changed(worker)
        if state is WorkerState.DRAINING and not worker.draining:
            worker.draining, worker.since = True, now
        worker.reported_state = state
        if capacity != worker.capacity:
            worker.give(capacity)
            self._dispatcher.worker_changed(worker)
        if worker.ends_at is not None and self.ready.significant.asks_time:
            self._dispatcher.worker_changed(worker)  # it has less of it left by now

    def on_cached(self, id: str, kept: Iterable[tuple[str, int]], gone: Iterable[str]) -> None:
        """What data it has now, and has not any more. Ranks go by it from the next round on."""
        cached = self.workers[id].cached
        cached.update(kept)
        for key in gone:
            cached.pop(key, None)

    def on_stages(self, id: str, bringing: Iterable[int], delivering: Iterable[int], now: float) -> None:
        """It brings the files of some attempts, and delivers what others left."""
        flights = self.workers[id].flights
        for stage, attempts in ((Stage.STAGE_IN, bringing), (Stage.STAGE_OUT, delivering)):
            event = TaskEvent.STAGE if stage is Stage.STAGE_IN else TaskEvent.DELIVER
            for attempt in attempts:
                flight = flights.get(attempt)
                if flight is None or flight.ending or next_state(flight.state, event) is None:
                    continue
                if stage is Stage.STAGE_OUT and flight.running_since is None:
                    self._mark_running(flight, now)
                flight.moving = stage
                if stage is Stage.STAGE_OUT:
                    flight.worker.lighten(flight)
                    self._dispatcher.worker_changed(flight.worker)
                self.effects.append(Progressed(flight.job.id, [], []))

    def _mark_running(self, flight: Flight, now: float) -> None:
        if next_state(flight.state, TaskEvent.START) is TaskState.RUNNING:
            flight.running_since, flight.moving = now, None
            flight.recalled = False
            flight.job.running += 1

    # -- going --------------------------------------------------------------------------------------------

    def on_link_closed(self, id: str, now: float) -> None:
        worker = self.workers[id]
        if worker.state is WorkerState.CLEANING:
            worker.note = (
                WAS_CLEANING  # it may well start its machine anew: nothing of it is missing anywhere
            )
        worker.online, worker.since = False, now
        worker.cached = {}  # it says anew what it has kept
        self._set_deadline(worker, now + self.settings.grace_s)

    def on_bye(self, id: str, now: float) -> None:
        """The worker left of its own will and holds nothing, but for what it keeps on its disk."""
        worker = self.workers[id]
        for flight in list(worker.flights.values()):
            worker.release(flight)
            if flight.ending:
                continue
            self._note_lost(flight, now, "its worker left")
            if flight.moving is Stage.STAGE_OUT:  # it was told to go on, and may not have heard that
                self._stray(flight, release=False)
                del flight.job.flights[flight.task]
                self._free(flight.job, flight.task)
                self.effects.append(Progressed(flight.job.id, [], []))
            else:
                self._requeue(flight, TaskEvent.LOSE)
            self.settle(flight.job)
        worker.online, worker.since, worker.note = False, now, "left"
        self._set_deadline(worker, now)
        self._give_up_on(worker, now)

    def _give_up_on(self, worker: Worker, now: float) -> None:
        """It is not expected back."""
        worker.given_up = True
        self._spare_the_last(now)

    def on_drain(self, id: str, now: float) -> None:
        worker = self.workers[id]
        if not worker.draining:
            worker.draining, worker.since = True, now
            self.effects.append(Drained(id))
            self._spare_the_last(now)

    # -- from the clock -----------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        due = [heap[0][0] for heap in (self._deadlines, self._delays) if heap]
        return min((*due, *self._standing_deadlines()), default=None)

    def tick(self, now: float) -> None:
        """Give up workers that have been away for too long; forget those long gone. Begin tries that are due."""
        self._advance(now)
        self._end_delays(now)
        self._tick_standing(now)
        while self._deadlines and self._deadlines[0][0] <= now:
            at, id = heapq.heappop(self._deadlines)
            worker = self.workers.get(id)
            if worker is None or worker.lost_at != at:
                continue  # it came back, or its deadline was moved
            self._give_up_on(worker, now)
            if worker.flights:
                self._lose(worker, now)
            elif now - worker.since >= FORGET_OFFLINE_S:
                self._forgive_refusals(id)
                if worker.saving_for is not None:
                    self._stop_saving(worker.saving_for)
                del self.workers[id]
                self._forget_faults(id, now)
                continue
            self._set_deadline(worker, max(now, worker.since) + FORGET_OFFLINE_S)

    def _lose(self, worker: Worker, now: float) -> None:
        """Give its tasks to others. Its attempts stay known: their reports may come after all."""
        jobs: dict[int, Job] = {}
        if any(flight.running_since is not None for flight in worker.flights.values()):
            self._book_loss(worker, now)
        for flight in list(worker.flights.values()):
            worker.release(flight)
            if not flight.ending and next_state(flight.state, TaskEvent.LOSE) is TaskState.READY:
                job = jobs[flight.job.id] = flight.job
                self._note_lost(flight, now, "its worker was lost")
                self._stray(flight, release=False)
                del job.flights[flight.task]
                self._free(job, flight.task)
        for job in jobs.values():
            self.effects.append(Progressed(job.id, [], []))
            self.settle(job)

    # -- for the task's history ---------------------------------------------------------------------------

    def _note_lost(self, flight: Flight, now: float, why: str) -> None:
        """It ran, and is given up on. Nobody's fault but the infrastructure's; people want to see it all the same."""
        if flight.running_since is None:
            return
        ran_s = max(0.0, now - flight.running_since)
        ids = (flight.job.id, flight.task, flight.attempt)
        report = Report(*ids, End.INTERRUPTED, 0, flight.running_since, ran_s, 0.0, 0, why)
        self.changes.append(
            AttemptLost(Outcome(TaskState.CANCELLED, flight.worker.id, now, report, Blame.WORKER))
        )


def _expected_back(job: Job, task: int) -> Flight | None:
    """The last attempt of a task whose worker may come back, and has it still."""
    away = [stray for stray in job.strays.get(task, ()) if not (stray.worker.online or stray.worker.given_up)]
    return max(away, key=lambda stray: stray.attempt, default=None)
