"""A worker with a time limit: when it warns what runs, when it takes nothing more, when it stops. Pure.

        drain_at ............ stop_at ...... ends_at
           |   warn_at(120)     |
           takes nothing new    what still runs is asked to end, then ended, and runs again elsewhere

The last stretch is for ending processes and delivering what they left; it is a tenth of a short time. Who wants to be
warned earlier than that makes the worker drain earlier, by a tenth of its time at most: one task's wish for a long warning
must not keep all others away. It is warned as early as it wants all the same, or at once if it began later than that.
"""

import re
from collections.abc import Mapping

import msgspec

STOP_S = 15.0
DRAIN_S = 30.0
LOOK_EVERY_S = 5.0
"""What begins meanwhile may want its warning early."""
SLURM_MOST_S = 10 * 365 * 86400.0
"""An end that is further away than ten years is none."""
WHY = "its worker's time was up"

_WARNING = re.compile(r"\w*@(\d+(?:\.\d+)?)")


def slurm_time_left_s(environ: Mapping[str, str], now: float) -> float | None:
    """Of the Slurm job that a worker runs in, if it runs in one that says."""
    text = environ.get("SLURM_JOB_END_TIME", "")
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        return None
    left_s = int(text) - now
    # Of a job that has ended: left behind in the environment. Of one that never ends: no limit.
    return left_s if 0 < left_s <= SLURM_MOST_S else None


def warning_s(warn_signal: str) -> float:
    """How long before its end a task with this `warn_signal` wants to know: of USR1@120, 120."""
    found = _WARNING.fullmatch(warn_signal)
    return float(found[1]) if found is not None else 0.0


class Due(msgspec.Struct, frozen=True):
    """What is to be done now, and when to ask again."""

    warn: list[int]
    drain: bool
    stop: bool
    pause_s: float


class Timetable:
    """Times are of one clock, whichever."""

    def __init__(self, limit_s: float, now: float) -> None:
        self.ends_at = now + limit_s
        self.stop_at = self.ends_at - min(STOP_S, limit_s / 10)
        self.grace_s = (self.ends_at - self.stop_at) / 2
        """What is asked to end may take so long about it."""
        self._drain_s = min(DRAIN_S, limit_s / 10)
        self._drain_most_s = limit_s / 10
        self._warned: set[int] = set()

    def left_s(self, now: float) -> float:
        """For tasks: they are ended before the very end."""
        return max(0.0, self.stop_at - now)

    def due(self, running: Mapping[int, float], now: float) -> Due:
        """`running`: how long before the end each attempt that runs wants to be warned, if it does (else 0)."""
        drain_at = self.stop_at - min(self._drain_most_s, max([self._drain_s, *running.values()]))
        warn = [
            attempt
            for attempt, warn_s in running.items()
            if warn_s and attempt not in self._warned and now >= self.stop_at - warn_s
        ]
        self._warned = self._warned.intersection(running).union(warn)
        times = [self.stop_at, drain_at]
        times += [self.stop_at - running[a] for a in running if a not in self._warned and running[a]]
        pause_s = min([LOOK_EVERY_S, *(at - now for at in times if at > now)])
        return Due(warn, now >= drain_at, now >= self.stop_at, pause_s)
