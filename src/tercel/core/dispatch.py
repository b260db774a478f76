"""Who is offered what. Pull with credit: a worker's credit is its capacity less what it holds.

A round first fills real room everywhere, then offers short tasks ahead, so that no worker waits for a round trip.
How many depends on how long the job's tasks take: AHEAD_S seconds of work, none for long ones. If a worker idles
while others have tasks waiting, some of those are taken back: unless they are so short that moving them takes longer,
which nobody believes any more once one of them was announced as running.

A round looks at workers whose room changed and, when jobs became ready, at all workers with room; never at tasks.
"""

from tercel.core.effects import Effect, Recalled
from tercel.core.filling import Ledger, Pass
from tercel.core.flights import Flight
from tercel.core.ledger import Job
from tercel.core.ready import ReadyQueue
from tercel.core.shares import Clock
from tercel.core.throttles import StartThrottle
from tercel.core.workers import Worker

WORTH_TAKING_BACK_S = 0.02
"""Waiting work shorter than this is not worth moving."""


class Dispatcher:
    """Keeps which workers to look at; the ledger books what is given out."""

    def __init__(
        self,
        workers: dict[str, Worker],
        ready: ReadyQueue,
        clock: Clock,
        ledger: Ledger,
        throttle: StartThrottle,
    ) -> None:
        self._workers = workers
        self._ready = ready
        self._clock = clock
        self._ledger = ledger
        self._throttle = throttle
        self._changed: dict[str, None] = {}
        """Workers whose room may have grown since the last round, in that order."""
        self._roomy: dict[str, None] = {}
        """Workers that had room left over in the last round."""
        self._donors: dict[str, None] = {}
        """Workers at which more is booked than they can run side by side: some of it waits."""
        self._new_work = False

    def worker_changed(self, worker: Worker) -> None:
        self._changed[worker.id] = None

    def work_appeared(self) -> None:
        self._new_work = True

    def round(self) -> list[Effect]:
        if not self._changed and not self._new_work:
            return []
        ids = list(self._changed)
        if self._new_work:
            ids += [id for id in self._roomy if id not in self._changed]
        self._changed.clear()
        self._new_work = False
        workers = [w for id in ids if (w := self._workers.get(id)) is not None]
        taking = [worker for worker in workers if worker.takes_more]
        self._fill_all([worker for worker in taking if worker.has_room], ahead=False)
        if not self._throttle.active:  # what is offered ahead would begin when it likes
            self._fill_all(taking, ahead=True)
        for worker in workers:
            if worker.takes_more and worker.has_room:
                self._roomy[worker.id] = None
            else:
                self._roomy.pop(worker.id, None)
            if worker.overbooked:
                self._donors[worker.id] = None
        return self._take_back(workers) if self._roomy and self._donors and not self._ready.has_work else []

    def _fill_all(self, workers: list[Worker], ahead: bool) -> None:
        while workers and self._ready.has_work:
            idle = (w for id in self._roomy if (w := self._workers.get(id)) is not None)
            one = Pass(self._ready, self._clock, self._ledger, self._throttle, ahead, idle)
            one.fill(sorted(workers, key=_burden) if len(workers) > 1 else workers)
            workers = [worker for worker in one.freed if worker.takes_more]
            if ahead:  # what they were saved for went to wait elsewhere: they have real room for others now
                self._fill_all([worker for worker in workers if worker.has_room], ahead=False)

    def _take_back(self, workers: list[Worker]) -> list[Effect]:
        """From anybody if one of these idles; else from those of them that have more than they can run."""
        idles = any(worker.id in self._roomy for worker in workers)
        effects: list[Effect] = []
        for id in list(self._donors) if idles else [w.id for w in workers if w.id in self._donors]:
            donor = self._workers.get(id)
            if donor is None or not donor.overbooked:
                del self._donors[id]
            elif donor.online and (chosen := self._surplus(donor)):
                for flight in chosen:
                    flight.recalled = True
                effects.append(Recalled(donor.id, [flight.attempt for flight in chosen]))
        return effects

    def _surplus(self, donor: Worker) -> list[Flight]:
        """Half of what waits at an overbooked worker, newest first, if an idle one has room for it."""
        waiting: list[Flight] = []
        lasting = False
        for flight in reversed(donor.flights.values()):
            if flight.recalled:
                return []  # one request at a time
            if flight.running_since is not None:
                lasting = True
            elif not flight.ending:
                waiting.append(flight)
        if not waiting:
            return []
        job = waiting[0].job
        slots = max(1, donor.slots(job.needs))
        surplus = len(donor.flights) - slots
        if not lasting and surplus * (job.expected_wall_s or 0.0) / slots < WORTH_TAKING_BACK_S:
            return []
        return waiting[: max(1, surplus // 2)] if self._somebody_idles_for(job) else []

    def _somebody_idles_for(self, job: Job) -> bool:
        for id in self._roomy:
            worker = self._workers.get(id)
            if worker is None or not worker.takes_more or worker.id in job.refused_by:
                continue
            if worker.saving_for is not None or worker.reservation is not None:
                continue
            if not job.kind.suits(worker.shape(self._ready.significant)):
                continue
            if not job.kind.allows(worker, self._clock.now):
                continue
            # Who has tasks waiting (the donor itself, not least) does not idle, whatever else would fit there.
            if not worker.overbooked and worker.room(job.needs, 0) > 0:
                return True
        return False


def _burden(worker: Worker) -> tuple[bool, float]:
    """Who is to be served first. What is taken back must not go to where it waited, even if it would fit there."""
    return worker.overbooked, worker.used_millicpus / max(1, worker.capacity.millicpus)
