"""Live streams of what changed, for clients that wait or watch: pushed, never polled.

A subscriber that is slow costs nothing but a few ranges: what happened since its last event is merged, not queued.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from tercel.core.intervals import IntervalSet

TAIL_BYTES = 4 * 2**20
"""Of live output waiting for one reader; beyond that pieces are dropped and the reader sees the gap."""


class News:
    """What happened to one job since a subscriber's last event."""

    __slots__ = ("done", "ended", "spoke")

    def __init__(self) -> None:
        self.ended = IntervalSet()
        self.spoke = IntervalSet()
        self.done: tuple[int, int, int] | None = None


class Subscription:
    def __init__(self, jobs: Iterable[int], arrived: asyncio.Event | None = None) -> None:
        self.jobs = frozenset(jobs)
        self._news: dict[int, News] = {}
        self._arrived = arrived or asyncio.Event()
        self._urgent = asyncio.Event()

    def about(self, job: int) -> News:
        self._arrived.set()
        news = self._news.get(job)
        if news is None:
            news = self._news[job] = News()
        return news

    def job_done(self, job: int, finished: int, failed: int, cancelled: int) -> None:
        self.about(job).done = (finished, failed, cancelled)
        self._urgent.set()

    async def next(self) -> None:
        await self._arrived.wait()

    async def pause(self, seconds: float) -> None:
        """Let news gather, but not once a job has ended: that is told without delay."""
        try:
            async with asyncio.timeout(seconds):
                await self._urgent.wait()
        except TimeoutError:
            pass

    def take(self) -> dict[int, News]:
        self._arrived.clear()
        self._urgent.clear()
        news, self._news = self._news, {}
        return news

    def keep(self, job: int, news: News) -> None:
        """Put back what was just taken: it is told together with what comes next."""
        self._news[job] = news


class Tail:
    """Live output of one attempt on its way to one reader."""

    def __init__(self, arrived: asyncio.Event) -> None:
        self._pieces: deque[TailPiece] = deque()
        self._bytes = 0
        self._arrived = arrived

    def put(self, stream: str, offset: int, data: bytes) -> None:
        if self._bytes + len(data) <= TAIL_BYTES:
            self._pieces.append((stream, offset, data))
            self._bytes += len(data)
            self._arrived.set()

    def take(self) -> "TailPiece | None":
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        self._bytes -= len(piece[2])
        return piece


TailPiece = tuple[str, int, bytes]
"""Stream, offset, data."""


class Hub:
    def __init__(self) -> None:
        self._by_job: dict[int, set[Subscription]] = {}
        self._tails: dict[int, set[Tail]] = {}

    def subscribe(self, jobs: Iterable[int], arrived: asyncio.Event | None = None) -> Subscription:
        """`arrived` is set when there is news: one event may serve several sources."""
        subscription = Subscription(jobs, arrived)
        for job in subscription.jobs:
            self._by_job.setdefault(job, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        for job in subscription.jobs:
            if (others := self._by_job.get(job)) is not None:
                others.discard(subscription)
                if not others:
                    del self._by_job[job]

    def progressed(self, job: int, ended: list[int], spoke: list[int]) -> None:
        for subscription in self._by_job.get(job, ()):
            news = subscription.about(job)
            news.ended.update(IntervalSet((task, task) for task in ended))
            news.spoke.update(IntervalSet((task, task) for task in spoke))

    def done(self, job: int, finished: int, failed: int, cancelled: int) -> None:
        for subscription in self._by_job.get(job, ()):
            subscription.job_done(job, finished, failed, cancelled)

    # -- live output --------------------------------------------------------------------------------------

    def open_tail(self, attempt: int, arrived: asyncio.Event) -> Tail:
        tail = Tail(arrived)
        self._tails.setdefault(attempt, set()).add(tail)
        return tail

    def close_tail(self, attempt: int, tail: Tail) -> bool:
        """True if nobody follows this attempt any more."""
        tails = self._tails.get(attempt, set())
        tails.discard(tail)
        if not tails:
            self._tails.pop(attempt, None)
        return not tails

    def tailed(self, attempt: int, stream: str, offset: int, data: bytes) -> None:
        for tail in self._tails.get(attempt, ()):
            tail.put(stream, offset, data)
