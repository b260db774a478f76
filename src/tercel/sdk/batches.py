"""Calls that become one job, and what is written about tasks in requests."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tercel.core.intervals import IntervalSet
from tercel.core.model import Call
from tercel.sdk.failures import DependencyFailed
from tercel.sdk.futures import TaskFuture, cause_of
from tercel.sdk.options import CallOptions
from tercel.sdk.pickling import pickle_call, pickle_function
from tercel.wire.api import Submission

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
BatchKey = tuple[int, CallOptions, int]
"""The function's identity, and a number: 0 for single calls, another for each mapping, which has batches of its own."""


class Batch:
    """Calls that become one job."""

    def __init__(self, key: "BatchKey", function: Callable[..., Any], options: CallOptions) -> None:
        self.key = key
        self.options = options
        self.target = function
        """Held, so that nothing else can have its identity meanwhile."""
        self.function, self.blobs = pickle_function(function)
        self.calls: list[Call] = []
        self.futures: list[TaskFuture[Any]] = []
        self.unsettled: dict[int, Arguments] = {}
        """By place: calls with futures in them whose tasks have no number yet."""
        self.needs: list[TaskFuture[Any]] = []
        """Those futures."""
        self.size_bytes = 0
        self.taken = False
        """On its way: no call is added or taken out any more."""
        self.sent: Future[None] = Future()
        """Its futures have their numbers, or were told why not."""

    async def is_sent(self) -> None:
        """In any loop: another executor's calls may need these."""
        await asyncio.shield(asyncio.wrap_future(self.sent))

    def submission(self, calls: list[Call]) -> Submission:
        return Submission(
            function=self.function, calls=calls, **{"name": self.function.name, **self.options.fields()}
        )


def settled(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Pickled once more: by now the tasks that it needs have their numbers, or will never have."""
    pickled = pickle_call(args, kwargs)
    if pickled.settled:
        return pickled.call
    for need in pickled.needs:
        if isinstance(need, TaskFuture) and not need.key:
            raise DependencyFailed(
                "(not submitted)", "was not run: a call whose value it needs was never submitted"
            ) from cause_of(need)
    return settled(args, kwargs)  # the last of them got its number in this moment


def selectors(job: int, tasks: IntervalSet) -> list[str]:
    """Not too many ranges in one: an address or a line has its limits."""
    ranges = [f"{first}-{last}" if last > first else str(first) for first, last in tasks.ranges()]
    return [f"{job}.{','.join(ranges[at : at + 1000])}" for at in range(0, len(ranges), 1000)]
