"""What people, and their own faults, have made of workers: tags, quarantine, reservations. Kept over restarts.

    quarantined by hand             until somebody releases it
    quarantined for its faults      until it has run PROBES tasks well: one at a time, the first after a pause, which is
                                    doubled each time that fails
    reserved                        for a queue, a user or both, until a time; which workers, its expression says

Which tasks a reserved worker may be given is the dispatcher's to decide.
"""

import heapq
from collections.abc import Collection

import msgspec

from tercel.core.accounts import Settings
from tercel.core.changes import Loaded, ReservationRemoved, ReservationSet, WorkerSet
from tercel.core.effects import Recalled
from tercel.core.holding import Holding
from tercel.core.kinds import where_of
from tercel.core.ledger import Job
from tercel.core.presence import Reservation, WorkerRow
from tercel.core.workers import Worker

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""Before a worker in quarantine is tried."""
PROBES = 2
"""So many tasks in a row it must run without fault."""
STALE_S = 86_400.0
"""A worker that was quarantined for its faults so long ago, and is not there when the manager starts, is given another chance."""
AVOIDED_S = 30.0
"""What a worker interrupted is not given back to it for so long, if another can run it."""


class Standing(Holding):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self.rows = {row.name: row for row in loaded.workers}
        """Of workers of which there is something to keep; connected or not."""
        self.reservations = {one.id: one for one in loaded.reservations if not _is_over(one)}
        self.next_reservation = 1 + max((one.id for one in loaded.reservations), default=0)
        self._pauses: list[tuple[float, str]] = []
        """When which worker in quarantine may be tried."""
        self._avoided: list[tuple[float, str, int, str]] = []
        """Until when which worker is not given tasks of which job, and why."""
        for row in loaded.workers:
            if row.pause_s and row.quarantined_at < now - STALE_S and row.name not in self.workers:
                self._forget_faults(row.name, now)
            self._await_probe(self.row_of(row.name))
        for worker in self.workers.values():
            self._seat(worker, now)

    def row_of(self, id: str) -> WorkerRow:
        return self.rows.get(id) or WorkerRow(name=id)

    def _seat(self, worker: Worker, now: float) -> None:
        """What is kept of it has its effect on it."""
        row = worker.row = self.row_of(worker.id)
        worker.set_tags()
        worker.conduct.probing = bool(row.quarantined and row.pause_s) and now >= probe_at(row)
        worker.reservation = self._reservation_of(worker, now)

    def _set_row(self, row: WorkerRow, now: float) -> None:
        if row == self.row_of(row.name):
            return
        if row == WorkerRow(name=row.name):
            del self.rows[row.name]
        else:
            self.rows[row.name] = row
        self.changes.append(WorkerSet(row))
        if (worker := self.workers.get(row.name)) is not None:
            self._seat(worker, now)
            self._dispatcher.worker_changed(worker)

    # -- tags ---------------------------------------------------------------------------------------------

    def on_tag(self, id: str, added: Collection[str], removed: Collection[str], now: float) -> None:
        """What a worker says of itself is told apart from what people say of it: only the latter is kept."""
        row, worker = self.row_of(id), self.workers.get(id)
        said = frozenset(worker.info.tags) if worker is not None else frozenset[str]()
        known = worker is not None and worker.instance != ""
        tags = (set(row.tags) | set(added)) - set(removed) - said
        lost = (set(row.lost_tags) | {tag for tag in removed if tag in said or not known}) - set(added)
        self._set_row(
            msgspec.structs.replace(row, tags=tuple(sorted(tags)), lost_tags=tuple(sorted(lost))), now
        )

    # -- quarantine ---------------------------------------------------------------------------------------

    def on_quarantine(self, id: str, by: str, reason: str, now: float) -> None:
        """Somebody wants it to take no tasks, until it is released. What it runs goes on."""
        row = self.row_of(id)
        told = f"by {by}" + (f": {reason}" if reason else "")
        if not reason and row.quarantined:  # whoever says nothing new leaves what is known of it
            told = row.quarantined if not row.pause_s else f"by {by}: {row.quarantined}"
        row = msgspec.structs.replace(row, quarantined=told, quarantined_at=now, pause_s=0.0)
        self._set_row(row, now)
        self._take_back_unstarted(id)

    def on_end_quarantine(self, id: str, now: float) -> None:
        """Out of quarantine, with a clean slate."""
        self._forgive_refusals(id)
        row = self.row_of(id)
        if (worker := self.workers.get(id)) is not None:
            worker.conduct.forget()
            worker.note = ""
        self._set_row(_at_large(row), now)

    def _quarantine(self, worker: Worker, evidence: str, now: float) -> None:
        """For its faults."""
        row = msgspec.structs.replace(
            worker.row, quarantined=evidence, quarantined_at=now, pause_s=FIRST_PAUSE_S
        )
        worker.conduct.forget()
        self._set_row(row, now)
        self._await_probe(row)
        self._take_back_unstarted(worker.id)

    def _renew_quarantine(self, worker: Worker, now: float) -> None:
        """It failed when it was tried."""
        row = worker.row
        row = msgspec.structs.replace(row, quarantined_at=now, pause_s=min(2 * row.pause_s, LONGEST_PAUSE_S))
        worker.conduct.passed = 0
        self._set_row(row, now)
        self._await_probe(row)

    def _forget_faults(self, id: str, now: float) -> None:
        """It has been gone for long. What people made of it stays."""
        row = self.row_of(id)
        if row.pause_s:
            self._set_row(_at_large(row), now)

    def _await_probe(self, row: WorkerRow) -> None:
        if row.quarantined and row.pause_s:
            heapq.heappush(self._pauses, (probe_at(row), row.name))

    def _take_back_unstarted(self, id: str) -> None:
        worker = self.workers.get(id)
        if worker is None or not worker.online:
            return
        waiting = [
            f for f in worker.flights.values() if f.running_since is None and not (f.ending or f.recalled)
        ]
        for flight in waiting:
            flight.recalled = True
        if waiting:
            self.effects.append(Recalled(id, [flight.attempt for flight in waiting]))

    # -- what it interrupted ------------------------------------------------------------------------------

    def _avoid(self, job: Job, worker: Worker, why: str, now: float) -> None:
        """A worker gets nothing of a job for a while, if there is another for it."""
        if worker.id in job.refused_by or not self._another_for(job, worker):
            return
        told = f"interrupted a task of it a moment ago: {why}"
        self._refuse(job, worker, told)
        heapq.heappush(self._avoided, (now + AVOIDED_S, worker.id, job.id, told))

    def _another_for(self, job: Job, worker: Worker) -> bool:
        """Whether somebody else could run tasks of a job."""
        return any(self._could_run(other, job) for other in self.workers.values() if other is not worker)

    def _could_run(self, worker: Worker, job: Job) -> bool:
        return (
            worker.takes_more
            and not worker.row.quarantined
            and worker.reservation is None
            and worker.id not in job.refused_by
            and job.kind.suits(worker.shape(self.ready.significant))
            and job.kind.allows(worker, self._clock.now)
        )

    def _refuse(self, job: Job, worker: Worker, why: str) -> None:
        job.refused_by[worker.id] = why
        self._refusals.setdefault(worker.id, set()).add(job.id)
        self.settle(job)

    def _forgive_refusals(self, worker: str) -> None:
        """A restarted worker may be able to run what it refused before; one that is forgotten refuses nothing."""
        for id in self._refusals.pop(worker, ()):
            if (job := self.jobs.get(id)) is not None:
                job.refused_by.pop(worker, None)
                self.settle(job)

    def _end_avoidance(self, worker: str, id: int, why: str) -> None:
        job = self.jobs.get(id)
        if job is not None and job.refused_by.get(worker) == why:  # it may have refused it for good since
            del job.refused_by[worker]
            self._refusals[worker].discard(id)
            self.settle(job)

    # -- reservations -------------------------------------------------------------------------------------

    def on_reserve(self, reservation: Reservation, now: float) -> None:
        last = self.next_reservation - 1
        if last and last not in self.reservations and reservation.id > last:
            self.changes.append(ReservationRemoved(last))  # its number is remembered by a later one
        self.next_reservation = max(self.next_reservation, reservation.id + 1)
        self.reservations[reservation.id] = reservation
        self.changes.append(ReservationSet(reservation))
        self._reserve_anew(now)

    def on_unreserve(self, id: int, now: float) -> None:
        """The last that was made stays in the store, emptied: no number is ever given to another."""
        del self.reservations[id]
        last = id == self.next_reservation - 1
        self.changes.append(ReservationSet(Reservation(id=id, owner="")) if last else ReservationRemoved(id))
        self._reserve_anew(now)

    def _reserve_anew(self, now: float) -> None:
        for worker in self.workers.values():
            reservation = self._reservation_of(worker, now)
            if reservation != worker.reservation:
                worker.reservation = reservation
                self._dispatcher.worker_changed(worker)

    def _reservation_of(self, worker: Worker, now: float) -> Reservation | None:
        """Of several the earliest."""
        for _, reservation in sorted(self.reservations.items()):
            if covers(reservation, worker, now):
                return reservation
        return None

    # -- from the clock -----------------------------------------------------------------------------------

    def _standing_deadlines(self) -> list[float]:
        due = [reservation.until for reservation in self.reservations.values()]
        return due + [heap[0][0] for heap in (self._pauses, self._avoided) if heap]

    def _tick_standing(self, now: float) -> None:
        """Pauses end, and so do reservations."""
        while self._pauses and self._pauses[0][0] <= now:
            at, id = heapq.heappop(self._pauses)
            worker, row = self.workers.get(id), self.row_of(id)
            if worker is not None and row.pause_s and probe_at(row) == at:
                worker.conduct.probing = True
                self._dispatcher.worker_changed(worker)
        while self._avoided and self._avoided[0][0] <= now:
            _, id, job, why = heapq.heappop(self._avoided)
            self._end_avoidance(id, job, why)
        for reservation in [r for r in self.reservations.values() if r.until <= now]:
            self.on_unreserve(reservation.id, now)


def probe_at(row: WorkerRow) -> float:
    return row.quarantined_at + row.pause_s


def _at_large(row: WorkerRow) -> WorkerRow:
    return msgspec.structs.replace(row, quarantined="", quarantined_at=0.0, pause_s=0.0)


def _is_over(reservation: Reservation) -> bool:
    """Kept for its number alone."""
    return not reservation.until


def covers(reservation: Reservation, worker: Worker, now: float) -> bool:
    if not reservation.where:
        return True
    where = where_of(reservation.where)
    return where is None or where.evaluate(worker.attributes(now)) is True
