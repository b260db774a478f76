"""How much an attempt takes, seen from outside: memory and processes of its tree, room on disk of its sandbox."""

# ruff: noqa: PTH123
# (A spawner imports this, and pathlib would double its start-up time.)

import os
import time
from collections.abc import Callable

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_STEP_ENTRIES = 256
_BLOCK_BYTES = 512
"""Of st_blocks, whatever the file system's own are."""


class Usage:
    """Of some processes."""

    __slots__ = ("mem_bytes", "processes")

    def __init__(self, mem_bytes: int, processes: int) -> None:
        self.mem_bytes = mem_bytes
        self.processes = processes
        """Threads are counted one by one, as the kernel's own limit does."""


def usage(pids: list[int], doubtful_bytes: int) -> Usage:
    """Of these processes. What they share is counted for each, unless that comes to more than `doubtful_bytes`.

    Then it is counted once, which takes the kernel far longer: a dozen processes forked from a large one seem to take a
    dozen times its memory and must not be ended for that.
    """
    resident = processes = 0
    for pid in pids:
        try:
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        processes += int(fields[17])
        resident += int(fields[21]) * _PAGE_BYTES
    if doubtful_bytes and resident > doubtful_bytes:
        resident = sum(map(_proportional_bytes, pids))
    return Usage(resident, processes)


def _proportional_bytes(pid: int) -> int:
    try:
        lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
    except (OSError, StopIteration):  # an old kernel, another user's, or it has ended
        return _unshared_bytes(pid)


def _unshared_bytes(pid: int) -> int:
    try:
        _, resident, shared, *_ = _read(f"/proc/{pid}/statm").split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


class Meter:
    """Measures a directory again and again, a bounded step at a time. Links are not followed, nor other file systems."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._todo: list[bytes] = []
        self._counted: set[int] = set()
        """Inodes of files that have several names."""
        self._device = 0
        self._sum = 0
        self.most_bytes = 0
        """The most that was found."""

    def step(self) -> bool:
        """A few milliseconds of work. Whether that finished a round; `most_bytes` may have grown in any case."""
        if not self._todo:
            self._begin()
        entries = 0
        while self._todo and entries < _STEP_ENTRIES:
            entries += self._count(self._todo.pop())
        self.most_bytes = max(self.most_bytes, self._sum)
        return not self._todo

    def whole(self, most_s: float) -> int:
        """What is there now, or as much of it as can be counted in that time."""
        self._begin()
        stop_at = time.monotonic() + most_s
        while not self.step() and time.monotonic() < stop_at:
            pass
        return self._sum

    def _begin(self) -> None:
        self._counted.clear()
        self._sum = 0
        self._todo = []
        try:
            self._device = os.lstat(self._path).st_dev
        except OSError:
            return  # removed by the attempt, or not made yet
        self._todo = [self._path]

    def _count(self, directory: bytes) -> int:
        """Returns how many entries there were. A directory that vanishes meanwhile has none."""
        entries = 0
        try:
            with os.scandir(directory) as found:
                for entry in found:
                    entries += 1
                    self._add(entry)
        except OSError:
            pass
        return entries

    def _add(self, entry: "os.DirEntry[bytes]") -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if status.st_dev != self._device:
            return
        if entry.is_dir(follow_symlinks=False):
            self._todo.append(entry.path)
        elif status.st_nlink > 1:
            # What nobody may write to is a file of the cache, which takes no room here.
            if status.st_ino in self._counted or not status.st_mode & 0o222:
                return
            self._counted.add(status.st_ino)
        self._sum += status.st_blocks * _BLOCK_BYTES


Tree = Callable[[], list[int]]
"""The processes of an attempt, now."""
