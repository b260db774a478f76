"""The machine's clock, and whether somebody set it.

A clock that is set back by an hour would make every test, retry and grace time an hour late; one that is set forward would
give up what has just begun to be waited for. So whoever goes by it is told, before it is shown the new time.
"""

import logging
import time
from collections.abc import Callable

from tercel.core.sizes import duration

log = logging.getLogger("tercel.manager")

JUMP_S = 5.0
"""What is less is drift, or a slow call between two looks."""


def _since_boot() -> float:
    """Sleep of the machine is time that passes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class WatchedClock:
    """Seconds since 1970. For one thread; `on_set` hears by how much it was set: forward, or (less than 0) back."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _since_boot
    ) -> None:
        self.on_set: Callable[[float], None] = lambda _: None
        self._wall = wall
        self._steady = steady
        self._looked = wall(), steady()

    def __call__(self) -> float:
        looked = self._wall(), self._steady()
        by_s = (looked[0] - self._looked[0]) - (looked[1] - self._looked[1])
        self._looked = looked
        if abs(by_s) > JUMP_S:
            way = "forward" if by_s > 0 else "back"
            log.warning("the clock of this machine was set %s by %s", way, duration(abs(by_s)))
            self.on_set(by_s)
        return looked[0]
