"""Who is offered what. Pull with credit: a worker's credit is its capacity less what it holds.

A round first fills real room everywhere, then offers short tasks ahead, so that no worker waits for a round trip.
How many depends on how long the job's tasks take: AHEAD_S seconds of work, none for long ones. If a worker idles
while others have tasks waiting, some of those are taken back: unless they are so short that moving them takes longer,
which nobody believes any more once one of them was announced as running.

A round looks at workers whose room changed and, when jobs became ready, at all workers with room; never at tasks.
"""

import math
from collections.abc import Callable

from tercel.core.effects import Effect, Recalled
from tercel.core.ledger import Flight, Job
from tercel.core.ready import Order, ReadyQueue, Walk
from tercel.core.shares import ADVANCE_MOST_S, UNKNOWN_S
from tercel.core.workers import Worker

AHEAD_S = 0.3
"""Seconds of work offered ahead."""
AHEAD_MOST = 256
HELD_MOST = 16_384
"""What one worker is given at most, however much room it says it has: each task under way costs memory here."""
LONG_S = 5.0
"""Tasks that take longer are not offered ahead: a round trip is nothing to them."""
WORTH_TAKING_BACK_S = 0.02
"""Waiting work shorter than this is not worth moving."""


def is_short(job: Job) -> bool:
    """As far as is known by now."""
    return job.expected_wall_s is not None and job.expected_wall_s <= LONG_S


def ahead_of(job: Job, worker: Worker) -> int:
    """How many tasks of this job may wait at this worker for a slot."""
    wall_s = job.expected_wall_s
    if wall_s is None or wall_s > LONG_S:
        return 0
    slots = max(1, worker.slots(job.needs))
    return min(AHEAD_MOST, math.ceil(AHEAD_S * slots / max(wall_s, 1e-6)))


def cost_of(job: Job) -> float:
    """What one of its tasks is charged in advance: processor seconds."""
    wall_s = job.expected_wall_s
    seconds = UNKNOWN_S if wall_s is None else min(max(wall_s, 1e-4), ADVANCE_MOST_S)
    return job.needs.millicpus / 1000 * seconds


class Dispatcher:
    """Keeps which workers to look at; `issue` gives tasks of a job to a worker and books them."""

    def __init__(
        self, workers: dict[str, Worker], ready: ReadyQueue, issue: Callable[[Job, Worker, int], None]
    ):
        self._workers = workers
        self._ready = ready
        self._issue = issue
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
        if not workers:
            return
        order = self._ready.order()
        for worker in sorted(workers, key=_burden) if len(order) else ():
            self._fill(worker, order, ahead)

    def _fill(self, worker: Worker, order: Order, ahead: bool) -> None:
        walk = Walk(order)
        while (ahead or worker.has_room) and (job := walk.job()) is not None:
            if not worker.could_run(job.needs) or worker.id in job.refused_by:
                walk.pass_over()
                continue
            if ahead and not is_short(job):
                return  # it is this one's turn as soon as there is room: nobody is to queue up before it
            count = self._share(job, worker, ahead)
            if count > 0:
                self._issue(job, worker, min(count, walk.turns(job, cost_of(job))))
            else:
                walk.pass_over()

    def _share(self, job: Job, worker: Worker, ahead: bool) -> int:
        allowance = ahead_of(job, worker) if ahead else 0
        room = worker.room(job.needs, allowance)
        if room <= allowance // 2:
            return 0  # offers ahead are renewed in one batch when half is used up, not one by one
        of_queue = job.queue.room(job.user)
        return min(room, len(job.ready), job.cap_room, of_queue, HELD_MOST - len(worker.flights))

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
            # Who has tasks waiting (the donor itself, not least) does not idle, whatever else would fit there.
            if not worker.overbooked and worker.room(job.needs, 0) > 0:
                return True
        return False


def _burden(worker: Worker) -> tuple[bool, float]:
    """Who is to be served first. What is taken back must not go to where it waited, even if it would fit there."""
    return worker.overbooked, worker.used_millicpus / max(1, worker.capacity.millicpus)
