"""Keeps a little room on the worker's disk: should it run out, whoever takes most of it is ended, and nobody else.

Every attempt needs some room there, and so do results that wait to be delivered. If no sandbox is larger than what is
to stay free, somebody else fills the disk, and ending tasks would not help.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from tercel.core.sizes import least_free, size
from tercel.runners.board import NOBODY
from tercel.runners.measuring import Meter

log = logging.getLogger("tercel.runners")

LOOK_S = 1.0
AGAIN_S = 10.0
"""After an attempt was ended for it: removing what it wrote takes a while."""
MEASURE_S = 5.0


class Occupant(Protocol):
    """A lane."""

    @property
    def directory(self) -> bytes | None: ...

    def running(self) -> int:
        """The attempt that has run for a moment, or NOBODY."""

    def end_for_excess(self, attempt: int, what: str, note: str) -> None: ...


class DiskFloor:
    def __init__(self, dir: Path, node: str, lanes: Callable[[], Iterable[Occupant]]) -> None:
        self._dir = dir
        self._node = node
        self._lanes = lanes

    async def keep(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                ended = await self.look()
            except OSError as error:
                log.warning("Cannot see how much room is left in %s: %s.", self._dir, error)
                ended = True
            await asyncio.sleep(AGAIN_S if ended else LOOK_S)

    async def look(self) -> bool:
        """Whether an attempt had to be ended."""
        disk = os.statvfs(self._dir)
        floor = int(least_free(disk.f_blocks * disk.f_frsize))
        left = disk.f_bavail * disk.f_frsize
        if left >= floor:
            return False
        occupants = [
            (lane, attempt, lane.directory) for lane in self._lanes() if (attempt := lane.running()) != NOBODY
        ]
        sizes = await asyncio.to_thread(lambda: [_size(directory) for _, _, directory in occupants])
        if not sizes or (largest := max(sizes)) <= floor:
            return False
        lane, attempt, _ = occupants[sizes.index(largest)]
        if lane.running() != attempt:
            return True  # it has just ended by itself
        note = f"wrote {size(largest)} and filled the disk of {self._node}: {size(left)} left"
        log.warning("Ending attempt %d: it %s.", attempt, note)
        lane.end_for_excess(attempt, "disk", note)
        return True


def _size(directory: bytes | None) -> int:
    return Meter(directory).whole(MEASURE_S) if directory is not None else 0
