"""Calls that may never come back: names to look up, file systems whose server is gone.

Each is made in a daemon thread, for nothing else can leave one behind. A thread that is abandoned counts until it comes back.
There is a cap on those, and a smaller one for each file system (or name), so that a mount that hangs takes the threads of no
other one.
"""

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from tercel.core.errors import PassingFault
from tercel.testers.gates import Gate

RUNNING_MOST = 32
HANGING_MOST = 64
HANGING_MOST_EACH = 4
"""Of one thing."""
IDLE_S = 10.0
"""A thread that has nothing to do for so long ends."""

T = TypeVar("T")


class TooManyHang(PassingFault):
    """No further thread is risked."""


class Threads:
    """Of one process."""

    def __init__(
        self,
        hanging_most: int = HANGING_MOST,
        each_most: int = HANGING_MOST_EACH,
        running_most: int = RUNNING_MOST,
    ) -> None:
        self._gate = Gate(running_most)
        self._hanging_most = hanging_most
        self._each_most = each_most
        self._hanging: Counter[str] = Counter()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    @property
    def hanging(self) -> int:
        return self._hanging.total()

    def check(self, of: str) -> None:
        if self._hanging[of] >= self._each_most:
            raise TooManyHang(f"{of} hangs: {self._hanging[of]} earlier tests of it have not come back")
        if self.hanging >= self._hanging_most:
            raise TooManyHang(f"too many hang: {self.hanging} earlier tests have not come back")

    async def call(self, of: str, function: Callable[..., T], *arguments: Any) -> T:
        """The function's answer. `of`: what hangs if it does."""
        self.check(of)
        await self._gate.enter()
        try:
            self.check(of)  # it may have begun to hang while this waited
            return await self._run(of, function, arguments)
        finally:
            self._gate.leave()

    async def _run(self, of: str, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        abandoned = False

        def settle(value: T | None, error: BaseException | None) -> None:
            if abandoned:
                self._came_back(of)
            elif error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)  # type: ignore[arg-type]  # None only if T is

        def run() -> None:
            value, error = None, None
            try:
                value = function(*arguments)
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(settle, value, error)
            except RuntimeError:
                if abandoned:  # the loop was closed meanwhile: nobody waits
                    self._came_back(of)

        self._start(run)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not answer.done():
                abandoned = True
                self._hanging[of] += 1
            raise

    def _came_back(self, of: str) -> None:
        with self._lock:
            self._hanging[of] -= 1
            if self._hanging[of] <= 0:
                del self._hanging[of]

    def _start(self, run: Callable[[], None]) -> None:
        with self._lock:
            self._calls.put(run)
            if self._idle:
                self._idle -= 1
                return
        threading.Thread(target=self._work, name="tercel-tester", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                run = self._calls.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if not self._idle:
                        continue  # it was just counted on
                    self._idle -= 1
                return
            run()
            with self._lock:
                self._idle += 1


DISKS = Threads()
LOOKUPS = Threads(hanging_most=256, running_most=64)
"""A resolver gives up by itself after a while, so more of them may be waited for."""
