"""The directory that an attempt has for itself, and the removal of what attempts leave in theirs.

Making and removing a directory for each attempt would cost a quarter of the rate at which processes can be
started. So a sandbox that was left empty serves the next attempt; any other is moved into the trash, a rename, and
removed from there while nothing urgent is to be done.
"""

# ruff: noqa: PTH101, PTH102, PTH103, PTH104, PTH116, PTH208
# (Removal works on descriptors, and pathlib would double a spawner's start-up time.)

import os
import stat
import time
from collections import deque

_STEP_ENTRIES = 256
KEPT_MOST = 100
"""Sandboxes that were kept; older ones are removed."""
_STAMP_S = 3.0
"""No file system tells times less exactly than to two seconds."""


class Sweeper:
    """Removes trees from the trash, a bounded step at a time.

    Directories found in a tree are moved up into the trash and become trees of their own: no recursion, no long
    paths, however deep a task has nested them. Links are removed, never followed; what lies on another file
    system (something mounted there) is left alone.
    """

    def __init__(self, trash: bytes, prefix: bytes) -> None:
        self._trash = trash
        self._prefix = prefix
        """Of the names that it gives: several sweepers share the trash."""
        self._count = 0
        self.todo: deque[bytes] = deque()

    def new_name(self) -> bytes:
        self._count += 1
        return b"%s.%d" % (self._prefix, self._count)

    def add(self, name: bytes) -> None:
        self.todo.append(name)

    def take(self, path: bytes) -> None:
        """Move something into the trash, to be removed later. Raises OSError if it cannot be moved."""
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.chmod(path, 0o700)  # only a writable directory can be given another parent
        name = self.new_name()
        os.rename(path, self._trash + b"/" + name)
        self.add(name)

    def step(self) -> None:
        """A few milliseconds of work. What cannot be removed is left in the trash until the next start."""
        if not self.todo:
            return
        try:
            root = os.open(self._trash, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                done = self._shrink(root, self.todo[0])
            finally:
                os.close(root)
        except OSError:
            done = True
        if done:
            self.todo.popleft()

    def sweep(self, most_s: float) -> None:
        stop_at = time.monotonic() + most_s
        while self.todo and time.monotonic() < stop_at:
            self.step()

    def _shrink(self, root: int, name: bytes) -> bool:
        """Remove some of a tree; whether it is done with."""
        try:
            tree = open_own(root, name)
        except NotADirectoryError:
            os.unlink(name, dir_fd=root)
            return True
        try:
            with os.scandir(tree) as entries:
                names = [
                    os.fsencode(entry.name) for entry, _ in zip(entries, range(_STEP_ENTRIES), strict=False)
                ]
            removed = [self._remove_entry(root, tree, entry) for entry in names]
        finally:
            os.close(tree)
        if len(names) == _STEP_ENTRIES and any(removed):
            return False
        os.rmdir(name, dir_fd=root)
        return True

    def _remove_entry(self, root: int, tree: int, name: bytes) -> bool:
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=tree, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=tree)
                return True
            os.close(open_own(tree, name))
            moved = self.new_name()
            os.rename(name, moved, src_dir_fd=tree, dst_dir_fd=root)
        except OSError:
            return False
        self.add(moved)
        return True


def open_own(parent: int | None, name: bytes) -> int:
    """Open a directory, never through a link, and make it accessible to its owner if a task took that away."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        path = b"/proc/self/fd/%d" % handle
        if stat.S_IMODE(os.stat(handle).st_mode) & 0o700 != 0o700:
            os.chmod(path, 0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)


def last_sandbox(directory: bytes) -> bytes:
    """Of a lane whose process is gone: the one that was in use, or would have been."""
    try:
        numbers = [int(name) for name in os.listdir(directory) if name.isdigit()]
    except FileNotFoundError:
        numbers = []
    return b"%s/%d" % (directory, max(numbers, default=0))


class Sandbox:
    """The sandbox of one lane: every attempt finds it empty, and its own."""

    def __init__(self, directory: bytes, sweeper: Sweeper) -> None:
        self._directory = directory
        self._sweeper = sweeper
        self._number = 0
        self._mode = 0
        """As it was made."""
        self._stamps = (0, 0)
        """When it was last changed, by its file system's clock, seen at `_seen_at` by ours."""
        self._seen_at = 0.0
        self.path = directory + b"/0"
        self.ready = False

    def prepare(self) -> None:
        """Raises OSError if there is no room for it."""
        os.makedirs(self._directory, 0o700, exist_ok=True)
        os.mkdir(self.path, 0o700)
        status = os.lstat(self.path)
        self._mode = status.st_mode
        self._remember(status)
        self.ready = True

    def fill(self) -> None:
        """Something is put into it before its attempt begins: it is not to be taken for empty, whatever its stamps say."""
        self._stamps = (0, 0)

    def clear(self, begun: float) -> None:
        """After an attempt that began at that time."""
        try:
            status = os.lstat(self.path)
            if status.st_mode == self._mode and self._is_empty(status, begun):
                return
            self._sweeper.take(self.path)
        except FileNotFoundError:
            pass
        except OSError:  # it cannot be moved (something is mounted on it, say): leave it and use another
            self._number += 1
            self.path = b"%s/%d" % (self._directory, self._number)
        self.ready = False

    def keep(self, directory: bytes, name: bytes) -> bytes:
        """Move it aside with all that is in it. Returns its path there; empty if nothing is in it. Raises OSError."""
        if not os.listdir(self.path):
            return b""
        os.makedirs(directory, 0o700, exist_ok=True)
        os.chmod(self.path, 0o700)  # only a writable directory can be given another parent
        path = directory + b"/" + name
        os.rename(self.path, path)
        self.ready = False
        self._drop_oldest(directory)
        return path

    def _drop_oldest(self, directory: bytes) -> None:
        """Several lanes do this at a time: what is gone already is as good."""
        kept: list[tuple[int, bytes]] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    kept.append((entry.stat(follow_symlinks=False).st_ctime_ns, entry.path))
                except FileNotFoundError:
                    continue
        for _, path in sorted(kept)[:-KEPT_MOST]:
            try:
                self._sweeper.take(path)
            except FileNotFoundError:
                continue

    def _is_empty(self, status: os.stat_result, begun: float) -> bool:
        """It is if it was empty before and has not changed since, which is quicker to see than to list it.

        But a change soon after another may carry the same stamp: clocks of file systems are coarse.
        """
        unchanged = (status.st_mtime_ns, status.st_ctime_ns) == self._stamps
        if unchanged and begun - self._seen_at > _STAMP_S:
            return True
        if os.listdir(self.path):
            return False
        if not unchanged:
            self._remember(status)
        return True

    def _remember(self, status: os.stat_result) -> None:
        self._stamps = (status.st_mtime_ns, status.st_ctime_ns)
        self._seen_at = time.monotonic()

    def remove(self) -> None:
        """With all that is in it, and the lane's directory."""
        try:
            self._sweeper.take(self._directory)
        except OSError:
            pass
