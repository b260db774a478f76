"""Events in; changes to commit and effects to perform out.

    on_accepted  on_cancel  on_retry                       from clients
    on_hello  on_presence  on_started  on_reports  on_returned  on_bye  on_link_closed     from workers
    tick                                                    from the clock

Each moves the ledger and appends to `changes` and `effects`. The service calls `round` after a batch of events,
then `take`s both, commits the changes, and only then performs the effects. The ledger is thus a little ahead of
the disk; after a crash the new machine is built from what was committed, and workers say the rest again.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tercel.core.changes import Edge, QueueRemoved, QueueSet, SwitchSet
from tercel.core.conditions import SwitchRow
from tercel.core.effects import Acknowledged, Ended, Parked, Progressed
from tercel.core.flights import Flight
from tercel.core.inputs import Inputs, Keys
from tercel.core.intervals import IntervalSet
from tercel.core.judging import Judging
from tercel.core.ledger import Job
from tercel.core.model import BlockRule, JobRow, QueueRow
from tercel.core.reports import Report
from tercel.core.shares import Queue
from tercel.core.states import TaskEvent, next_state
from tercel.core.workers import Worker

NOTHING_KNOWN: Mapping[int, BlockRule] = MappingProxyType({})


class Machine(Judging):
    def round(self) -> None:
        """Offer what can be offered, take back what should be."""
        self._grow()
        self.effects += self._dispatcher.round()
        if self._grow():
            self.effects += self._dispatcher.round()
        while self._unserved:
            for worker in self._unserved:
                self._dispatcher.worker_changed(worker)
            self._unserved.clear()
            self.effects += self._dispatcher.round()

    # -- from clients -------------------------------------------------------------------------------------

    def on_accepted(
        self,
        row: JobRow,
        edges: Sequence[Edge] = (),
        now: float = 0.0,
        inputs: Keys | None = None,
    ) -> Job:
        """A submission whose commit is done. The jobs that it needs are known here, or pinned.

        `inputs`: what data its tasks take, if its rank asks about that.
        """
        job = Job(row, self.queue_of(row))
        job.edges = edges
        job.inputs = Inputs(inputs) if inputs is not None else None
        self._enter(job)
        if edges or row.spec.after or row.held:
            self._attach(job, now)
        else:
            self.settle(job)
        self._gate(job, job.ready, now)
        return job

    def on_queue_set(self, row: QueueRow) -> None:
        queue = self.queues.get(row.name)
        if queue is None:
            self.queues[row.name] = Queue(row)
        else:
            queue.set(row)
            self._admit_more(queue)
        self.changes.append(QueueSet(row))
        self.retest(f"enabled:queue={row.name}", self._clock.now)
        self._dispatcher.work_appeared()

    def on_switch(self, row: SwitchRow) -> None:
        """Turn a system or an application off, or on again. Whoever asks about it hears of that."""
        if row.off:
            self.switches[row.name] = row
        else:
            self.switches.pop(row.name, None)
        self.changes.append(SwitchSet(row))
        self.retest(f"enabled:{row.name}", self._clock.now)

    def on_queue_removed(self, name: str) -> None:
        """Nothing unfinished is in it."""
        del self.queues[name]
        self.changes.append(QueueRemoved(name))

    # -- from workers -------------------------------------------------------------------------------------

    def on_started(self, id: str, attempts: Iterable[int], now: float) -> None:
        worker = self.workers[id]
        for attempt in attempts:
            flight = worker.flights.get(attempt)
            if flight is not None and not flight.ending:
                self._mark_running(flight, now)
                self.effects.append(Progressed(flight.job.id, [], []))
        if worker.overbooked:
            self._dispatcher.worker_changed(worker)  # what waits behind these will wait for long

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
                self.settle(flight.job)
        self._dispatcher.worker_changed(worker)

    def knows(self, id: str, attempt: int) -> bool:
        """Whether this worker was given this attempt and may still report it."""
        if attempt in self.workers[id].flights:
            return True
        stray = self._strays.get(attempt)
        return stray is not None and stray.worker.id == id

    def on_reports(
        self, id: str, reports: Sequence[Report], now: float, known: Mapping[int, BlockRule] = NOTHING_KNOWN
    ) -> None:
        """`known`: by attempt, what must be there again by what it printed. Whether its job minds that, its rules say."""
        self._advance(now)
        worker = self.workers[id]
        news: dict[int, Progressed] = {}
        touched: dict[int, Job] = {}
        for report in reports:
            job = self.jobs.get(report.job)
            flight = self._claim(worker, job, report)
            if flight is None:
                if report.hitch is not None and report.hitch.kept:
                    self.effects.append(Ended(id, [report.attempt]))  # nobody will tell it to go on
                continue
            job = flight.job
            touched[job.id] = job
            if self._judge(worker, flight, report, now, known):
                ended = news.get(job.id)
                if ended is None:
                    ended = news[job.id] = Progressed(job.id, [], [])
                ended.ended.append(flight.task)
                if report.out is not None or report.err is not None:
                    ended.spoke.append(flight.task)
        self._keep_postponed()
        self._acknowledge(id, reports)
        for id_, told in news.items():
            self._book_successes(worker, touched[id_], told.ended, now)
        if worker.conduct.accused:
            worker.conduct.accused = False
            for id_, again in self._suspect(worker, touched.values(), now).items():
                if id_ in news:  # they have not ended after all
                    news[id_].ended[:] = [task for task in news[id_].ended if task not in again]
        self.effects += news.values()
        for job in touched.values():
            if job.mean_wall_s is not None:
                job.user.mean_wall_s = job.mean_wall_s
            self._settle_or_end(job, now)
            if job.id in news and job.minds_ends:
                self._after_ends(job, IntervalSet((task, task) for task in news[job.id].ended), now)
        self._dispatcher.worker_changed(worker)

    def _acknowledge(self, id: str, reports: Sequence[Report]) -> None:
        """All but those that are to be kept where they came from."""
        parked, self._parked = self._parked, []
        attempts = [report.attempt for report in reports]
        if parked:
            kept = set(parked)
            attempts = [attempt for attempt in attempts if attempt not in kept]
            self.effects.append(Parked(id, parked))
        self.effects.append(Acknowledged(id, attempts))

    def _claim(self, worker: Worker, job: Job | None, report: Report) -> Flight | None:
        """The flight a report speaks of, taken off its worker; None if the report is of no consequence."""
        flight = worker.flights.get(report.attempt)
        if flight is not None:
            worker.release(flight)
            if flight.job.id != report.job or flight.task != report.task:
                worker.note = f"reported attempt {report.attempt} under another task's name"
                if not flight.ending:
                    self._requeue(flight, TaskEvent.LOSE)  # it will hear no better report
                    self.settle(flight.job)
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
