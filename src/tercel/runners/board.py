"""What a lane and its interpreter have in common: a page that says which call runs, and the reports that wait.

An interpreter has one thread, and that is in the hands of whoever wrote the function. So it can neither answer while a
call runs nor be trusted to outlive it. What the lane must know in any case stands in shared memory:

    last, since   the call that began last, and when (monotonic clock)
    running       whether it is still under way
    bar           raised by the lane: nothing begins until the lane has said `go` to this number
    rows          reports that were not sent yet: those of calls that ended well must not be lost with one that crashes

Taking back what has not begun, or ending what runs, needs certainty about what runs. Each side writes its own word and
then reads the other's: the lane raises the bar and then reads `last`, the interpreter writes `last` and then looks at
the bar. At least one of them sees the other. If the interpreter does, it begins nothing; if only the lane does, that call
counts as begun.
"""

import marshal
import mmap
import os
import threading
from typing import NamedTuple

from tercel.runners.channel import Message

_SIZE = 512 * 1024
_HEAD = 64
_LAST, _SINCE, _RUNNING, _BAR, _FILLED, _ROUND = range(6)
NOBODY = -1

_fence = threading.Lock()


def _see_the_other() -> None:
    """Between a write and a read: taking a lock keeps a processor from swapping the two."""
    _fence.acquire()
    _fence.release()


class Standing(NamedTuple):
    """What runs, or NOBODY ran yet."""

    attempt: int
    since: float
    running: bool


class Board:
    """Either side's view of it."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _SIZE)
        self._bytes = memoryview(self._map)
        self._numbers = self._bytes[:_HEAD].cast("q")
        self._times = self._bytes[:_HEAD].cast("d")
        self._rows = self._bytes[_HEAD:]
        self._count = self._size = 0
        """Of the rows that wait, at the interpreter's side."""

    def close(self) -> None:
        for view in (self._rows, self._times, self._numbers, self._bytes):
            view.release()
        self._map.close()

    # -- the interpreter's side ---------------------------------------------------------------------------

    def begin(self, attempt: int, now: float, passed: int) -> bool:
        """Whether the call may go on: the bar, unless it was `passed`, is down."""
        numbers = self._numbers
        before = numbers[_LAST]
        self._times[_SINCE] = now
        numbers[_LAST] = attempt
        _see_the_other()
        if numbers[_BAR] != passed:
            numbers[_LAST] = before
            return False
        numbers[_RUNNING] = 1
        return True

    def pause(self) -> None:
        """Of the call that began last, something is done that is not its own: it counts as begun, and its time stands still.

        Should the interpreter die meanwhile, it is made again.
        """
        self._numbers[_RUNNING] = 0

    def go_on(self, now: float) -> None:
        """Its time runs from then on."""
        self._times[_SINCE] = now
        self._numbers[_RUNNING] = 1

    def end(self, row: Message) -> bool:
        """Of the call that runs. False: there is no room, take the others first."""
        data = marshal.dumps(row, 2)  # type: ignore[arg-type]  # of version 2, in which rows can be joined
        if self._size + len(data) > len(self._rows):
            return False
        self._rows[self._size : self._size + len(data)] = data
        self._size += len(data)
        self._count += 1
        self._numbers[_FILLED] = self._size << 32 | self._count
        self._numbers[_RUNNING] = 0
        return True

    @property
    def count(self) -> int:
        """Reports that wait."""
        return self._count

    def waiting(self) -> bytes:
        """Those reports, as `Channel.send_marshalled` takes them; `sent` when they are."""
        return _message(bytes(self._rows[: self._size]), self._count)

    def sent(self) -> None:
        self._numbers[_FILLED] = self._size = self._count = 0
        self._numbers[_ROUND] += 1  # before the next row: whoever was reading must notice

    @property
    def bar(self) -> int:
        return self._numbers[_BAR]

    # -- the lane's side ----------------------------------------------------------------------------------

    def raise_bar(self) -> int:
        """Returns its number: what `standing` says after this stays true until `go` is said to it."""
        self._numbers[_BAR] += 1
        _see_the_other()
        return self._numbers[_BAR]

    def standing(self) -> Standing:
        numbers = self._numbers
        while True:
            last, since, running = numbers[_LAST], self._times[_SINCE], numbers[_RUNNING]
            if numbers[_LAST] == last:
                return Standing(last, since, bool(running))

    def reports(self) -> list[Message]:
        """Those that were not sent, or not long ago: messages as a channel's."""
        numbers = self._numbers
        while True:
            turn, filled = numbers[_ROUND], numbers[_FILLED]
            rows = bytes(self._rows[: filled >> 32])
            if numbers[_ROUND] == turn:
                break
        return marshal.loads(_message(rows, filled & 0xFFFFFFFF)) if filled else []  # noqa: S302


_ENDED = b"[\x01\0\0\0(\x02\0\0\0" + marshal.dumps("Ended", 2)


def _message(rows: bytes, count: int) -> bytes:
    """[("Ended", rows)], marshalled."""
    return b"%s[%s%s" % (_ENDED, count.to_bytes(4, "little"), rows)


def new_board() -> int:
    """A descriptor of an empty one; nobody has run."""
    fd = os.memfd_create("tercel-board", os.MFD_CLOEXEC)
    os.truncate(fd, _SIZE)
    os.pwrite(fd, NOBODY.to_bytes(8, "little", signed=True), _LAST * 8)
    return fd
