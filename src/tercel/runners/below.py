"""Directories below one, reached part by part and never through a link: nothing in them can lead out of it."""

import os
from collections.abc import Callable

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_MOST = 32

Enter = Callable[[int, bytes], int]
"""Opens a directory of that name in the one of that descriptor."""


def enter(parent: int, name: bytes) -> int:
    return os.open(name, DIRECTORY, dir_fd=parent)


def make(parent: int, name: bytes) -> int:
    """Enter it; if it is not there, it is made first."""
    try:
        return enter(parent, name)
    except FileNotFoundError:
        os.mkdir(name, 0o700, dir_fd=parent)
        return enter(parent, name)


class Below:
    """Keeps a few of them open: who works on files of one directory mostly comes back to it."""

    def __init__(self, root: int, enter: Enter) -> None:
        """`root` becomes its own, to close."""
        self._enter = enter
        self._open = {b"": root}
        """By path, the root first."""

    def at(self, path: bytes) -> int:
        """The descriptor of a directory, good until the next call. Raises OSError: NotADirectoryError if a link is in the way."""
        fd = self._open.get(path)
        if fd is not None:
            return fd
        if len(self._open) >= _OPEN_MOST:
            self._close_all_but_root()
        root = fd = self._open[b""]
        for part in path.split(b"/"):
            try:
                inner = self._enter(fd, part)
            finally:
                if fd != root:
                    os.close(fd)
            fd = inner
        self._open[path] = fd
        return fd

    def close(self) -> None:
        self._close_all_but_root()
        os.close(self._open.pop(b""))

    def _close_all_but_root(self) -> None:
        root = self._open.pop(b"")
        for fd in self._open.values():
            os.close(fd)
        self._open = {b"": root}
