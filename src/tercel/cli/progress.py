"""How far a job is, on stderr: a bar on a terminal, a line every few seconds elsewhere, nothing for what is quick."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, Self

from tercel.cli.lazy import late
from tercel.cli.screen import Screen
from tercel.cli.words import ended, states, total
from tercel.wire.api import Counts

LINE_EVERY_S = 5.0
BAR_AFTER_S = 0.5
"""What is done by then needs no bar, and does not pay for loading one."""
REDRAW_EVERY_S = 0.2


class _Bar(Protocol):
    """See tercel.cli.bar, which is loaded only on a terminal."""

    def draw(self, counts: Counts, note: str = "") -> None: ...
    def hide(self) -> None: ...


class Progress:
    """`async with Progress(screen) as progress:`, then `update` at each event."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._counts: Counts | None = None
        self._bar: _Bar | None = None
        self._aside = 0
        self.blocked_on = ""
        """What tasks wait for, in words, while some do."""
        self._ticker: asyncio.Task[None] | None = None
        self._next_line_at = time.monotonic() + LINE_EVERY_S

    async def __aenter__(self) -> Self:
        if self._screen.lively:
            self._ticker = asyncio.create_task(self._tick())
            self._screen.clear = self._hide
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        self._hide()
        self._screen.clear = None

    def update(self, counts: Counts) -> None:
        self._counts = counts
        if self._screen.lively or self._screen.quiet or time.monotonic() < self._next_line_at:
            return
        self._next_line_at = time.monotonic() + LINE_EVERY_S
        self._screen.note(f"{ended(counts):,} of {total(counts):,} done ({states(counts)})")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the bar off the terminal while something else is written there."""
        self._aside += 1
        self._hide()
        try:
            yield
        finally:
            self._aside -= 1

    def _hide(self) -> None:
        """Until the next tick."""
        if self._bar is not None:
            self._bar.hide()

    async def _tick(self) -> None:
        await asyncio.sleep(BAR_AFTER_S)
        make_bar = await asyncio.to_thread(late, "tercel.cli.bar", "Bar")
        self._bar = make_bar()
        while True:
            if self._counts is not None and not self._aside:
                self._bar.draw(self._counts, self.blocked_on)
            await asyncio.sleep(REDRAW_EVERY_S)
