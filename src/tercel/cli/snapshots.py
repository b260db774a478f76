"""What the commands about snapshots have in common."""

import asyncio
import re
from collections.abc import Callable
from typing import Self

from tercel.cli.progress import LINE_EVERY_S
from tercel.cli.screen import Screen
from tercel.cli.words import size

_OWN = re.compile(r"@([0-9]{1,9})")


def own_number(text: str) -> int:
    """3 of @3, a snapshot that the manager took by itself; 0 if it is none."""
    match = _OWN.fullmatch(text)
    return int(match[1]) if match is not None else 0


class Passing:
    """Says every few seconds how much has gone through, of what takes so long."""

    def __init__(self, screen: Screen, words: Callable[[str], str]) -> None:
        self._screen = screen
        self._words = words
        self._bytes = 0
        self._ticker: asyncio.Task[None] | None = None

    def heard(self, size_bytes: int) -> None:
        self._bytes = size_bytes

    async def __aenter__(self) -> Self:
        self._ticker = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            self._screen.note(self._words(size(self._bytes)))
