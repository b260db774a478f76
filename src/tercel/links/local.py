"""A link between a manager and a worker in one process.

    worker end --[ way: at most FRAMES_AHEAD frames ]--> manager end
               <--[ way ]--

Messages are handed over as they are: they are frozen, so nothing is encoded. What was sent before one end closed
is still received at the other, as on a network.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from tercel.links.contract import LinkClosed, ManagerEnd, WorkerEnd
from tercel.wire.messages import FromManager, FromWorker

FRAMES_AHEAD = 16
"""So many frames may lie between the ends before the sender waits."""

Sent = TypeVar("Sent")
Got = TypeVar("Got")


class _Way(Generic[Sent]):
    """One direction: a bounded line of frames, until either end closes it."""

    def __init__(self) -> None:
        self._frames: deque[list[Sent]] = deque()
        self._closed = ""
        self._has_frames = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def put(self, frame: list[Sent]) -> None:
        while len(self._frames) >= FRAMES_AHEAD and not self._closed:
            self._has_room.clear()
            await self._has_room.wait()
        if self._closed:
            raise LinkClosed(self._closed)
        self._frames.append(frame)
        self._has_frames.set()

    async def take(self) -> list[Sent]:
        while not self._frames:
            if self._closed:
                raise LinkClosed(self._closed)
            self._has_frames.clear()
            await self._has_frames.wait()
        self._has_room.set()
        return self._frames.popleft()

    def close(self, reason: str) -> None:
        self._closed = self._closed or reason
        self._has_frames.set()
        self._has_room.set()

    def discard(self) -> None:
        """Whoever receives here has closed its end and wants no more."""
        self._frames.clear()


class _End(Generic[Sent, Got]):
    def __init__(self, mine: str, outward: _Way[Sent], inward: _Way[Got]) -> None:
        self._mine = mine
        self._outward = outward
        self._inward = inward

    async def send(self, messages: list[Sent]) -> None:
        await self._outward.put(messages)

    async def receive(self) -> list[Got]:
        while True:
            if messages := await self._inward.take():
                return messages

    async def close(self) -> None:
        self._outward.close(f"the {self._mine} closed the link")
        self._inward.close(f"the {self._mine} closed the link")
        self._inward.discard()


def local_pair() -> tuple[WorkerEnd, ManagerEnd]:
    """Both ends of a new link, connected."""
    upward: _Way[FromWorker] = _Way()
    downward: _Way[FromManager] = _Way()
    return _End("worker", upward, downward), _End("manager", downward, upward)


class LocalDialer:
    """Hands the manager's end of each new link to `accept`, which must not wait."""

    def __init__(self, accept: Callable[[ManagerEnd], None]) -> None:
        self._accept = accept

    async def dial(self) -> WorkerEnd:
        worker_end, manager_end = local_pair()
        self._accept(manager_end)
        return worker_end
