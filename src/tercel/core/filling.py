"""One pass over workers: who gets what of the work that is ready.

Each worker in turn walks through what suits its shape, in the order of shares, and takes what there is room for. Where a
rank is to choose between tasks or workers, only places are taken at first, so that shares and room are right for whoever
comes after; when all workers have had their turn, the best tasks for the places are chosen line by line, among all places
that are left if there are more than tasks.
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from tercel.core.intervals import Range
from tercel.core.kinds import Shape
from tercel.core.ledger import Job
from tercel.core.presence import Reservation
from tercel.core.ranking import Crowd, Pairs, choose
from tercel.core.ready import Line, Order, ReadyQueue, Walk
from tercel.core.resources import Taken
from tercel.core.saving import may_go_before, passed_over, still_saves, stop_saving
from tercel.core.shares import ADVANCE_MOST_S, UNKNOWN_S, Clock
from tercel.core.throttles import StartThrottle
from tercel.core.workers import Worker

AHEAD_S = 0.3
"""Seconds of work offered ahead."""
AHEAD_MOST = 256
HELD_MOST = 16_384
"""What one worker is given at most, however much room it says it has: each task under way costs memory here."""
LONG_S = 5.0
"""Tasks that take longer are not offered ahead: a round trip is nothing to them."""
RANK_PATIENCE_S = 30.0
"""A job that others of better rank went before for so long is served before them."""


class Ledger(Protocol):
    """Who books what is given out."""

    def issue(self, job: Job, worker: Worker, tasks: list[Range]) -> None:
        """Give tasks of a job that were ready to a worker; `settle` follows."""

    def settle(self, job: Job) -> None:
        """Bring accounts and the ready queue in line with the job."""


def is_short(job: Job) -> bool:
    """As far as is known by now."""
    return job.expected_wall_s is not None and job.expected_wall_s <= LONG_S and not job.needs.resources


def ahead_of(job: Job, worker: Worker) -> int:
    """How many tasks of this job may wait at this worker for a slot."""
    wall_s = job.expected_wall_s
    if wall_s is None or wall_s > LONG_S or job.needs.resources:
        return 0
    slots = max(1, worker.slots(job.needs))
    return min(AHEAD_MOST, math.ceil(AHEAD_S * slots / max(wall_s, 1e-6)))


def cost_of(job: Job) -> float:
    """What one of its tasks is charged in advance: processor seconds."""
    wall_s = job.expected_wall_s
    seconds = UNKNOWN_S if wall_s is None else min(max(wall_s, 1e-4), ADVANCE_MOST_S)
    return job.needs.millicpus / 1000 * seconds


class Places:
    """What a line was given room for in this pass: tasks are chosen at its end."""

    __slots__ = ("charge", "crowd", "held", "job", "supply")

    def __init__(self, job: Job, crowd: Crowd, supply: int, charge: float) -> None:
        self.job = job
        """Any of the line: all have the same needs, queue and user."""
        self.crowd = crowd
        self.supply = supply
        """How many more tasks there are."""
        self.charge = charge
        """Of one task, in the accounts' terms."""
        self.held: list[tuple[Worker, Taken]] = []

    def add(self, worker: Worker, count: int) -> None:
        for _ in range(count):
            self.held.append((worker, worker.hold(self.job.needs)))
        self.supply -= count
        self._book(count)

    def give_back(self) -> None:
        for worker, taken in self.held:
            worker.let_go(self.job.needs, taken)
        self._book(-len(self.held))

    def _book(self, count: int) -> None:
        for account in (self.job.queue.account, self.job.user):
            account.usage += self.charge * count
            account.under_way += count


