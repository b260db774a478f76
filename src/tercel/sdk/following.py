"""Which tasks of which jobs have ended, and how: told to their futures.

A few streams of events follow all the jobs there are: each new job gets one of its own while there are few, and joins the
smallest otherwise (which begins anew, by being told how things stand). A job's futures are told by the teller's thread, in
bulk, so that neither user's callbacks nor unpickling hold the loop up.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from tercel.core.errors import PassingFault, TercelError
from tercel.core.intervals import IntervalSet, Range
from tercel.sdk.asking_events import MOST_JOBS_PER_STREAM
from tercel.sdk.client import AsyncClient
from tercel.sdk.futures import TaskFuture
from tercel.sdk.telling import Teller
from tercel.wire.api import ValueRow

STREAMS = 8
AGAIN_FIRST_S, AGAIN_MOST_S = 0.1, 5.0
RANGES_AT_ONCE = 400
"""In one request: its address must not become too long."""


class Follower:
    def __init__(self, client: AsyncClient, teller: Teller) -> None:
        self._client = client
        self._teller = teller
        self._jobs: dict[int, dict[int, TaskFuture[Any]]] = {}
        """By job and task: futures that were not told."""
        self._streams: dict[asyncio.Task[None], set[int]] = {}

    def follow(self, job: int, futures: Sequence[TaskFuture[Any]]) -> None:
        """Its tasks are those of the futures, in order."""
        self._jobs[job] = dict(enumerate(futures))
        jobs = {job}
        if len(self._streams) >= STREAMS:
            smallest = min(self._streams, key=lambda stream: len(self._streams[stream]))
            if len(self._streams[smallest]) < MOST_JOBS_PER_STREAM:
                jobs |= self._streams.pop(smallest)
                smallest.cancel()
        stream = asyncio.get_running_loop().create_task(self._stream(jobs))
        self._streams[stream] = jobs
        stream.add_done_callback(lambda done: self._streams.pop(done, None))

    def unfinished(self) -> list[TaskFuture[Any]]:
        return [future for futures in self._jobs.values() for future in futures.values()]

    def jobs(self) -> list[int]:
        """Those with futures that were not told, oldest first."""
        return [job for job, futures in self._jobs.items() if futures]

    def stop(self) -> list[asyncio.Task[None]]:
        return list(self._streams)

    async def look(self, job: int, tasks: IntervalSet) -> None:
        """Tell those of the tasks that have ended by now."""
        await self._collect(job, tasks.ranges())

    async def _stream(self, jobs: set[int]) -> None:
        wanted = {job for job in jobs if job in self._jobs}
        try:
            async for event in self._client.watch(sorted(wanted), tasks=True):
                await self._collect(event.job, event.ended)
                if event.done:
                    jobs.discard(event.job)
                    self._jobs.pop(event.job, None)
        except TercelError as error:
            futures = [f for job in wanted for f in self._jobs.pop(job, {}).values()]
            self._teller.submit(_fail_all, futures, error)

    async def _collect(self, job: int, ended: Sequence[Range]) -> None:
        futures = self._jobs.get(job)
        if not futures:
            return
        asked = IntervalSet(
            (task, task) for first, last in ended for task in range(first, last + 1) if task in futures
        )
        while asked:
            ranges = asked.ranges()[:RANGES_AT_ONCE]
            rows = await self._values(job, ",".join(f"{first}-{last}" for first, last in ranges))
            if not rows:
                asked.difference_update(
                    IntervalSet(ranges)
                )  # retried since, by somebody: their end is told again
                continue
            # What is up to the last row and not among the rows has not ended after all.
            asked.difference_update(IntervalSet([(ranges[0][0], rows[-1][0])]))
            told = [(future, row) for row in rows if (future := futures.pop(row[0], None)) is not None]
            # From here on nobody else tells them: they are told even if this stream is cancelled meanwhile.
            await asyncio.shield(asyncio.wrap_future(self._teller.submit(_tell_all, told)))

    async def _values(self, job: int, tasks: str) -> list[ValueRow]:
        """Through restarts of the manager, as the stream itself."""
        pause_s = AGAIN_FIRST_S
        while True:
            try:
                return await self._client.values(job, tasks)
            except PassingFault:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_MOST_S)


def _tell_all(told: list[tuple[TaskFuture[Any], ValueRow]]) -> None:
    for future, row in told:
        future.tell(row)


def _fail_all(futures: list[TaskFuture[Any]], error: BaseException) -> None:
    for future in futures:
        future.fail(error)
