"""What `tercel run` does: find or be a manager, hand the job in, show its outputs, and see it to its end.

Ctrl-C once    cancels the job and goes on watching until it has ended
Ctrl-C twice   leaves at once
SIGTERM        leaves at once; the job is not cancelled: a manager elsewhere goes on with it, and what an embedded
               one leaves is finished by the next
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from tercel.cli.codes import INTERRUPTED, NO_READER, OK, TERMINATED
from tercel.cli.jobflags import Order
from tercel.cli.lazy import late
from tercel.cli.outputs import LiveTask, Outputs
from tercel.cli.progress import Progress
from tercel.cli.screen import Screen
from tercel.cli.services import Signals, first_of
from tercel.cli.waiting import (
    STALLED_S,
    exit_code,
    failure,
    lost_manager,
    say_failures,
    say_why_nothing_runs,
)
from tercel.cli.words import count, duration, states
from tercel.core.errors import TercelError, Unreachable, UsageError
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Counts

CHANGING_S = 10.0
"""How long the directory may be another manager's that does not answer: one that starts, or one that ends."""
READING_S = 10.0
"""How long those who were served by the manager in this process may take to read how their jobs ended."""
MOST_STUCK = 5
LAST_WORDS_S = 2.0
"""How long the live output of a task may go on after its end was told."""


class Embedded(Protocol):
    """See tercel.cli.hosting, which is loaded only where no manager runs."""

    url: str
    token: str

    async def wait_idle(self) -> None: ...
    async def wait_stuck(self, patience_s: float) -> None: ...
    async def wait_unused(self, patience_s: float) -> None: ...


def named_server(screen: Screen) -> bool:
    return bool(screen.server or os.environ.get("TERCEL_SERVER"))


async def run_order(screen: Screen, order: Order, *, label: bool) -> int:
    with Signals() as signals:
        async with some_manager(screen) as (client, embedded):
            run = Run(client, screen, order, signals, label=label, embedded=embedded is not None)
            if await first_of(run.whole(), run.told_to_leave()) == 1:
                return run.leave()
            if embedded is not None:
                await _stay_for_others(client, screen, embedded, signals)
            return run.code


class Run:
    """One job, from its submission to its end."""

    def __init__(
        self,
        client: AsyncClient,
        screen: Screen,
        order: Order,
        signals: Signals,
        *,
        label: bool,
        embedded: bool,
    ) -> None:
        self.code = OK
        self._embedded = embedded
        self._client = client
        self._screen = screen
        self._order = order
        self._signals = signals
        self._label = label
        self._job: int | None = None
        self._cancelled = False

    async def whole(self) -> None:
        began = time.monotonic()
        submitted = await self._client.submit(self._order.submission)
        self._job = submitted.id
        self._screen.emit(
            {"event": "submitted", "id": submitted.id, "tasks": submitted.tasks, "name": submitted.name}
        )
        if submitted.tasks > 1:
            self._screen.note(f"job {submitted.id}: {count(submitted.tasks, 'task')}")
        try:
            counts = await _beside(self._attend(submitted.id), self._mind(submitted.id))
        except BrokenPipeError:
            await self._client.cancel([str(submitted.id)], reason="nobody reads its output")
            self._screen.note(f"nobody reads the output any more: job {submitted.id} is cancelled")
            self.code = NO_READER
            return
        await self._conclude(submitted.id, counts, time.monotonic() - began)

    async def told_to_leave(self) -> None:
        await self._signals.wait(1)
        if self._signals.last is signal.SIGINT:
            await self._signals.wait(2)

    def leave(self) -> int:
        if self._job is not None and not self._cancelled:
            where = " with the next `tercel run` or `tercel up`" if self._embedded else ""
            self._screen.warn(f"left; job {self._job} goes on{where}")
        return TERMINATED if self._signals.last is signal.SIGTERM else INTERRUPTED

    async def _mind(self, job: int) -> None:
        """What happens beside watching."""
        await asyncio.gather(
            self._cancel_when_interrupted(job), say_why_nothing_runs(self._client, self._screen, [job])
        )

    async def _cancel_when_interrupted(self, job: int) -> None:
        await self._signals.wait(1)
        if self._signals.last is not signal.SIGINT:
            return
        self._screen.warn(f"cancelling job {job}; Ctrl-C again leaves at once")
        try:
            await self._client.cancel([str(job)], reason="Ctrl-C")
            self._cancelled = True
        except TercelError as error:
            self._screen.warn(f"job {job} is not cancelled: {error}")

    @property
    def _live(self) -> bool:
        """One task is shown while it runs; a second try of it would be shown on top of the first."""
        once = self._order.tasks == 1 and not self._order.submission.retries
        return once and not self._screen.json and not self._label

    async def _attend(self, job: int) -> Counts:
        if self._live:
            task = LiveTask(self._client, self._screen, job, self._order.ranges[0][0])
            counts = await _beside(self._watch(job), task.follow(), patience_s=LAST_WORDS_S)
            await task.complete()
            return counts
        async with Progress(self._screen) as progress:
            outputs = Outputs(self._client, self._screen, progress, job, label=self._label)
            return await _beside(self._watch(job, progress, outputs), outputs.pump(), patience_s=None)

    async def _watch(
        self, job: int, progress: Progress | None = None, outputs: Outputs | None = None
    ) -> Counts:
        counts = Counts()
        told = lost_manager(self._screen)
        async for event in self._client.watch([job], tasks=outputs is not None, on_lost=told):
            counts = event.counts
            if progress is not None:
                progress.update(counts)
            if outputs is not None:
                outputs.heard(event)
        if outputs is not None:
            outputs.close()
        return counts

    async def _conclude(self, job: int, counts: Counts, lasted_s: float) -> None:
        self.code = INTERRUPTED if self._signals.arrived else exit_code([counts])
        self._screen.emit({"event": "ended", "id": job, "counts": counts, "exit_code": self.code})
        if self._order.tasks > 1 or counts.cancelled:
            self._screen.note(f"job {job}: {states(counts)} in {duration(lasted_s)}")
        if counts.failed and self._live:
            self._screen.warn(failure(await self._client.task(job, self._order.ranges[0][0])))
        elif counts.failed:
            before = "with `tercel up` running, " if self._embedded else ""
            await say_failures(self._client, self._screen, job, counts.failed, before=before)


