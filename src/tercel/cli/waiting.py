"""Waiting for jobs and tasks, through restarts of the manager, and telling how they ended."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing

from tercel.cli.blockage import Blockage
from tercel.cli.codes import OK, TASK_FAILED
from tercel.cli.progress import Progress
from tercel.cli.screen import Screen
from tercel.cli.selecting import Chosen, each_task, existing
from tercel.cli.words import plain, under_way
from tercel.core.errors import TercelError
from tercel.core.intervals import IntervalSet
from tercel.core.states import TaskState
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Counts, Event, TaskView

MOST_FAILURES = 5
MOST_EXPLAINED = 5
STALLED_S = 3.0
"""A job of which nothing runs by then gets an explanation."""
_FIELDS = Counts.__struct_fields__


def lost_manager(screen: Screen) -> Callable[[TercelError], None]:
    """Says, once, that the manager is away and that waiting goes on."""
    told = False

    def tell(error: TercelError) -> None:
        nonlocal told
        if not told:
            screen.note(f"the manager is away ({error}); waiting until it is back")
        told = True

    return tell


async def wait_for(
    client: AsyncClient, screen: Screen, chosen: Sequence[Chosen]
) -> list[tuple[Chosen, Counts]]:
    """Wait until everything chosen has ended. Returns how, for each."""
    blockage = Blockage(client, screen)
    minding = [
        asyncio.create_task(say_why_nothing_runs(client, screen, [choice.job for choice in chosen])),
        asyncio.create_task(blockage.mind()),
    ]
    try:
        return await _wait_for(client, screen, chosen, blockage)
    finally:
        for task in minding:
            task.cancel()
        await asyncio.gather(*minding, return_exceptions=True)


async def _wait_for(
    client: AsyncClient, screen: Screen, chosen: Sequence[Chosen], blockage: Blockage
) -> list[tuple[Chosen, Counts]]:
    results: list[tuple[Chosen, Counts]] = []
    whole = [choice for choice in chosen if choice.tasks is None]
    parts = [choice for choice in chosen if choice.tasks is not None]
    async with Progress(screen) as progress:
        blockage.progress = progress
        tally = Tally()
        jobs = [choice.job for choice in whole]
        async for event in client.watch(jobs, on_lost=lost_manager(screen)):
            tally.heard(event)
            blockage.heard(event.job, event.counts)
            progress.update(tally.total)
        results += [(choice, tally.latest[choice.job]) for choice in whole]
        for choice in parts:
            results.append((choice, await _wait_for_tasks(client, screen, choice, blockage)))
    return results


async def say_why_nothing_runs(client: AsyncClient, screen: Screen, jobs: Iterable[int]) -> None:
    """No silent stall: a need that no worker meets is said, once."""
    await asyncio.sleep(STALLED_S)
    try:
        for job in list(dict.fromkeys(jobs))[:MOST_EXPLAINED]:
            counts = (await client.job(job)).counts
            if counts.ready and not under_way(counts):
                screen.note(f"job {job}: {(await client.explain(str(job))).summary}")
    except TercelError:
        return  # watching says what is wrong with the manager


def exit_code(counts: Iterable[Counts]) -> int:
    return TASK_FAILED if any(c.failed or c.cancelled for c in counts) else OK


async def say_failures(
    client: AsyncClient, screen: Screen, job: int, failed: int, *, before: str = ""
) -> None:
    """The first failed tasks, each with its end and the last line of its stderr; then what can be done."""
    page = await client.tasks(job, state=TaskState.FAILED, limit=MOST_FAILURES, outputs=True)
    for task in page.tasks:
        screen.warn(failure(task))
    if page.tasks:
        rest = failed - len(page.tasks)
        first = page.tasks[0].id
        screen.note(
            (f"and {rest:,} more; " if rest > 0 else "")
            + f"{before}`tercel logs {first} --stderr` shows more, "
            + f"`tercel retry {job}{await with_more(client, page.tasks[0])}` runs them again"
        )


async def with_more(client: AsyncClient, task: TaskView) -> str:
    """What a retry needs to say: twice the memory that was too little."""
    if not task.attempts or task.attempts[-1].exceeded != "memory":
        return ""
    had_bytes = (await client.job(task.job)).mem_bytes
    return f" --with-mem {-(-2 * had_bytes // 2**20)}M" if had_bytes else ""


def failure(task: TaskView) -> str:
    """`37.12 failed: exit code 3: No such file`."""
    last = (task.stderr or "").strip().rpartition("\n")[2].strip()
    if task.why.endswith(f": {last.removeprefix('tercel: ')}"):
        last = ""  # Tercel's own note on a program that could not be started is in both
    parts = [f"{task.id} {task.state}", plain(task.why), plain(last)[:200]]
    return ": ".join(part for part in parts if part)


async def _wait_for_tasks(client: AsyncClient, screen: Screen, choice: Chosen, blockage: Blockage) -> Counts:
    assert choice.tasks is not None
    wanted = existing(await client.job(choice.job), choice.tasks)
    waiting = wanted.copy()
    async with aclosing(client.watch([choice.job], tasks=True, on_lost=lost_manager(screen))) as events:
        async for event in events:
            blockage.heard(event.job, event.counts)
            waiting.difference_update(IntervalSet(event.ended))
            if not waiting:
                break
    return await _count(client, choice.job, wanted)


async def _count(client: AsyncClient, job: int, tasks: IntervalSet) -> Counts:
    """How the tasks stand, by asking for each of them."""
    tally = dict.fromkeys(_FIELDS, 0)
    async for task in each_task(client, job, tasks):
        tally[task.state] += 1
    return Counts(**tally)


class Tally:
    """How the tasks of several jobs stand together, kept up event by event: a flow may have 100,000 jobs."""

    def __init__(self) -> None:
        self.latest: dict[int, Counts] = {}
        self._total = dict.fromkeys(_FIELDS, 0)

    def heard(self, event: Event) -> None:
        before = self.latest.get(event.job, Counts())
        self.latest[event.job] = event.counts
        for field in _FIELDS:
            self._total[field] += getattr(event.counts, field) - getattr(before, field)

    @property
    def total(self) -> Counts:
        return Counts(**self._total)
