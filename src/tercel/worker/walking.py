"""Walking through directories that tasks have made, without trusting anything in them.

Everything is opened from a descriptor of the directory above it, and never through a link: whatever a task does meanwhile,
nobody is led out of where the walk began. Only regular files are read, nothing is changed, and a walk ends when its
budget is spent, however much there is.
"""

import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tercel.core.errors import UsageError
from tercel.wire.looking import SIZE_MOST, TAIL_BYTES, TIME_MOST, Tail

DEPTH_MOST = 64
"""Directories inside of directories: each takes a descriptor."""
TOO_MANY = "more entries than are counted"
TOO_LONG = "it would take too long to count"
REASONS_MOST = 4
"""That are told: whatever a task has mounted may fail for as many as it likes."""
_BLOCK_BYTES = 512
"""Of st_blocks, whatever the file system's own are."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_TEXT = re.compile(rb"\\x([89a-f][0-9a-f])")
"""A byte that is no text, as it is shown. None of them is a slash or a dot: no name becomes a way out."""


class Budget:
    """How many entries may be looked at, and until when (by the monotonic clock)."""

    def __init__(self, entries: int, until: float) -> None:
        self._left = entries
        self._until = until
        self.missed: tuple[str, ...] = ()
        """Why not everything was seen, if so."""

    @property
    def cut(self) -> str:
        """The same, to be told."""
        return "; ".join(self.missed)

    @property
    def spent(self) -> bool:
        """Whether more of it would have shown more."""
        return TOO_MANY in self.missed or TOO_LONG in self.missed

    def share(self, among: int) -> "Budget":
        """A part of what is left, so that one of many does not take everything. What it spends, this one does too."""
        return _Share(self, among)

    def take(self) -> bool:
        """Whether one entry more may be looked at."""
        if self._left <= 0:
            self.miss(TOO_MANY)
            return False
        if not self.in_time():
            return False
        self._spend()
        return True

    def in_time(self) -> bool:
        if time.monotonic() <= self._until:
            return True
        self.miss(TOO_LONG)
        return False

    def _spend(self) -> None:
        self._left -= 1

    def miss(self, *reasons: str) -> None:
        self.missed = tuple(dict.fromkeys((*self.missed, *reasons)))[:REASONS_MOST]


class _Share(Budget):
    def __init__(self, whole: Budget, among: int) -> None:
        now = time.monotonic()
        super().__init__(max(1, whole._left // among), now + max(0.0, whole._until - now) / among)
        self._whole = whole

    def _spend(self) -> None:
        super()._spend()
        self._whole._spend()


def shown(name: str | Path) -> str:
    """A file's name as text that can be sent."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def meant(name: str) -> str:
    """The name that is shown so: its bytes that are no text, again."""
    raw = _NO_TEXT.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode())
    return os.fsdecode(raw)


