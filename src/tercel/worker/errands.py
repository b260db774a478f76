"""Tasks of a worker's loop, one for each attempt at most: begun, ended early, and none left when it leaves."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Errands:
    def __init__(
        self, on_error: Callable[[Exception], None], on_ended: Callable[[int], None] | None = None
    ) -> None:
        """`on_error`: one failed in a way that nobody foresaw. `on_ended`: one that was to end early has ended."""
        self._on_error = on_error
        self._on_ended = on_ended
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def begin(self, attempt: int, errand: Coroutine[Any, Any, None]) -> None:
        task = self._under_way[attempt] = asyncio.get_running_loop().create_task(errand)
        task.add_done_callback(lambda done: self._done(attempt, done))

    def end(self, attempt: int) -> None:
        """It need not be under way."""
        if (task := self._under_way.pop(attempt, None)) is not None and not task.done():
            task.cancel()
            self._ending.add(task)

    async def close(self) -> None:
        """End all, and wait for them."""
        for attempt in list(self._under_way):
            self.end(attempt)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _done(self, attempt: int, task: "asyncio.Task[None]") -> None:
        if self._under_way.get(attempt) is task:
            del self._under_way[attempt]
        self._ending.discard(task)
        if task.cancelled():
            if self._on_ended is not None:
                self._on_ended(attempt)
        elif (error := task.exception()) is not None:
            self._on_error(error if isinstance(error, Exception) else RuntimeError(repr(error)))