class Pass:
    def __init__(
        self,
        ready: ReadyQueue,
        clock: Clock,
        ledger: Ledger,
        throttle: StartThrottle,
        ahead: bool,
        idle: Iterable[Worker] = (),
    ) -> None:
        """`idle`: workers with room that are not among those to be filled, and may be better places."""
        self._ready = ready
        self._clock = clock
        self._ledger = ledger
        self._throttle = throttle
        self._unsettled: dict[Job, None] = {}
        self._ahead = ahead
        self._idle = idle
        self._orders: dict[Shape | tuple[Shape, Reservation], Order] = {}
        self._places: dict[Line, Places] = {}
        self.freed: list[Worker] = []
        """They were saved for what has gone elsewhere, or lost a place, and may take something else."""

    def fill(self, workers: list[Worker]) -> None:
        for worker in workers:
            if not len(self._ready):
                break
            self._fill(worker)
        for job in self._unsettled:
            self._ledger.settle(job)
        for line, places in self._places.items():
            places.give_back()
            for worker, _ in places.held:
                self._throttle.give_back(worker.info.node, 1)
            self._choose(line, places, workers)

    def _order(self, worker: Worker, reservation: Reservation | None) -> Order:
        shape = worker.shape(self._ready.significant)
        key = shape if reservation is None else (shape, reservation)
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = self._ready.order(shape, reservation)
        return order

    def _fill(self, worker: Worker) -> None:
        reservation = worker.reservation
        self._walk(worker, self._order(worker, reservation))
        if reservation is not None and reservation.lend:
            self._walk(worker, self._order(worker, None))

    def _walk(self, worker: Worker, order: Order) -> None:
        if not order or (
            self._throttle.active and self._throttle.room(worker.info.node, self._clock.now) < 1
        ):
            return
        walk, ahead, now = Walk(order), self._ahead, self._clock.now
        saved_for = worker.saving_for
        if saved_for is not None and not still_saves(worker, now):
            saved_for = None
            if ahead:
                self.freed.append(worker)  # it may have real room for others
        reached = False
        while (ahead or worker.has_room) and (job := walk.job()) is not None:
            kind = job.kind
            if (job.refused_by and worker.id in job.refused_by) or (
                (kind.particular or worker.ends_at is not None) and not kind.allows(worker, now)
            ):
                walk.pass_over()
                continue
            if ahead and not is_short(job):
                return  # it is this one's turn as soon as there is room: nobody is to queue up before it
            if reached and saved_for is not None and not may_go_before(worker, saved_for, job, now):
                walk.pass_over()
                continue
            count = self._share(job, worker, walk)
            if count > 0:
                if walk.contested:
                    count = min(count, walk.turns(job, cost_of(job)))
                self._give(job, worker, count, walk)
                saved_for = worker.saving_for
                continue
            reached = reached or job is saved_for
            if not ahead and worker.room(job.needs, 0) < 1:
                if (saver := passed_over(worker, job, now)) is not None:
                    self.freed.append(saver)
                saved_for = worker.saving_for
                reached = reached or job is saved_for
            walk.pass_over()

    def _share(self, job: Job, worker: Worker, walk: Walk) -> int:
        allowance = ahead_of(job, worker) if self._ahead else 0
        room = worker.room(job.needs, allowance)
        if room <= allowance // 2:
            return 0  # offers ahead are renewed in one batch when half is used up, not one by one
        if job.kind.rank is None:
            left = min(len(job.ready), job.cap_room)
        else:
            left = self._places_of(job, walk.line).supply
        room = min(room, left, job.queue.room(job.user), HELD_MOST - len(worker.flights))
        if self._throttle.active:
            room = min(room, self._throttle.room(worker.info.node, self._clock.now))
        return room

    def _give(self, job: Job, worker: Worker, count: int, walk: Walk) -> None:
        self._served(job, worker)
        if job.kind.rank is not None:
            self._places_of(job, walk.line).add(worker, count)
            self._throttle.take(worker.info.node, count, self._clock.now)
            return
        self._ledger.issue(job, worker, job.ready.take_first(count))
        if job.ready and job.cap_room > 0 and not walk.contested and not job.queue.has_caps:
            self._unsettled[job] = (
                None  # nobody minds before the end of the pass: it is one job for all these workers
            )
        else:
            self._ledger.settle(job)

    def _served(self, job: Job, worker: Worker) -> None:
        """It is not passed over any more, and need not be waited for."""
        job.passed_at = None
        if (saver := stop_saving(job)) is not None and (saver is not worker or self._ahead):
            self.freed.append(saver)

    # -- by rank ------------------------------------------------------------------------------------------

    def _places_of(self, job: Job, line: Line) -> Places:
        places = self._places.get(line)
        if places is None:
            first = next(iter(line.jobs()))
            since = first.outranked_at
            waited = since is not None and self._clock.now - since >= RANK_PATIENCE_S
            crowd = Crowd(line, first if waited else None)
            charge = cost_of(job) * self._clock.worth
            places = self._places[line] = Places(job, crowd, crowd.supply(HELD_MOST), charge)
        return places

    def _choose(self, line: Line, places: Places, workers: list[Worker]) -> None:
        if not places.held:
            return
        count = len(places.held)
        at = [worker for worker, _ in places.held]
        if places.supply == 0 and not self._ahead:
            at += self._more_places(places, workers)
        first = next(iter(line.jobs()))
        pairs = choose(places.crowd, at, count, self._clock.now)
        served = self._issue_pairs(pairs)
        if len(at) > count or len(pairs) < count:
            used = Counter(worker for worker, _, _ in pairs)
            self.freed += [worker for worker, held in Counter(at[:count]).items() if used[worker] < held]
        if first.id not in served and first.outranked_at is None:
            first.outranked_at = self._clock.now

    def _more_places(self, places: Places, workers: list[Worker]) -> list[Worker]:
        """Tasks are few: any worker with room may be better than those whose turn it was. As many of each as are free."""
        job, now, significant = places.job, self._clock.now, self._ready.significant
        held: dict[Worker, int] = {}
        for worker, _ in places.held:
            held[worker] = held.get(worker, 0) + 1
        found: list[Worker] = []
        for worker in dict.fromkeys((*workers, *self._idle)):
            if not worker.takes_more or worker.saving_for is not None or worker.id in job.refused_by:
                continue
            if worker.reservation is not None and worker not in held:
                continue
            if job.kind.suits(worker.shape(significant)) and job.kind.allows(worker, now):
                free = worker.room(job.needs, 0) - held.get(worker, 0)
                found += [worker] * min(free, len(places.held))
        return found

    def _issue_pairs(self, pairs: Pairs) -> set[int]:
        """Returns the jobs that were served."""
        groups: dict[tuple[Job, Worker], list[int]] = {}
        for worker, job, task in pairs:
            groups.setdefault((job, worker), []).append(task)
        for (job, worker), tasks in groups.items():
            for task in tasks:
                job.ready.discard(task)
            job.outranked_at = None
            self._served(job, worker)
            self._ledger.issue(job, worker, _runs(sorted(tasks)))
            self._ledger.settle(job)
        return {job.id for job, _ in groups}


def _runs(tasks: list[int]) -> list[Range]:
    runs: list[Range] = []
    for task in tasks:
        if runs and runs[-1][1] == task - 1:
            runs[-1] = (runs[-1][0], task)
        else:
            runs.append((task, task))
    return runs