@asynccontextmanager
async def some_manager(screen: Screen) -> AsyncIterator[tuple[AsyncClient, Embedded | None]]:
    """The manager that is named or runs here, else one in this process."""
    async with AsyncExitStack() as stack:
        embedded: Embedded | None = None
        client = await _running_manager(screen)
        until = time.monotonic() + CHANGING_S
        while client is None:
            make: Callable[[Screen], AbstractAsyncContextManager[Embedded]]
            make = late("tercel.cli.hosting", "embedded_manager")
            try:
                embedded = await stack.enter_async_context(make(screen))
                client = AsyncClient(embedded.url, embedded.token)
            except UsageError:
                # Most likely another `tercel run` has just started one (use that) or ends its own (take over).
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)
                client = await _running_manager(screen)
        await stack.enter_async_context(client)
        yield client, embedded


async def _running_manager(screen: Screen) -> AsyncClient | None:
    """A client of the manager that is named or that the access file tells of; None if there is none here."""
    client = AsyncClient(screen.server)
    try:
        await client.health()
    except Unreachable:
        await client.aclose()
        if named_server(screen):
            raise
        return None
    return client


async def _stay_for_others(client: AsyncClient, screen: Screen, embedded: Embedded, signals: Signals) -> None:
    """The manager in this process may have jobs of other commands and of earlier runs: it ends when they are done.

    What this machine cannot run (a leftover that needs more memory, or a directory that is gone) is not waited for:
    it would keep every later `run` from ending.
    """
    signals.forget()
    known = -1
    # Again if whoever was connected has handed in another one.
    while not signals.arrived and (newest := await _newest_job(client)) > known:
        known = newest
        others = (await client.status()).jobs
        await client.aclose()  # so that whoever is connected now is somebody else
        if others:
            screen.warn(
                f"{count(others, 'other job')} still under way in this manager: staying until done "
                "(Ctrl-C leaves; they go on with the next one)"
            )
            ended = await first_of(embedded.wait_idle(), embedded.wait_stuck(STALLED_S), signals.wait(1))
            if ended == 1:
                await _say_what_is_stuck(client, screen)
        await first_of(embedded.wait_unused(READING_S), signals.wait(1))


async def _newest_job(client: AsyncClient) -> int:
    page = await client.jobs(limit=1, all=True)
    return page.jobs[0].id if page.jobs else 0


async def _say_what_is_stuck(client: AsyncClient, screen: Screen) -> None:
    page = await client.jobs(limit=MOST_STUCK)
    for job in page.jobs:
        screen.warn(f"job {job.id} is left: {(await client.explain(str(job.id))).summary}")
    ids = " ".join(str(job.id) for job in page.jobs)
    screen.note(f"with `tercel up` running, `tercel cancel {'all' if page.more else ids}` gives up on that")
    await client.aclose()


async def _beside(
    main: Coroutine[Any, Any, Counts], other: Coroutine[Any, Any, None], patience_s: float | None = 0.0
) -> Counts:
    """The result of `main`, with `other` running beside it, and `patience_s` longer (None: to its end).

    A fault of either ends both.
    """
    first, second = asyncio.ensure_future(main), asyncio.ensure_future(other)
    try:
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        if second.done():
            second.result()
        counts = await first
        if patience_s != 0.0:
            await asyncio.wait([second], timeout=patience_s)
        if second.done():
            second.result()
        return counts
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
