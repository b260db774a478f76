"""What happens to jobs, as it happens: over one connection, or through restarts of the manager."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from urllib.parse import urlencode

from tercel.core.errors import Forbidden, PassingFault, PeerError, TercelError
from tercel.sdk.answers import decode
from tercel.sdk.connection import Connection
from tercel.sdk.http import Broken
from tercel.sdk.sse import SseParser
from tercel.wire import api

EVENT_SILENCE_S = 45.0
"""A manager sends something every 15 s at least; one that is silent for so long is taken for gone."""
MOST_JOBS_PER_STREAM = 200
"""Keeps the address of the request far below what servers accept."""
RECONNECT_MOST_S = 5.0


class AsksEvents(Connection):
    async def events(self, jobs: Iterable[int], *, tasks: bool = False) -> AsyncGenerator[api.Event, None]:
        """What happens to the jobs, over one connection; ends when it does. `tasks` tells which tasks ended."""
        query = [("job", str(job)) for job in jobs] + ([("tasks", "true")] if tasks else [])
        parser = SseParser()
        with await self._stream(f"/v1/events?{urlencode(query)}", EVENT_SILENCE_S) as chunks:
            async for chunk in chunks:
                for data in _parse(parser, chunk):
                    yield decode(data, api.Event)

    async def watch(
        self,
        jobs: Iterable[int],
        *,
        tasks: bool = False,
        on_lost: Callable[[TercelError], None] | None = None,
    ) -> AsyncGenerator[api.Event, None]:
        """As `events`, until every one of the jobs is done, through restarts of the manager.

        After each reconnection a job's first event again tells how things stand. `on_lost` is called when the
        connection is lost (not if this client never had an answer from a manager: that is raised).
        """
        waiting = list(dict.fromkeys(jobs))
        while waiting:
            group, waiting = waiting[:MOST_JOBS_PER_STREAM], waiting[MOST_JOBS_PER_STREAM:]
            async with aclosing(self._watch_group(set(group), tasks, on_lost)) as events:
                async for event in events:
                    yield event

    async def _watch_group(
        self, waiting: set[int], tasks: bool, on_lost: Callable[[TercelError], None] | None
    ) -> AsyncGenerator[api.Event, None]:
        pause_s = 0.1
        while waiting:
            try:
                async with aclosing(self.events(sorted(waiting), tasks=tasks)) as events:
                    async for event in events:
                        self._answered, pause_s = True, 0.1
                        if event.done:
                            waiting.discard(event.job)
                        yield event
                        if not waiting:
                            return
                lost: TercelError = Broken("the manager closed the stream of events")
            except (PassingFault, PeerError, Forbidden) as error:
                # A restarted manager may have another token in its access file, so that the old one is refused.
                if not self._answered or (isinstance(error, Forbidden) and not self._has_moved()):
                    raise
                lost = error
            if on_lost is not None:
                on_lost(lost)
            await asyncio.sleep(pause_s * (0.5 + os.urandom(1)[0] / 510))  # many clients return at many times
            pause_s = min(2 * pause_s, RECONNECT_MOST_S)
            self._doubtful = True


def _parse(parser: SseParser, chunk: bytes) -> list[bytes]:
    try:
        return parser.feed(chunk)
    except ValueError as error:
        raise PeerError(f"the manager's events are not understood: {error}") from None
