"""Copies of regular files, a piece at a time: whoever copies does other things in between."""

import errno
import os
import stat
from collections.abc import Generator
from fcntl import ioctl

NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})
"""Errors of linking a file after which a copy of it serves as well."""
_PIECE_BYTES = 4 * 2**20
_FICLONE = 0x40049409
"""Linux: both files share their bytes until one of them is written to."""

Pieces = Generator[None, None, bool]


def copy(source: bytes, source_dir: int | None, target: bytes, target_dir: int, mode: int | None) -> Pieces:
    """Never through a link, nor onto anything. Returns whether there was a regular file; nothing else is waited for or read.

    `mode`: of the copy; None: that of the source, and its owner may read and write it.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        from_fd = os.open(source, flags, dir_fd=source_dir)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            return False
        raise
    try:
        status = os.fstat(from_fd)
        if not stat.S_ISREG(status.st_mode):
            return False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        to_fd = os.open(target, flags, 0o600, dir_fd=target_dir)
        try:
            yield from _fill(from_fd, to_fd)
            os.fchmod(to_fd, mode if mode is not None else stat.S_IMODE(status.st_mode) & 0o777 | 0o600)
        finally:
            os.close(to_fd)
    finally:
        os.close(from_fd)
    return True


def _fill(from_fd: int, to_fd: int) -> Generator[None, None, None]:
    try:
        ioctl(to_fd, _FICLONE, from_fd)
        return
    except OSError:
        pass  # few file systems can
    while data := os.read(from_fd, _PIECE_BYTES):
        view = memoryview(data)
        while view:
            view = view[os.write(to_fd, view) :]
        yield
