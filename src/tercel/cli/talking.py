"""One command's conversation with the manager."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tercel.cli.screen import Screen
from tercel.sdk.client import AsyncClient

T = TypeVar("T")


def talk(screen: Screen, conversation: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Run a command's part that speaks to the manager."""

    async def whole() -> T:
        async with AsyncClient(screen.server) as client:
            return await conversation(client)

    return asyncio.run(whole())
