"""Questions about files that a worker has for its manager. What was not answered on one link is asked again on the next."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from tercel.core.files import Location, endpoint_of
from tercel.wire.messages import Book, Booked, FromWorker, Locate, Located

NAMES_MOST = 1000
"""In one question."""


class Asking:
    def __init__(self, say: Callable[[FromWorker], None]) -> None:
        """`say`: to the manager, if there is a link."""
        self._say = say
        self._number = 0
        self._open: dict[int, tuple[FromWorker, asyncio.Future[object]]] = {}
        self.throttled = False
        """Whether the manager wants to be asked before a file is moved."""

    async def locate(self, names: Iterable[str]) -> dict[str, Location]:
        """What the catalogue says of each."""
        asked = sorted(set(names))
        found: dict[str, Location] = {}
        for at in range(0, len(asked), NAMES_MOST):
            some = asked[at : at + NAMES_MOST]
            answer = await self._ask(lambda number, some=some: Locate(number, some))  # type: ignore[misc]
            assert isinstance(answer, Located)
            found |= {location.name: location for location in answer.files}
        return found

    async def turn(self, urls: Sequence[str]) -> None:
        """Waits until a file may be moved between these."""
        if not self.throttled:
            return
        endpoints = sorted({endpoint_of(url) for url in urls})
        answer = await self._ask(lambda number: Book(number, endpoints))
        assert isinstance(answer, Booked)
        await asyncio.sleep(max(0.0, answer.wait_s))

    async def _ask(self, question: Callable[[int], FromWorker]) -> object:
        self._number += 1
        number = self._number
        asked = question(number)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._open[number] = (asked, future)
        self._say(asked)
        try:
            return await future
        finally:
            self._open.pop(number, None)

    def on_answer(self, answer: Located | Booked) -> None:
        """One that nobody waits for any more is of no consequence."""
        asked, future = self._open.get(answer.number, (None, None))
        if future is None or future.done():
            return
        if isinstance(asked, Locate) == isinstance(answer, Located):
            future.set_result(answer)

    def ask_again(self) -> None:
        """On a new link."""
        for asked, _ in self._open.values():
            self._say(asked)
