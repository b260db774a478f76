"""So many at a time. Whoever has waited longest since its last turn goes first."""

import asyncio
import heapq
import itertools


class Gate:
    """A counting gate that belongs to no event loop."""

    def __init__(self, places: int) -> None:
        self.free = places
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def enter(self, last_turn: float = 0.0) -> None:
        if self.free:
            self.free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (last_turn, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # its turn came just as it gave up
            raise

    def leave(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
