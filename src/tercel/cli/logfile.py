"""A log in a file that stays small, however long the process runs.

    FILE --[ SIZE_MOST ]--> FILE.1.gz --> FILE.2.gz --> ... --> FILE.5.gz --> gone

FILE is emptied, not renamed: its lock, by which no other process may write it, is never let go. So whoever is killed
between the two steps has some lines twice, and none is missing.

Only the logbook's thread writes here, so that neither a slow disk nor the compression keeps the event loop waiting.
What cannot be written is lost and counted; it ends no process.
"""

import errno
import fcntl
import gzip
import logging
import os
import shutil
import stat
import time
from pathlib import Path

from tercel.core.errors import UsageError

SIZE_MOST = 10 * 1024 * 1024
KEPT = 5
"""So many compressed ones."""
COMPLAIN_AGAIN_S = 3600.0
ROTATE_AGAIN_S = 60.0
"""After a rotation that failed: each try reads and compresses the whole file."""
_PIECE_BYTES = 1024 * 1024

log = logging.getLogger("tercel.log")


class LogFile:
    """Opens and locks the file, or raises UsageError."""

    def __init__(self, path: Path, size_most: int = SIZE_MOST) -> None:
        self._path = path.absolute()
        self._size_most = size_most
        self._lost = 0
        self._complain_at = self._rotate_at = time.monotonic()
        try:
            self._fd = _opened(self._path)
        except FileNotFoundError:
            raise UsageError(
                f"there is no directory {path.parent} to write {path.name} into", "log"
            ) from None
        except BlockingIOError:
            raise UsageError(
                f"another process writes its log to {path}; stop it, or give this one a file of its own",
                "log",
            ) from None
        except OSError as error:
            raise UsageError(f"cannot write the log {path}: {error.strerror}", "log") from None
        if not os.access(self._path.parent, os.W_OK | os.X_OK):
            raise UsageError(
                f"cannot rotate the log {path}: its directory may not be written; choose one of yours", "log"
            )

    def write(self, line: bytes) -> None:
        """Never raises: a service does not end for want of a log."""
        missing = f"... and {self._lost:,} lines that could not be written\n" if self._lost else ""
        try:
            self._append(missing.encode() + line)
        except OSError as error:
            self._lost += 1
            self._complain(error)
        else:
            self._lost = 0

    def _append(self, data: bytes) -> None:
        self._find_again()
        size = os.fstat(self._fd).st_size
        if size and size + len(data) > self._size_most:
            self._rotate()
            size = 0
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            os.ftruncate(self._fd, size)  # half a line, when the disk is full
            raise

    def _find_again(self) -> None:
        """Somebody may have moved the file or removed it: what is written to it then, nobody would ever see."""
        try:
            if os.path.samestat(self._path.stat(), os.fstat(self._fd)):
                return
        except OSError:
            pass  # gone, or a stale handle of a file server: opening it tells
        fresh = _opened(self._path)
        os.close(self._fd)
        self._fd = fresh

    def _rotate(self) -> None:
        """Until it succeeds nothing is written: the file is as large as it may be."""
        if time.monotonic() < self._rotate_at:
            raise OSError(errno.EFBIG, "it could not be rotated")
        self._rotate_at = time.monotonic() + ROTATE_AGAIN_S
        self._compress(self._kept("part"))
        free = next((n for n in range(1, KEPT) if not self._kept(n).exists()), KEPT)
        for number in range(free, 1, -1):
            self._kept(number - 1).replace(self._kept(number))
        self._kept("part").replace(self._kept(1))
        os.ftruncate(self._fd, 0)
        self._rotate_at = time.monotonic()

    def _kept(self, which: int | str) -> Path:
        return self._path.with_name(f"{self._path.name}.{which}.gz")

    def _compress(self, part: Path) -> None:
        part.unlink(missing_ok=True)  # of a process that was killed
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with (
                self._path.open("rb") as source,
                os.fdopen(handle, "wb") as target,
                gzip.GzipFile("", "wb", 1, target) as packed,
            ):
                shutil.copyfileobj(source, packed, _PIECE_BYTES)
        except OSError:
            part.unlink(missing_ok=True)  # the disk may be full
            raise

    def _complain(self, error: OSError) -> None:
        """To stderr, where warnings go too; not with every line."""
        now = time.monotonic()
        if now >= self._complain_at:
            self._complain_at = now + COMPLAIN_AGAIN_S
            why = "another process writes it" if isinstance(error, BlockingIOError) else error.strerror
            log.warning("cannot write the log %s: %s; lines are lost until it works again", self._path, why)


def _opened(path: Path) -> int:
    """Locked; not inherited by what is started, which would keep the lock when this process is gone."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(fd, 0o600)
    except OSError:
        os.close(fd)
        raise
    return fd
