"""Virtual time: things to do, in order of their time, then of being asked for. Nothing here sleeps."""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

TRACE_KEPT = 400


class Schedule:
    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.steps = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._asked = 0
        self._trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=TRACE_KEPT)

    def after(self, delay_s: float, do: Callable[..., None], *arguments: Any) -> None:
        self._asked += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._asked, do, arguments))

    def step(self, until: float) -> bool:
        """Do the next thing, if it is due by then."""
        if not self._heap or self._heap[0][0] > until:
            return False
        self.now, _, do, arguments = heapq.heappop(self._heap)
        self.steps += 1
        do(*arguments)
        return True

    def note(self, text: str, *details: Any) -> None:
        """For the trace; put together only if it is read."""
        self._trace.append((self.now, text, details))

    def trace(self) -> str:
        return "\n".join(
            f"{at - 1_000_000.0:10.3f}  {text} {' '.join(_shown(detail) for detail in details)}"
            for at, text, details in self._trace
        )


def _shown(detail: Any) -> str:
    return detail if isinstance(detail, str) else repr(detail)
