"""SQLite's errors -> ours, sorted by blame.

no room on the disk                       StoreFull      all goes on when there is room
busy, I/O error, out of memory ...        PassingFault   the same batch may be handed over again
damaged, or no SQLite file at all         TercelError    no retry helps
a value or statement SQLite refuses       as it is       a mistake in our code
"""

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

from tercel.core.errors import PassingFault, StoreFull, TercelError, UsageError

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
PROBE_BYTES = 64 * 1024


def translated(error: sqlite3.Error, path: Path) -> Exception:
    """The error to raise in place of SQLite's own."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the bits above only tell details
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and not _has_room(path)):
        return full(path)
    if primary == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{path} is not an SQLite file; choose another data directory")
    if primary == sqlite3.SQLITE_CORRUPT:
        return TercelError(f"{path} is damaged ({error}); restore it from a backup")
    if isinstance(error, sqlite3.OperationalError):
        return PassingFault(f"the store {path} cannot be used for now: {error}")
    return error


def unopened(error: OSError, path: Path) -> TercelError:
    """Why the file could not even be opened."""
    if error.errno in NO_ROOM:
        return full(path)
    return UsageError(f"cannot open the store {path}: {error.strerror}")


def full(path: Path) -> StoreFull:
    return StoreFull(f"no room on the disk for {path}; free some and all goes on, nothing accepted is lost")


def _has_room(path: Path) -> bool:
    """Whether files like ours can grow. SQLite does not tell which I/O errors mean a full disk, so try."""
    try:
        largest = max((file.stat().st_size for file in (path, wal(path)) if file.exists()), default=0)
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.seek(largest)  # a hole: costs nothing, but meets a limit on the size of files
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno not in NO_ROOM
    return True


def wal(path: Path) -> Path:
    """SQLite's log beside the file."""
    return path.with_name(path.name + "-wal")
