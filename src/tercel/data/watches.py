"""A watch goes with each transfer: how far it is, whether it gets on, and how it is ended from outside.

thread of the transfer      step(bytes) after each chunk: raises what it was ended with
whoever watches (mover.py)  look(now): ends a try that does not get on · cancel(): ends all of it
                            -> the sockets and programs that were named with `ending` are closed, which wakes the thread
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

STALL_S = 60.0
CLEANING_S = 20.0
"""For what was written in vain to be removed, where nothing moves."""
STALL_LEAST_BYTES = 4096
"""Less than this in `stall_s` is no progress: a server that sends a byte now and then holds nobody."""


class Cancelled(Exception):
    """Nobody waits for this transfer any more."""


class Stalled(Exception):
    """This try made no progress for too long. Another source may be better."""


class Watch:
    def __init__(self, stall_s: float = STALL_S) -> None:
        self.stall_s = stall_s
        self.moved = 0
        """Bytes of the file, so far."""
        self.total = -1
        self._signs = 0
        """Of life, in bytes: also those that are only checked."""
        self._marked = (time.monotonic(), 0)
        self._why: Exception | None = None
        self._is_cleaning = False
        self._afterwards: Cancelled | None = None
        """It was cancelled while it cleaned."""
        self._closers: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def begin(self, moved: int = 0, total: int = -1) -> None:
        """A new try. One that stalled does not spoil it; one that was cancelled stays so."""
        with self._lock:
            if isinstance(self._why, Stalled):
                self._why = None
            self._mark()
        self.moved, self.total = moved, total
        self.check()

    def step(self, count: int) -> None:
        """So many bytes of the file have been moved."""
        self.moved += count
        self.alive(count)

    def alive(self, count: int = STALL_LEAST_BYTES) -> None:
        """It gets on: so many bytes have been looked at, or a step of another kind was done."""
        self._signs += count
        if self._why is not None:
            raise self._why

    def check(self) -> None:
        if self._why is not None:
            raise self._why

    @contextmanager
    def ending(self, close: Callable[[], None]) -> Iterator[None]:
        """`close` is called if this is ended meanwhile, from another thread: it wakes who waits for bytes."""
        with self._lock:
            self.check()
            self._closers.append(close)
        try:
            yield
        finally:
            with self._lock:
                self._closers.remove(close)

    @contextmanager
    def cleaning(self) -> Iterator[None]:
        """What is done within is done although this was ended, and within a shorter time."""
        with self._lock:
            stall_s, self.stall_s = self.stall_s, min(self.stall_s, CLEANING_S)
            why, self._why = self._why, None
            self._is_cleaning = True
            self._mark()
        try:
            yield
        finally:
            with self._lock:
                self.stall_s = stall_s
                self._why = self._afterwards or why
                self._is_cleaning, self._afterwards = False, None

    def look(self, now: float) -> None:
        """End this try if it has not got on for `stall_s`."""
        since, signs = self._marked
        if self._signs - signs >= STALL_LEAST_BYTES:
            self._mark(now)
        elif now - since > self.stall_s:
            self._end(Stalled(f"no progress for {self.stall_s:g} s"))

    def cancel(self) -> None:
        self._end(Cancelled())

    @property
    def why(self) -> Exception | None:
        """It was ended, if it was."""
        return self._why

    def _mark(self, now: float | None = None) -> None:
        self._marked = (time.monotonic() if now is None else now, self._signs)

    def _end(self, why: Exception) -> None:
        with self._lock:
            if self._is_cleaning and isinstance(why, Cancelled):
                self._afterwards = why
                return
            if not isinstance(self._why, Cancelled):
                self._why = why
            closers = list(self._closers)
        for close in closers:
            with suppress(OSError):  # it was closed already
                close()
