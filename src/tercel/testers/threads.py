"""Calls that may never come back: names to look up, file systems whose server is gone.

Each is made in a daemon thread, for nothing else can leave one behind. A thread that is abandoned, or slow, counts until it comes
back. There is a cap on those, and a smaller one for each file system (or domain of names), so that a mount that hangs takes the
threads of no other one.
"""

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tercel.core.errors import PassingFault
from tercel.testers.gates import Gate

QUICK_S = 1.0
"""A call that takes longer counts as one that hangs, until it comes back; it keeps no other one waiting."""
RUNNING_MOST = 32
HANGING_MOST = 64
HANGING_MOST_EACH = 4
"""Of one thing."""
IDLE_S = 10.0
"""A thread that has nothing to do for so long ends."""

T = TypeVar("T")


class TooManyHang(PassingFault):
    """No further thread is risked."""


class _Call(Generic[T]):
    """One, on its way through a thread and back."""

    def __init__(
        self, threads: "Threads", of: str, function: Callable[..., T], arguments: tuple[Any, ...]
    ) -> None:
        self._threads = threads
        self._of = of
        self._function = function
        self._arguments = arguments
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self._loop.create_future()
        self.is_counted = False
        """Among those that hang."""
        self.is_wanted = True

    def run(self) -> None:
        value, error = None, None
        try:
            value = self._function(*self._arguments)
        except BaseException as raised:
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._settle, value, error)
        except RuntimeError:  # the loop was closed meanwhile: nobody waits
            if self.is_counted:
                self._threads.came_back(self._of)

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        if self.is_counted:
            self._threads.came_back(self._of)
        if not self.is_wanted:
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(value)  # type: ignore[arg-type]  # None only if T is


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
            raise TooManyHang(f"{of} hangs: {self._hanging[of]} earlier tests have not come back")
        if self.hanging >= self._hanging_most:
            raise TooManyHang(f"too many hang: {self.hanging} earlier tests have not come back")

    async def call(self, of: str, function: Callable[..., T], *arguments: Any) -> T:
        """The function's answer. `of`: what hangs if it does."""
        self.check(of)
        await self._gate.enter()
        try:
            self.check(of)  # it may have begun to hang while this waited
            call = _Call(self, of, function, arguments)
            self._start(call.run)
            try:
                await asyncio.wait([call.answer], timeout=QUICK_S)
            except asyncio.CancelledError:
                call.is_wanted = False
                raise
            finally:
                if not call.answer.done():
                    call.is_counted = True
                    self._hanging[of] += 1
        finally:
            self._gate.leave()
        try:
            return await asyncio.shield(call.answer)
        except asyncio.CancelledError:
            call.is_wanted = False
            raise

    def came_back(self, of: str) -> None:
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
LOOKUPS = Threads(hanging_most=256, each_most=32, running_most=64)
"""A resolver gives up by itself after a while, so more of them may be waited for."""
