"""One link to the manager, from Hello to its end.

    greet   Hello -> Welcome (or Refused), within WELCOME_LIMIT_S
    run     three tasks until one of them ends
              receive   hands every frame to the worker
              send      sends what the outbox contains: one frame at a time, one per PACE_S in a steady stream of small ones
              watch     beats; and ends the link when the manager was silent for three beats

Knows the heartbeat and the order of a conversation, not what the messages mean to the worker.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

from tercel.core.errors import PeerError, UsageError
from tercel.core.reports import Report
from tercel.links.contract import LinkClosed, WorkerEnd
from tercel.wire.messages import (
    Bye,
    Fetch,
    FromManager,
    FromWorker,
    Hello,
    Presence,
    Probed,
    Refused,
    Reports,
    Seen,
    TailData,
    Welcome,
)
from tercel.worker.options import HEARTBEAT_MOST_S
from tercel.worker.outbox import Outbox, ReadSegments

PACE_S = 0.015
"""In a steady stream frames follow one another no faster: what comes in between shares the next."""
BRISK_S = 0.002
"""Otherwise the pause is hardly felt: somebody may wait for this one result."""
STEADY_REPORTS = 4
"""A frame with so many reports is part of a steady stream."""
BATCH_REPORTS = 32
"""With so many reports a frame is worth sending before its time."""
WELCOME_LIMIT_S = 10.0
MISSED_BEATS = 3


class Conversation:
    def __init__(
        self,
        link: WorkerEnd,
        *,
        read_segments: ReadSegments,
        presence: Callable[[], Presence],
        take: Callable[[list[FromManager]], None],
    ) -> None:
        self._link = link
        self._outbox = Outbox(read_segments)
        self._presence = presence
        self._take = take
        self._shown: Presence | None = None
        """The presence that the manager knows."""
        self._shown_at = -math.inf
        self._heard_at = 0.0
        self._heartbeat_s = 0.0
        self._first: list[FromManager] = []
        self._awake = asyncio.Event()
        self._batch_full = asyncio.Event()

    # -- what the worker says; all but the reports also before it is welcome, to be sent after that -------

    def wake(self) -> None:
        """Something is to be said, if only a presence."""
        self._awake.set()

    def started(self, attempts: list[int]) -> None:
        self._outbox.add_started(attempts)
        self._awake.set()

    def returned(self, attempts: list[int]) -> None:
        self._outbox.add_returned(attempts)
        self._awake.set()

    def reports(self, reports: list[Report]) -> None:
        self._outbox.add_reports(reports)
        self._awake.set()
        if self._outbox.small_reports >= BATCH_REPORTS:
            self._batch_full.set()

    def fetch(self, fetches: list[Fetch]) -> None:
        self._outbox.add_fetches(fetches)
        self._awake.set()

    def cached(self, kept: list[tuple[str, int]], gone: list[str]) -> None:
        self._outbox.add_cached(kept, gone)
        self._awake.set()

    def probed(self, probed: Probed) -> None:
        self._outbox.add_probed(probed)
        self._awake.set()

    def seen(self, seen: Seen) -> None:
        self._outbox.add_seen(seen)
        self._awake.set()

    def say(self, message: FromWorker) -> None:
        """In the next frame."""
        self._outbox.add(message)
        self._awake.set()

    def tail(self, data: TailData) -> None:
        self._outbox.add_tail(data)
        self._awake.set()

    def bye(self, reason: str) -> None:
        """Said when all else is; `run` returns then."""
        self._outbox.set_bye(Bye(reason))
        self._awake.set()

    # -- from Hello to the end ----------------------------------------------------------------------------

    async def greet(self, hello: Hello) -> Welcome:
        """Raises UsageError if the manager will not have this worker."""
        said: list[FromWorker] = [hello]
        if (presence := self._presence()).capacity != hello.info.capacity:
            said.append(presence)  # or more would be offered than it gives at this time
        try:
            async with asyncio.timeout(WELCOME_LIMIT_S):
                await self._link.send(said)
                first, *self._first = await self._link.receive()
        except TimeoutError:
            raise LinkClosed(f"the manager did not answer Hello within {WELCOME_LIMIT_S:g} s") from None
        if isinstance(first, Refused):
            raise UsageError(f"the manager refuses this worker: {first.reason}")
        if not isinstance(first, Welcome):
            raise PeerError(f"the manager answered Hello with {type(first).__name__}")
        if not 0 < first.heartbeat_s <= HEARTBEAT_MOST_S:
            raise PeerError(f"the manager asks for a heartbeat every {first.heartbeat_s} s")
        self._heartbeat_s = first.heartbeat_s
        return first

    async def run(self, owed: list[Report]) -> None:
        """Say what is owed, then whatever there is to say. Returns after Bye; otherwise raises how it ended."""
        self._outbox.set_reports(owed)
        self._heard_at = asyncio.get_running_loop().time()
        self._awake.set()
        await first_to_end(self._receive_all(), self._send_all(), self._watch())

    async def _receive_all(self) -> None:
        loop = asyncio.get_running_loop()
        if self._first:
            self._take(self._first)
        while True:
            messages = await self._link.receive()
            self._heard_at = loop.time()
            self._take(messages)

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        sent_at, pace_s = -math.inf, BRISK_S
        while True:
            await self._awake.wait()
            if (pause_s := sent_at + pace_s - loop.time()) > 0:
                await self._pause(pause_s)
            self._awake.clear()
            self._batch_full.clear()
            pace_s = BRISK_S
            while messages := self._next_frame(loop.time()):
                await self._link.send(messages)
                if any(isinstance(m, Reports) and len(m.reports) >= STEADY_REPORTS for m in messages):
                    pace_s = PACE_S
                if isinstance(messages[-1], Bye):
                    return
            sent_at = loop.time()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._batch_full.wait()
        except TimeoutError:
            pass  # small, but its time has come

    def _next_frame(self, now: float) -> list[FromWorker]:
        """Presence goes along when it changed, and with every beat."""
        presence = self._presence()
        if presence != self._shown or now >= self._shown_at + self._heartbeat_s:
            self._outbox.set_presence(presence)
            self._shown, self._shown_at = presence, now
        return self._outbox.take()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        silence_s = MISSED_BEATS * self._heartbeat_s
        while True:
            now = loop.time()
            if now >= self._heard_at + silence_s:
                raise LinkClosed(f"the manager was silent for {silence_s:g} s")
            beat_at = self._shown_at + self._heartbeat_s
            if now >= beat_at:
                self._awake.set()
                beat_at = now + self._heartbeat_s
            await asyncio.sleep(min(beat_at, self._heard_at + silence_s) - now)


async def first_to_end(*duties: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, end the others, and raise what the first one raised (or another, while ending)."""
    tasks = [asyncio.ensure_future(duty) for duty in duties]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in sorted(tasks, key=lambda task: task not in done):
        if not task.cancelled():
            task.result()
