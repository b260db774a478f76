"""What is said while a large snapshot goes through."""

import asyncio
from typing import cast

import pytest

from tercel.cli import snapshots
from tercel.cli.screen import Screen


class Listener:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


async def test_what_takes_long_says_how_far_it_is_and_what_is_quick_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener = Listener()
    screen = cast(Screen, listener)
    async with snapshots.Passing(screen, lambda size: f"x: {size} so far") as passing:
        passing.heard(10)
    assert listener.notes == []
    monkeypatch.setattr(snapshots, "LINE_EVERY_S", 0.001)
    async with snapshots.Passing(screen, lambda size: f"x: {size} so far") as passing:
        passing.heard(3 * 2**20)
        while len(listener.notes) < 2:
            await asyncio.sleep(0.001)
    assert set(listener.notes) == {"x: 3.0 MiB so far"}
