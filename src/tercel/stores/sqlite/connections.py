"""Who may use the file, and through which connections.

One process owns the file, by a lock on a file beside it that ends with the process. Within it one connection
writes; any number read, each in the hands of one question at a time, none waiting for another or for the writer.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from tercel.core.errors import UsageError
from tercel.stores.sqlite import faults, queries, schema

BUSY_TIMEOUT_S = 1.0
"""How long a statement waits for a stranger (a backup, an admin's shell). The service's loop waits with it."""
IDLE_READERS = 4


class Ownership:
    """The right to write to the file, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        try:
            # A lock of this kind belongs to the process: a child that outlives it does not keep it.
            self._file = os.open(path.with_name(path.name + "-lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise faults.unopened(error, path) from error
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError | PermissionError):
                raise UsageError(f"{path} is in use by another manager; stop that one first") from error
            raise faults.unopened(error, path) from error

    def give_up(self) -> None:
        os.close(self._file)


def open_writer(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
    """The connection that writes, to a file that is there and up to date."""
    try:
        # SQLite's other files take the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise faults.unopened(error, path) from error
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, factory=factory
    )
    try:
        schema.check(connection, path)
        for setting in queries.WRITER_SETTINGS:
            connection.execute(setting)
        schema.prepare(connection)
    except sqlite3.Error as error:
        connection.close()
        raise faults.translated(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


class Readers:
    """Connections that only read: made when all are in use, a few kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one committed state for as long as it is held."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = self._open()
            connection.execute(queries.BEGIN_READING)
            yield connection
            connection.execute(queries.COMMIT)
        except BaseException as error:
            # Whatever happened to it, it is not used again.
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise faults.translated(error, self._path) from error
            raise
        self._put_back(connection)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        for setting in queries.READER_SETTINGS:
            connection.execute(setting)
        return connection

    def _put_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < IDLE_READERS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Questions under way may end; their connections are closed then."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
