"""A worker's files, as worker/files.py has them, around the real Agent; the storage and the disk are simulated.

    wants --> brought after a while; while the storage is down, or a name unknown: a hitch
    left  --> a parcel on the disk --> delivered after a while; while the storage is down: a hitch, and it is parked

Parcels outlive the process. Some could not be written; some, of attempts that were settled, could not be removed in time.
"""

from typing import TYPE_CHECKING, NamedTuple

from tercel.core.files import KEPT, Hitch, Made, Trouble, is_name
from tercel.core.reports import Report
from tercel.core.states import Stage
from tercel.wire.messages import Park, Removed, Resume, Returned, Stages, Undo
from tercel.worker.addressing import Address, addresses
from tercel.worker.held import Attempt

if TYPE_CHECKING:
    from .worker import SimWorker
    from .world import World

TOLD_AFTER_S = 0.2
"""Of moves that last longer the manager is told."""


class Parcel(NamedTuple):
    report: Report
    addresses: list[Address]


class SimFiles:
    def __init__(self, world: "World", worker: "SimWorker") -> None:
        self._world = world
        self._worker = worker
        self.parcels: dict[int, Parcel] = {}
        """On its disk."""
        self._unwritten: dict[int, Parcel] = {}
        """Those that a killed process takes along."""
        self._unremoved: dict[int, Parcel] = {}
        """Those that a new process finds all the same."""

    # -- its disk -----------------------------------------------------------------------------------------

    def prepare(self) -> list[Report]:
        """Of attempts whose files an earlier process had not delivered."""
        self.parcels |= self._unremoved
        self._unwritten, self._unremoved = {}, {}
        return [parcel.report for parcel in self.parcels.values()]

    def lose_disk(self) -> None:
        self.parcels, self._unwritten, self._unremoved = {}, {}, {}

    def _chance(self, share: float) -> bool:
        """That something goes wrong, while anything does."""
        return bool(self._world.faults.every_s) and self._world.file_rng.random() < share

    def _remove(self, attempts: list[int]) -> None:
        for attempt in attempts:
            self._unwritten.pop(attempt, None)
            parcel = self.parcels.pop(attempt, None)
            if parcel is not None and self._chance(0.1):
                self._unremoved[attempt] = parcel

    # -- what the worker calls ----------------------------------------------------------------------------

    def look(self) -> None:
        agent = self._worker.agent
        agent.take_unwanted()
        for held in agent.wants():
            delay_s = self._delay_s(Stages([held.attempt], []))
            self._world.after(delay_s, self._bring, self._worker.life, held)
        for report, held in agent.take_left():
            found = addresses(report, held.job.leavings(report.task, held.line))
            if not found:
                self._worker.owe(agent.on_delivered(report.attempt, ()))
                continue
            parcel = Parcel(report, found)
            (self._unwritten if self._chance(0.05) else self.parcels)[report.attempt] = parcel
            self._begin(parcel)

    def take(self, message: Park | Resume | Undo) -> None:
        agent = self._worker.agent
        self._world.note("told", self._worker.name, message)
        match message:
            case Park(attempts):
                agent.on_park(attempts)
            case Resume(attempts):
                here = self.parcels | self._unwritten
                agent.parcels.drop(attempt for attempt in attempts if attempt not in here)
                for report in agent.parcels.resume(attempts):
                    self._begin(here[report.attempt])
                if gone := agent.unknown(attempts):
                    self._world.witness.excused |= set(gone)
                    self._worker.say(Returned(gone))
            case Undo(job, task, urls, lost):
                agent.on_undo(job, task, urls, lost)

    def settled(self, attempts: list[int]) -> None:
        parcels = self._worker.agent.parcels
        self._remove([attempt for attempt in attempts if attempt not in parcels])

    def drop(self, attempts: list[int], *, tell: bool) -> None:
        gone, owed = self._worker.agent.drop_parcels(attempts, tell=tell)
        self._remove(gone)
        self._worker.owe(owed)

    def _delay_s(self, told: Stages) -> float:
        world = self._world
        delay_s = world.file_rng.uniform(*world.staging_s)
        if delay_s > TOLD_AFTER_S:
            world.after(TOLD_AFTER_S, self._tell, self._worker.life, told)
        return delay_s

    def _tell(self, life: int, told: Stages) -> None:
        if life == self._worker.life:
            self._worker.say(told)

    # -- bringing -----------------------------------------------------------------------------------------

    def _bring(self, life: int, held: Attempt) -> None:
        if life != self._worker.life:
            return
        agent, attempt = self._worker.agent, held.attempt
        if held.undo and self._world.storage_up:
            self._world.note("removed", held.job.id, held.task, held.undo)
            self._worker.say(Removed(held.job.id, held.task))
        hitch = self._hitch(held)
        if hitch is not None:
            self._worker.owe_late(agent.on_unbrought(attempt, hitch, self._world.now))
            return
        held.gathers = held.job.gathers(held.task, held.line)
        if agent.on_brought(attempt, [(f"cache/{name}", name) for _, name, _ in self._inputs(held)]):
            self._worker.go_on()

    def _inputs(self, held: Attempt) -> list[tuple[str, str, str]]:
        return [tuple(one) for one in held.job.inputs(held.task, held.line)]

    def _hitch(self, held: Attempt) -> Hitch | None:
        for url in (*held.undo, *(source for source, _, _ in self._inputs(held))):
            if is_name(url):
                if not self._world.store.files([url]):
                    return Hitch(Stage.STAGE_IN, Trouble.MISSING, url, "it is not in the catalogue")
            elif not self._world.storage_up:
                return Hitch(Stage.STAGE_IN, Trouble.DOWN, url, "refused")
        return None

    # -- delivering ---------------------------------------------------------------------------------------

    def _begin(self, parcel: Parcel) -> None:
        attempt = parcel.report.attempt
        self._world.after(self._delay_s(Stages([], [attempt])), self._deliver, self._worker.life, parcel)

    def _deliver(self, life: int, parcel: Parcel) -> None:
        agent, attempt = self._worker.agent, parcel.report.attempt
        if life != self._worker.life or attempt not in agent.parcels.delivering:
            return
        made: list[Made] = []
        for address in parcel.addresses:
            to = address.to[0]
            if not to.startswith(KEPT) and not self._world.storage_up:
                hitch = Hitch(Stage.STAGE_OUT, Trouble.DOWN, to, "refused", kept=True)
                self._worker.owe_late(agent.on_undelivered(attempt, hitch))
                return
            digest = f"blake3:{attempt:064x}"
            url = f"{KEPT}{digest}" if to.startswith(KEPT) else to
            made.append(Made(address.path, url, 1, digest, address.name))
        self._worker.owe_late(agent.on_delivered(attempt, tuple(made)))
