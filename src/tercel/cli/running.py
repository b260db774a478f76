"""What `tercel run` does: find or be a manager, hand the job in, show its outputs, and see it to its end.

Ctrl-C once    cancels the job and goes on watching until it has ended
Ctrl-C twice   leaves at once
SIGTERM        leaves at once; the job is not cancelled: a manager elsewhere goes on with it, and what an embedded
               one leaves is finished by the next
"""

import asyncio
import signal
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from tercel.cli.blockage import Blockage
from tercel.cli.codes import INTERRUPTED, NO_READER, OK, TERMINATED
from tercel.cli.flows import flow_of, say_failures_of, selector_of
from tercel.cli.outputs import LiveTask, Outputs
from tercel.cli.progress import Progress
from tercel.cli.screen import Screen
from tercel.cli.services import Signals, first_of
from tercel.cli.sharing import Served, some_manager
from tercel.cli.uploading import upload
from tercel.cli.waiting import (
    Tally,
    exit_code,
    failure,
    lost_manager,
    say_failures,
    say_why_nothing_runs,
    with_more,
)
from tercel.cli.words import count, duration, states
from tercel.core.errors import TercelError
from tercel.sdk.files import Draft
from tercel.wire.api import Counts, Submission

T = TypeVar("T")

LAST_WORDS_S = 2.0
"""How long the live output of a task may go on after its end was told."""


async def run_drafts(screen: Screen, drafts: Sequence[Draft], *, label: bool) -> int:
    with Signals() as signals:
        async with some_manager(screen) as served:
            run = (
                FlowRun(served, screen, drafts, signals, label=label)
                if drafts[0].step
                else Run(served, screen, drafts[0], signals, label=label)
            )
            if await first_of(run.whole(), run.told_to_leave(), served.mind()) == 1:
                return run.leave()
            await first_of(served.stay_for_others(signals), served.mind())
            return run.code


class Run:
    """One job, from its submission to its end."""

    def __init__(
        self,
        served: Served,
        screen: Screen,
        order: Draft,
        signals: Signals,
        *,
        label: bool,
    ) -> None:
        self.code = OK
        self._served = served
        self._client = served.client
        self._screen = screen
        self._order = order
        self._signals = signals
        self._label = label
        self._jobs = ""
        """As a selector, once submitted."""
        self._cancelled = False
        self._uploading = False
        """Nothing is submitted yet: there is nothing to cancel."""
        self._blockage = Blockage(served.client, screen)

    async def whole(self) -> None:
        [job] = await self._uploaded([self._order])
        began = time.monotonic()
        submitted = await self._client.submit(job)
        self._jobs = str(submitted.id)
        self._screen.emit(
            {"event": "submitted", "id": submitted.id, "tasks": submitted.tasks, "name": submitted.name}
        )
        if submitted.tasks > 1:
            self._screen.note(f"job {submitted.id}: {count(submitted.tasks, 'task')}")
        try:
            counts = await beside(self._attend(submitted.id), self.mind([submitted.id]))
        except BrokenPipeError:
            await self.nobody_reads()
            return
        await self._conclude(submitted.id, counts, time.monotonic() - began)

    async def told_to_leave(self) -> None:
        await self._signals.wait(1)
        if self._signals.last is signal.SIGINT and not self._uploading:
            await self._signals.wait(2)

    async def _uploaded(self, drafts: Sequence[Draft]) -> list[Submission]:
        self._uploading = True
        jobs = await upload(self._client, self._screen, [draft.submission for draft in drafts])
        self._uploading = False
        return jobs

    def leave(self) -> int:
        if self._jobs and not self._cancelled:
            where = " with the next `tercel run` or `tercel up`" if self._served.embedded is not None else ""
            self._screen.warn(f"left; job {self._jobs} goes on{where}")
        return TERMINATED if self._signals.last is signal.SIGTERM else INTERRUPTED

    async def mind(self, jobs: Sequence[int]) -> None:
        """What happens beside watching."""
        await asyncio.gather(
            self._cancel_when_interrupted(),
            say_why_nothing_runs(self._client, self._screen, jobs),
            self._blockage.mind(),
        )

    async def nobody_reads(self) -> None:
        await self._client.cancel(self._jobs.split(","), reason="nobody reads its output")
        self._screen.note(f"nobody reads the output any more: job {self._jobs} is cancelled")
        self.code = NO_READER

    async def _cancel_when_interrupted(self) -> None:
        await self._signals.wait(1)
        if self._signals.last is not signal.SIGINT:
            return
        self._screen.warn(f"cancelling job {self._jobs}; Ctrl-C again leaves at once")
        try:
            await self._client.cancel(self._jobs.split(","), reason="Ctrl-C")
            self._cancelled = True
        except TercelError as error:
            self._screen.warn(f"job {self._jobs} is not cancelled: {error}")

    @property
    def _live(self) -> bool:
        """One task is shown while it runs; a second try of it would be shown on top of the first."""
        job = self._order.submission
        once = self._order.tasks == 1 and not job.retries and not job.block_on
        return once and not self._screen.json and not self._label

    async def _attend(self, job: int) -> Counts:
        if self._live:
            task = LiveTask(self._client, self._screen, job, self._order.ranges[0][0])
            counts = await beside(self._watch(job), task.follow(), patience_s=LAST_WORDS_S)
            await task.complete()
            return counts
        async with Progress(self._screen) as progress:
            self._blockage.progress = progress
            outputs = Outputs(self._client, self._screen, progress, job, label=self._label)
            return await beside(self._watch(job, progress, outputs), outputs.pump(), patience_s=None)

    async def _watch(
        self, job: int, progress: Progress | None = None, outputs: Outputs | None = None
    ) -> Counts:
        counts = Counts()
        tell = lost_manager(self._screen)

        def lost(error: TercelError) -> None:
            tell(error)
            self._served.is_away()

        async for event in self._client.watch([job], tasks=outputs is not None, on_lost=lost):
            counts = event.counts
            self._blockage.heard(job, counts)
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
        before = "with `tercel up` running, " if self._served.embedded is not None else ""
        if counts.failed and self._live:
            task = await self._client.task(job, self._order.ranges[0][0])
            self._screen.warn(failure(task))
            if more := await with_more(self._client, task):
                self._screen.note(f"{before}`tercel retry {job}{more}` runs it again")
        elif counts.failed:
            await say_failures(self._client, self._screen, job, counts.failed, before=before)