@contextmanager
def opened(name: str | Path, above: int | None = None) -> Iterator[int]:
    """A directory. Raises OSError, also if it is a link."""
    fd = os.open(name, _DIRECTORY, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def descended(dir: Path, *names: str) -> Iterator[int]:
    """A directory some steps below one that is trusted. Raises OSError, also if one of the steps is a link."""
    with ExitStack() as stack:
        fd = stack.enter_context(opened(dir))
        for name in names:
            fd = stack.enter_context(opened(name, fd))
        yield fd


def below(
    directory: int, budget: Budget, *, ordered: bool = False, path: str = "", depth: int = 0
) -> Iterator[tuple[str, os.stat_result]]:
    """All that is in a directory and below: paths and statuses. First what is directly in it, by name if that is wanted.

    What is mounted there is not entered. Only to be put in order is more than the names of directories held.
    """
    device = os.fstat(directory).st_dev
    inner: list[str] = []
    found = _entries(directory, budget)
    for name, status in sorted(found) if ordered else found:
        yield path + name, status
        if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
            inner.append(name)
    if inner and depth == DEPTH_MOST:
        budget.miss(f"deeper than {DEPTH_MOST} directories")
        return
    for name in inner:
        try:
            with opened(name, directory) as fd:
                yield from below(fd, budget, ordered=ordered, path=f"{path}{name}/", depth=depth + 1)
        except FileNotFoundError:
            continue  # gone meanwhile
        except OSError as error:
            budget.miss(f"directories that cannot be entered: {os.strerror(error.errno or 0)}")


def _entries(directory: int, budget: Budget) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if not budget.take():
                return
            try:
                yield entry.name, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                budget.miss(f"entries that cannot be read: {os.strerror(error.errno or 0)}")


def size_of(status: os.stat_result) -> int:
    """That it takes on the disk."""
    return status.st_blocks * _BLOCK_BYTES


def told_size(size_bytes: int) -> int:
    """As it may be said: a task can make a file of any size that has nothing in it, and set any time."""
    return max(0, min(size_bytes, SIZE_MOST))


def told_time(seconds: float) -> float:
    return max(-TIME_MOST, min(seconds, TIME_MOST))


def measure(directory: int, name: str, status: os.stat_result, budget: Budget) -> tuple[int, int]:
    """(bytes, entries) of one thing in a directory with all that is below it, itself included; nothing that is mounted."""
    size_bytes, entries = size_of(status), 1
    if not stat.S_ISDIR(status.st_mode) or status.st_dev != os.fstat(directory).st_dev:
        return size_bytes, entries
    try:
        with opened(name, directory) as inner:
            for _, found in below(inner, budget):
                size_bytes += size_of(found)
                entries += 1
    except FileNotFoundError:
        pass  # gone meanwhile
    except OSError as error:
        budget.miss(f"directories that cannot be entered: {os.strerror(error.errno or 0)}")
    return size_bytes, entries


def kind_of(status: os.stat_result) -> str:
    for is_it, kind in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link")):
        if is_it(status.st_mode):
            return kind
    return "other"


# -- reading ----------------------------------------------------------------------------------------------


def read_below(directory: int, path: str) -> Tail:
    """The end of a file below a directory, named as it is or as it is shown. Raises UsageError with why not."""
    steps = _checked(path)
    try:
        try:
            return _tail_below(directory, steps, path)
        except FileNotFoundError:
            if (others := [meant(step) for step in steps]) == steps:
                raise
            return _tail_below(directory, others, path)
    except OSError as error:
        raise UsageError(f"cannot read {path!r}: {_reason(error)}", "path") from None


def _tail_below(directory: int, steps: list[str], path: str) -> Tail:
    *above, name = steps
    with ExitStack() as stack:
        for step in above:
            directory = stack.enter_context(opened(step, directory))
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):  # to open a device may do something
            raise UsageError(f"{path!r} is no regular file, and only those are read", "path")
        return _tail(os.open(name, _FILE, dir_fd=directory), path)


def read_file(path: Path) -> Tail:
    """The end of a file that people have named. Raises UsageError with why not."""
    name = shown(path)
    try:
        return _tail(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), name)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {_reason(error)}", "path") from None


def _checked(path: str) -> list[str]:
    steps = path.split("/")
    if "\0" in path or any(step in ("", ".", "..") for step in steps):
        raise UsageError(f"{path!r} is no file in the sandbox: name it as the list of its files does", "path")
    return steps


def _tail(fd: int, path: str) -> Tail:
    """Closes it, too."""
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path!r} is no regular file, and only those are read", "path")
        offset = max(0, status.st_size - TAIL_BYTES)
        data = os.pread(fd, TAIL_BYTES, offset)
    finally:
        os.close(fd)
    size_bytes = told_size(max(status.st_size, offset + len(data)))
    return Tail(path, size_bytes, min(offset, size_bytes - len(data)), told_time(status.st_mtime), data)


def _reason(error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "it leads through a link, or through what is no directory"
    return os.strerror(error.errno or 0)
