"""What the commands about conditions have in common."""

import re
from collections.abc import Awaitable, Callable, Sequence

from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Counted

_ID = re.compile(r"[Cc]?([0-9]{1,15})", re.ASCII)


def condition_ids(words: Sequence[str]) -> list[int]:
    """C3 or 3, each once."""
    ids: dict[int, None] = {}
    for word in words:
        match = _ID.fullmatch(word)
        if match is None:
            raise UsageError(
                f"{word!r} is not a condition: write C3, as `tercel blocked` shows it (see also `tercel blocked --help`)",
                "condition",
            )
        ids[int(match[1])] = None
    return list(ids)


def names(ids: Sequence[int]) -> str:
    return ", ".join(f"C{id}" for id in ids)


def change_each(
    screen: Screen,
    words: Sequence[str],
    change: Callable[[AsyncClient, int], Awaitable[Counted]],
    tell: Callable[[list[int], list[int]], None],
) -> None:
    """Do something to conditions that all are there. `tell` gets their ids and what was counted of each."""
    ids = condition_ids(words)

    async def ask(client: AsyncClient) -> None:
        for id in ids:
            await client.condition(id)  # before anything is changed
        done = [await change(client, id) for id in ids]
        tell(ids, [one.count for one in done])
        for note in [one.note for one in done if one.note]:
            screen.note(note)

    talk(screen, ask)
