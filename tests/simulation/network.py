"""A link between a worker and the manager of the moment, with the real frames and sessions, over a bad line.

Either end may be closed before the other knows. A *dark* link swallows frames: whoever listens notices by
silence. Single frames may be lost, repeated or overtaken; the sessions' numbering must notice that.
"""

from typing import TYPE_CHECKING

from tercel.core.errors import PeerError
from tercel.wire.messages import FromManager, FromWorker, Ping
from tercel.wire.session import ManagerSession, WorkerSession

if TYPE_CHECKING:
    from .manager import SimManager
    from .worker import SimWorker
    from .world import World

HEARTBEAT_S = 10.0
SILENCE_S = 3 * HEARTBEAT_S


class Link:
    def __init__(self, world: "World", worker: "SimWorker", manager: "SimManager") -> None:
        self.world = world
        self.worker = worker
        self.manager = manager
        self.name = ""
        """The worker's name, once it said Hello."""
        self.greeted = False
        self.hello = 0
        self.welcomed = False
        self.worker_open = True
        self.manager_open = True
        self.dark = False
        self.briefed: set[int] = set()
        self.said_bye = False
        self._worker_session = WorkerSession()
        self._manager_session = ManagerSession()
        self._up_clear_at = 0.0
        self._down_clear_at = 0.0

    # -- frames -------------------------------------------------------------------------------------------

    def send_up(self, messages: list[FromWorker]) -> None:
        if self.worker_open:
            data = self._worker_session.encode(messages)
            self._up_clear_at = self._carry(data, self._up_clear_at, self._arrive_at_manager)

    def send_down(self, messages: list[FromManager]) -> None:
        if self.manager_open:
            data = self._manager_session.encode(messages)
            self._down_clear_at = self._carry(data, self._down_clear_at, self._arrive_at_worker)

    def _carry(self, data: bytes, clear_at: float, arrive) -> float:  # type: ignore[no-untyped-def]
        world, faults = self.world, self.world.faults
        if self.dark:
            return clear_at
        at = max(clear_at, world.now + world.rng.uniform(0.0005, faults.latency_s))
        if faults.frames and world.rng.random() < faults.frames:
            kind = world.rng.choice(("lost", "repeated", "overtaken"))
            world.note("frame", kind, self.worker.name)
            if kind == "lost":
                self._beat_later()
                return clear_at
            if kind == "repeated":
                world.after(at - world.now + 0.001, arrive, data)
            else:
                world.after(at - world.now + world.rng.uniform(0.0, 0.5), arrive, data)
                self._beat_later()
                return clear_at
        world.after(at - world.now, arrive, data)
        return at

    def _beat_later(self) -> None:
        """Heartbeats go both ways; only those that would show a gap are worth simulating."""
        self.world.after(self.world.rng.uniform(0.1, HEARTBEAT_S), self._beat)

    def _beat(self) -> None:
        if self.worker_open and self.worker.link is self and self.worker.welcomed:
            self.send_up([self.worker.presence()])
        if self.welcomed and self.manager.alive:
            self.send_down([Ping()])

    def _arrive_at_manager(self, data: bytes) -> None:
        if not self.manager_open or self.dark or not self.manager.alive:
            return
        try:
            messages = self._manager_session.decode(data)
        except PeerError as error:
            self.world.note("manager closes link:", self.worker.name, str(error))
            self.close_at_manager()
            return
        if messages:
            self.manager.receive(self, messages)

    def _arrive_at_worker(self, data: bytes) -> None:
        if not self.worker_open or self.dark:
            return
        try:
            messages = self._worker_session.decode(data)
        except PeerError as error:
            self.world.note("worker closes link:", self.worker.name, str(error))
            self.close_at_worker()
            return
        if messages:
            self.worker.receive(self, messages)

    # -- ends ---------------------------------------------------------------------------------------------

    def close_at_manager(self) -> None:
        """The manager gives the link up; the worker learns it from the closed line."""
        if self.manager_open:
            self.manager_open = False
            self.manager.parted(self)
            self.world.after(self._until_noticed(), self._worker_notices)

    def close_at_worker(self) -> None:
        """The worker gives the link up (or dies); the manager learns it from the closed line."""
        if self.worker_open:
            self.worker_open = False
            self.worker.unlinked(self)
            self.world.after(self._until_noticed(), self._manager_notices)

    def cut(self) -> None:
        """All that is under way is lost; both ends learn it soon."""
        self.dark = True
        self.world.after(self.world.rng.uniform(0.0, 0.5), self._worker_notices)
        self.world.after(self.world.rng.uniform(0.0, 0.5), self._manager_notices)

    def go_dark(self) -> None:
        """Nothing gets through and nobody is told: each end notices by missed heartbeats."""
        self.dark = True
        self.world.after(self.world.rng.uniform(0.0, SILENCE_S), self._worker_notices)
        self.world.after(self.world.rng.uniform(0.0, SILENCE_S), self._manager_notices)

    def _until_noticed(self) -> float:
        rng = self.world.rng
        return rng.uniform(0.0, SILENCE_S) if self.dark else rng.uniform(0.001, 0.2)

    def _worker_notices(self) -> None:
        if self.worker_open:
            self.worker_open = False
            self.worker.unlinked(self)

    def _manager_notices(self) -> None:
        if self.manager_open:
            self.manager_open = False
            if self.manager.alive:
                self.manager.parted(self)