class FlowRun(Run):
    """The jobs of a flow. What their tasks write is shown as they end."""

    def __init__(
        self, served: Served, screen: Screen, drafts: Sequence[Draft], signals: Signals, *, label: bool
    ) -> None:
        super().__init__(served, screen, drafts[0], signals, label=label)
        self._drafts = drafts

    async def whole(self) -> None:
        uploaded = await self._uploaded(self._drafts)
        began = time.monotonic()
        submitted = await self._client.submit_flow(uploaded)
        jobs = [job.id for job in submitted.jobs]
        self._jobs = selector_of(jobs)
        self._screen.emit({"event": "submitted", "jobs": submitted.jobs})
        self._screen.note(f"{flow_of(submitted)}: {self._jobs}")
        try:
            tally = await beside(self._attend_all(jobs), self.mind(jobs))
        except BrokenPipeError:
            await self.nobody_reads()
            return
        self.code = INTERRUPTED if self._signals.arrived else exit_code(tally.latest.values())
        for job, counts in tally.latest.items():
            own = INTERRUPTED if self._signals.arrived else exit_code([counts])
            self._screen.emit({"event": "ended", "id": job, "counts": counts, "exit_code": own})
        self._screen.note(f"{states(tally.total)} in {duration(time.monotonic() - began)}")
        before = "with `tercel up` running, " if self._served.embedded is not None else ""
        await say_failures_of(self._client, self._screen, tally.latest.items(), before=before)

    async def _attend_all(self, jobs: Sequence[int]) -> Tally:
        tally = Tally()
        tell = lost_manager(self._screen)

        def lost(error: TercelError) -> None:
            tell(error)
            self._served.is_away()

        outputs: dict[int, Outputs] = {}
        try:
            async with Progress(self._screen) as progress, asyncio.TaskGroup() as pumps:
                self._blockage.progress = progress
                async for event in self._client.watch(jobs, tasks=True, on_lost=lost):
                    tally.heard(event)
                    self._blockage.heard(event.job, event.counts)
                    progress.update(tally.total)
                    if event.job not in outputs:
                        shown = Outputs(self._client, self._screen, progress, event.job, label=self._label)
                        pumps.create_task(shown.pump())
                        outputs[event.job] = shown
                    outputs[event.job].heard(event)
                    if event.done:
                        outputs[event.job].close()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        return tally


async def beside(
    main: Coroutine[Any, Any, T], other: Coroutine[Any, Any, None], patience_s: float | None = 0.0
) -> T:
    """The result of `main`, with `other` running beside it, and `patience_s` longer (None: to its end).

    A fault of either ends both.
    """
    first, second = asyncio.ensure_future(main), asyncio.ensure_future(other)
    try:
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        if second.done():
            second.result()
        result = await first
        if patience_s != 0.0:
            await asyncio.wait([second], timeout=patience_s)
        if second.done():
            second.result()
        return result
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
