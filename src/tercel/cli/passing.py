"""How much of a file has gone through, on stderr: a bar on a terminal, a line every few seconds elsewhere, nothing for what is quick."""

import asyncio
from typing import Protocol, Self

from tercel.cli.lazy import late
from tercel.cli.progress import BAR_AFTER_S, LINE_EVERY_S, REDRAW_EVERY_S
from tercel.cli.screen import Screen
from tercel.cli.words import size


class _Bar(Protocol):
    """See tercel.cli.bar, which is loaded only on a terminal."""

    def draw(self, passed_bytes: int) -> None: ...
    def hide(self) -> None: ...


class BytesPassing:
    """`async with BytesPassing(screen, name, total) as passing:`, then `passing.heard` is told how many bytes there were."""

    def __init__(self, screen: Screen, name: str, total_bytes: int | None) -> None:
        self._screen = screen
        self._name = name
        self._total_bytes = total_bytes
        self._passed_bytes = 0
        self._bar: _Bar | None = None
        self._ticker: asyncio.Task[None] | None = None

    def heard(self, passed_bytes: int) -> None:
        self._passed_bytes = passed_bytes

    async def __aenter__(self) -> Self:
        self._ticker = asyncio.create_task(self._draw() if self._screen.lively else self._say())
        self._screen.clear = self._hide
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        self._hide()
        self._screen.clear = None

    def _hide(self) -> None:
        """Until the next tick."""
        if self._bar is not None:
            self._bar.hide()

    async def _draw(self) -> None:
        await asyncio.sleep(BAR_AFTER_S)
        make_bar = await asyncio.to_thread(late, "tercel.cli.bar", "BytesBar")
        self._bar = make_bar(self._total_bytes)
        while True:
            self._bar.draw(self._passed_bytes)
            await asyncio.sleep(REDRAW_EVERY_S)

    async def _say(self) -> None:
        whole = "" if self._total_bytes is None else f" of {size(self._total_bytes)}"
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            self._screen.note(f"{self._name}: {size(self._passed_bytes)}{whole} so far")
