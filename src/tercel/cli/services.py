"""Processes that stay: their event loop and their signals."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from tercel.cli.lazy import late
from tercel.links.places import data_dir

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INSISTENT = 3


def run_service(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, on the event loop that wiring chooses."""
    run: Callable[[Coroutine[Any, Any, T]], T] = late("tercel.wiring", "run")
    return run(main)


class Signals:
    """Counts Ctrl-C and SIGTERM while it is entered, so that the first can ask and the second insist."""

    def __init__(self) -> None:
        self.last = signal.SIGINT
        self._count = 0
        self._waiting: dict[int, asyncio.Event] = {}

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._arrived, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def forget(self) -> None:
        """Count from zero again."""
        self._count = 0
        self._waiting.clear()

    @property
    def arrived(self) -> bool:
        return self._count > 0

    async def wait(self, times: int) -> None:
        """Until so many have arrived."""
        if self._count < times:
            await self._waiting.setdefault(times, asyncio.Event()).wait()

    def _arrived(self, number: signal.Signals) -> None:
        self._count += 1
        self.last = number
        if self._count == INSISTENT:
            self.__exit__()  # a stop that hangs: from now on signals do what they do to any program
        for times, event in self._waiting.items():
            if self._count >= times:
                event.set()


async def first_of(*many: Coroutine[Any, Any, object]) -> int:
    """Run them at once until one ends, and cancel the rest. Returns which it was; raises what it raised."""
    tasks = [asyncio.ensure_future(one) for one in many]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    at = next(i for i, task in enumerate(tasks) if task.done() and not task.cancelled())
    tasks[at].result()
    return at


def hide_secrets() -> None:
    """Tasks inherit the environment of their worker; tokens are not theirs to see."""
    for name in ("TERCEL_TOKEN", "TERCEL_TOKEN_FILE"):
        os.environ.pop(name, None)


def worker_dir(url: str) -> Path:
    """A worker's own directory: one per node (homes are shared between machines) and manager."""
    parts = urlsplit(url)
    name = f"{socket.gethostname() or 'localhost'}-{parts.hostname}-{parts.port or parts.scheme}"
    return data_dir() / "workers" / name.replace("/", "_").replace(":", "_")
