"""Questions to one worker about its directory, over one link, until it answers, goes, or takes too long."""

import asyncio
from collections.abc import Callable

from tercel.core.errors import PassingFault, PeerError, UsageError
from tercel.wire.looking import (
    AtDirectory,
    AtFile,
    AtLog,
    AtSandbox,
    Contents,
    Found,
    Listing,
    Tail,
    Unseen,
    What,
)
from tercel.wire.messages import Look, Seen

ANSWER_S = 30.0
"""Longer than a worker looks by itself: who takes longer is busy, or silent."""
UNDER_WAY_MOST = 8

ANSWERS: dict[type[What], type[Found]] = {
    AtDirectory: Contents,
    AtSandbox: Listing,
    AtFile: Tail,
    AtLog: Tail,
}


class Looks:
    def __init__(self, post: Callable[[Look], None]) -> None:
        self.understood = False
        """Whether its worker knows such questions: older ones would take them for a broken protocol."""
        self._post = post
        self._next = 0
        self._under_way: dict[int, tuple[type[Found], asyncio.Future[Found]]] = {}

    async def ask(self, what: What) -> Found:
        """Raises UsageError if the worker does not understand, PassingFault if it does not answer."""
        if not self.understood:
            raise UsageError("it runs an older version, which cannot be asked: update it", "worker")
        if len(self._under_way) >= UNDER_WAY_MOST:
            raise PassingFault("too many look at it at once: try again in a moment")
        number, self._next = self._next, self._next + 1
        answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._under_way[number] = ANSWERS[type(what)], answer
        self._post(Look(number, what))
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise PassingFault(f"it has not answered within {ANSWER_S:g} s: it is busy, or hangs") from None
        finally:
            self._under_way.pop(number, None)

    def awaits(self, seen: Seen) -> bool:
        """Whether it answers a question; one that nobody waits for any more is no fault. Raises PeerError."""
        if not 0 <= seen.number < self._next:
            raise PeerError("tells of its directory what nobody asked for")
        if (asked := self._under_way.get(seen.number)) is None:
            return False
        if not isinstance(seen.found, asked[0] | Unseen):
            raise PeerError(f"answers with {type(seen.found).__name__}, which was not asked for")
        return True

    def answered(self, number: int, found: Found) -> None:
        answer = self._under_way[number][1]
        if not answer.done():
            answer.set_result(found)

    def close(self) -> None:
        """The link has ended."""
        for _, answer in self._under_way.values():
            if not answer.done():
                answer.set_exception(PassingFault("its link was lost before it answered: ask again"))
