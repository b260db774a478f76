"""A function over many items, in order, several items to a task where they are quick.

first items   one to a task, two for each cpu of the pool: they tell how long an item takes
the rest      as many to a task as take half a second, but so few that every cpu gets several tasks
"""

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from tercel.core.errors import TercelError, UsageError
from tercel.sdk.calling import Calling
from tercel.sdk.chunks import Chunked
from tercel.sdk.decorator import Task
from tercel.sdk.futures import TaskFuture
from tercel.sdk.options import CallOptions, with_resources

if TYPE_CHECKING:
    from tercel.sdk.client import AsyncClient

CHUNK_S = 0.5
CHUNKS_PER_CPU = 4
CHUNK_MOST = 10_000


async def mapped(
    client: "AsyncClient",
    function: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    chunksize: int | str,
    progress: bool | None,
    resources: Mapping[str, Any] | None,
    options: CallOptions,
) -> AsyncGenerator[Any, None]:
    if chunksize != "auto" and (not isinstance(chunksize, int) or chunksize < 1):
        raise UsageError(f"chunksize is a number from 1 on, or auto, not {chunksize!r}", "chunksize")
    if isinstance(function, Task):
        plain = {name: value for name, value in function.options.items() if name != "resources"}
        options = msgspec.structs.replace(with_resources(options, function.options.get("resources")), **plain)
        function = function.function
    waiting = list(items)
    run = _Run(client, Chunked(function), with_resources(options, resources))
    try:
        with _shown(len(waiting), progress) as advance:
            if isinstance(chunksize, int):
                run.send(waiting, chunksize)
            else:
                await run.send_measured(waiting)
            async for results in run.results():
                for result in results:
                    advance()
                    yield result
    finally:
        await run.stop()


class _Run:
    """One mapping: its tasks in order."""

    def __init__(self, client: "AsyncClient", function: Chunked, options: CallOptions) -> None:
        self._client = client
        self._calling = Calling(client, asyncio.get_running_loop())
        self._function = function
        self._options = options
        self._tasks: list[TaskFuture[Any]] = []
        self._read = 0

    def send(self, items: Sequence[Any], size: int) -> None:
        chunks = ([(item,) for item in items[at : at + size]] for at in range(0, len(items), size))
        self._tasks += self._calling.submit_many(
            self._function, self._options, (((chunk,), {}) for chunk in chunks)
        )

    async def send_measured(self, items: Sequence[Any]) -> None:
        cpus = max(1.0, (await self._client.pool()).cpus)
        first = math.ceil(2 * cpus)
        self.send(items[:first], 1)
        if len(items) > first:
            waits = [asyncio.wrap_future(task) for task in self._tasks]
            took = [
                done
                for done in await asyncio.gather(*waits, return_exceptions=True)
                if isinstance(done, tuple)
            ]
            item_s = sum(seconds for _, seconds in took) / len(took) if took else CHUNK_S
            self.send(items[first:], _chunk(item_s, len(items) - first, cpus))

    async def results(self) -> AsyncGenerator[list[Any], None]:
        for at, task in enumerate(self._tasks):
            results, _ = await asyncio.wrap_future(task)
            self._read = at + 1
            yield results

    async def stop(self) -> None:
        """What was not asked for is cancelled."""
        try:
            await self._calling.cancel(self._tasks[self._read :])
        except TercelError:
            pass  # the manager is away: whoever ends it in this moment cannot also be told why
        await self._calling.aclose()


def _chunk(item_s: float, count: int, cpus: float) -> int:
    wanted = math.ceil(CHUNK_S / item_s) if item_s > 0 else CHUNK_MOST
    return max(1, min(wanted, math.ceil(count / (CHUNKS_PER_CPU * cpus)), CHUNK_MOST))


@contextmanager
def _shown(total: int, progress: bool | None) -> Iterator[Callable[[], None]]:
    """Yields what to call for each item that is done. On a terminal by default; in a notebook if asked for."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load, and mostly not needed
    from rich.progress import Progress  # noqa: PLC0415

    # In a notebook, rich draws with widgets; without them it would show nothing but a warning.
    widgets = find_spec("ipywidgets") is not None
    with Progress(console=Console(stderr=True, force_jupyter=None if widgets else False)) as bar:
        line = bar.add_task("items", total=total)
        yield lambda: bar.advance(line)
