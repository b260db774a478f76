"""Futures are told whatever becomes of the stream that found out."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

from tercel.core.errors import Unreachable
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
