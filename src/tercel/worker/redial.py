"""How long a worker waits before it dials again, and when it gives up."""

import random

from tercel.core.errors import Forbidden, TercelError, Unreachable
from tercel.worker.options import WorkerOptions

RECONNECT_FIRST_S = 0.1
PROVEN_S = 10.0
"""A link that lasted so long was a good one: after its loss dialling starts anew with short pauses."""


class Redial:
    """Times are of the loop's clock."""

    def __init__(self, options: WorkerOptions, rng: random.Random, now: float) -> None:
        self._options = options
        self._rng = rng
        self._failures = 0
        self._alone_since = now

    def lost(self, joined_at: float, now: float) -> None:
        """A link on which it was welcome, at that time."""
        self._alone_since = now
        if now - joined_at >= PROVEN_S:
            self._failures = 0

    def pause_s(self, trouble: TercelError, now: float) -> float:
        """After this trouble. Raises Unreachable if that is too long to be alone."""
        self._failures += 1
        pause_s = self._draw(trouble)
        limit_s = self._options.leave_when_unreachable_s
        if 0 < limit_s <= now + pause_s - self._alone_since:
            raise Unreachable(f"no manager for {limit_s:g} s: {trouble}") from trouble
        return pause_s

    def _draw(self, trouble: TercelError) -> float:
        """Full jitter: whoever lost the same manager at the same moment does not come back at the same moment."""
        most_s = self._options.reconnect_most_s
        if isinstance(trouble, Forbidden):
            return self._rng.uniform(most_s / 2, most_s)
        return self._rng.uniform(0, min(most_s, RECONNECT_FIRST_S * 2 ** min(self._failures - 1, 30)))
