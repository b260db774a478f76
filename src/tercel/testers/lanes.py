"""So many tests at a time, such that those that hang keep none of the quick ones waiting.

    asked -> quick lane -> answered
                 | takes longer than QUICK_S
                 v
             slow lane   -> answered, or ended at the limit; from now on it is asked in the slow lane

A test that was slow the last time queues with its like until it is quick again; where there are too many of them each has its
turn, for whoever was not asked for the longest time comes first. One that turns out slow when the slow lane is
full is ended: it holds a place there the next time.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tercel.core.conditions import Verdict
from tercel.testers.gates import Gate
from tercel.testers.verdicts import not_cleared

QUICK_S = 1.0
REMEMBERED_MOST = 50_000
"""Tests of which is known when they were last asked, and whether they were slow."""

T = TypeVar("T")


class Lanes:
    """Of one process, for tests that cost the same thing."""

    def __init__(self, quick: int, slow: int, quick_s: float = QUICK_S) -> None:
        self._quick = Gate(quick)
        self._slow = Gate(slow)
        self._quick_s = quick_s
        self._known: OrderedDict[str, tuple[float, bool]] = OrderedDict()

    async def run(self, key: str, test: Callable[[], Awaitable[Verdict]]) -> Verdict:
        """Wait for a turn, and ask. Cancelling it cancels the test."""
        asked_at, was_slow = self._known.get(key, (0.0, False))
        if was_slow:
            await self._slow.enter(asked_at)
            return await self._in_slow_lane(key, asyncio.ensure_future(test()))
        await self._quick.enter(asked_at)
        task = asyncio.ensure_future(test())
        try:
            await self._for(task, self._quick_s)
        finally:
            self._quick.leave()
        if task.done():
            self._remember(key, slow=False)
            return task.result()
        if not self._slow.free:
            self._remember(key, slow=True)
            await _end(task)
            return not_cleared(
                f"no answer within {self._quick_s:g} s, and many others are as slow; asked again"
            )
        self._slow.free -= 1
        return await self._in_slow_lane(key, task)

    async def _in_slow_lane(self, key: str, task: "asyncio.Future[Verdict]") -> Verdict:
        begun = time.monotonic()
        self._remember(key, slow=True)
        try:
            await self._for(task, None)
        finally:
            self._slow.leave()
        self._remember(key, slow=time.monotonic() - begun > self._quick_s)
        return task.result()

    async def _for(self, task: "asyncio.Future[T]", timeout_s: float | None) -> None:
        try:
            await asyncio.wait([task], timeout=timeout_s)
        except asyncio.CancelledError:
            await _end(task)
            raise

    def _remember(self, key: str, slow: bool) -> None:
        self._known[key] = (time.monotonic(), slow)
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED_MOST:
            self._known.popitem(last=False)


async def _end(task: "asyncio.Future[Any]") -> None:
    """Nobody waits for one that will not be cancelled."""
    task.cancel()
    await asyncio.sleep(0)
    task.add_done_callback(_look_away)


def _look_away(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()  # taken note of: who asked has gone
