"""Futures are told whatever becomes of the stream that found out."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

from tercel.core.errors import Unreachable
from tercel.sdk.failures import DependencyFailed
from tercel.sdk.following import Follower
from tercel.sdk.futures import TaskFuture
from tercel.sdk.telling import Teller
from tercel.wire.api import Counts, Event, ValueRow


class Told:
    """A manager whose one job has ended, and who cannot be reached at first."""

    def __init__(self, faults: int = 0) -> None:
        self.faults = faults

    async def watch(self, jobs: list[int], *, tasks: bool) -> AsyncIterator[Event]:
        for job in jobs:
            yield Event(job=job, counts=Counts(finished=1), ended=[(0, 0)], done=True)
        await asyncio.Event().wait()

    async def values(self, _job: int, _tasks: str) -> list[ValueRow]:
        if self.faults:
            self.faults -= 1
            raise Unreachable("restarting")
        return [(0, "finished", "exited", 0, "", b"\x80\x05K*.", 5)]


class Nobody:
    def hurry(self, future: TaskFuture[Any]) -> None: ...


class Caller(Nobody):
    def __init__(self, teller: Teller) -> None:
        self._teller = teller

    def later(self, tell: Any, *args: object) -> None:
        self._teller.submit(tell, *args)


def test_a_long_chain_of_skipped_calls_is_told_from_whatever_end_the_news_come() -> None:
    teller = Teller()
    chain: list[TaskFuture[int]] = [TaskFuture(Caller(teller))]  # type: ignore[arg-type]
    for _ in range(5000):
        chain.append(TaskFuture(Caller(teller)))  # type: ignore[arg-type]
        chain[-1].needs = (chain[-2],)
    for future in reversed(chain[1:]):
        future.tell((0, "cancelled", "skipped", 0, "skipped: it needs that", None, 0))
        assert not future.done(), "why is not known yet"
    chain[0].tell((0, "failed", "signalled", 9, "", None, 0))
    error = chain[-1].exception(20)
    assert isinstance(error, DependencyFailed)
    assert error.__cause__ is chain[0].exception(0)
    teller.stop()


def test_a_skipped_call_whose_need_was_run_again_is_told_without_a_cause() -> None:
    teller = Teller()
    need: TaskFuture[int] = TaskFuture(Caller(teller))  # type: ignore[arg-type]
    behind: TaskFuture[int] = TaskFuture(Caller(teller))  # type: ignore[arg-type]
    behind.needs = (need,)
    behind.tell((0, "cancelled", "skipped", 0, "skipped: it needs that", None, 0))
    need.tell((0, "finished", "exited", 0, "", b"\x80\x05K*.", 5))
    error = behind.exception(20)
    assert isinstance(error, DependencyFailed)
    assert error.__cause__ is None
    teller.stop()


def test_after_its_end_a_teller_tells_at_once() -> None:
    teller = Teller()
    teller.stop()
    told: list[int] = []
    teller.submit(told.append, 3)
    assert told == [3]


async def test_a_stream_that_is_cancelled_while_others_are_told_leaves_none_out() -> None:
    may_tell = threading.Event()
    teller = Teller()
    teller.submit(lambda: may_tell.wait() and None)  # busy with somebody's callback
    follower = Follower(Told(), teller)  # type: ignore[arg-type]
    future: TaskFuture[int] = TaskFuture(Nobody())  # type: ignore[arg-type]
    follower.follow(7, [future])
    while follower.unfinished():
        await asyncio.sleep(0)
    for stream in follower.stop():
        stream.cancel()
        await asyncio.wait([stream])
    may_tell.set()
    teller.stop()
    assert future.result(20) == 42


async def test_a_manager_that_is_away_when_asked_for_values_is_asked_again() -> None:
    teller = Teller()
    follower = Follower(Told(faults=2), teller)  # type: ignore[arg-type]
    future: TaskFuture[int] = TaskFuture(Nobody())  # type: ignore[arg-type]
    follower.follow(7, [future])
    assert await asyncio.wait_for(asyncio.wrap_future(future), 20) == 42
    for stream in follower.stop():
        stream.cancel()
        await asyncio.wait([stream])
    teller.stop()
