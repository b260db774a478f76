"""The manager's clock: the machine's, but it never jumps.

A clock that is set back by an hour would make every test, retry and grace time an hour late; one that is set forward would
give up what was just begun to be waited for. So time goes on as it passes, and what is shown to people is brought in line with
the machine's clock little by little: by half of the time that has passed since, at most. Sleep of the machine counts as time.
"""

import logging
import time
from collections.abc import Callable

from tercel.core.sizes import duration

log = logging.getLogger("tercel.manager")

CATCH_UP = 0.5
"""Of the time that passes: an hour is made up for in two."""
JUMP_S = 5.0
"""A difference that is told."""


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SteadyClock:
    """Seconds since 1970, for any one thread."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _since_boot
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._now = wall()
        self._at = steady()
        self._is_off = False

    def __call__(self) -> float:
        at, wall = self._steady(), self._wall()
        passed = max(0.0, at - self._at)
        self._at = at
        self._now += passed
        off = wall - self._now
        if abs(off) > JUMP_S and not self._is_off:
            way = "forward" if off > 0 else "back"
            log.warning(
                "the clock of this machine was set %s by %s: times are brought in line within %s",
                way,
                duration(abs(off)),
                duration(abs(off) / CATCH_UP),
            )
        self._is_off = abs(off) > JUMP_S
        self._now += max(-CATCH_UP * passed, min(off, CATCH_UP * passed))
        return self._now
