"""What each task of a job has of its own (a command line, a call's arguments), many to a row: a million lines are a
thousand rows, and a batch of tasks reads one of them.

A chunk holds what consecutive tasks have, so that a task's is found by its number alone. The last few chunks read are
kept decoded: tasks are dispatched in order, a handful at a time.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

import msgspec

from tercel.core.changes import JobAdded
from tercel.core.intervals import Range
from tercel.core.model import Call
from tercel.stores.sqlite import queries
from tercel.stores.sqlite.connections import Readers

T = TypeVar("T")
CHUNK_TASKS = 1000
CHUNK_BYTES = 256 * 1024
CACHED_CHUNKS = 32
"""So at most about 8 MiB of each kind (one item longer than CHUNK_BYTES has a chunk of its own)."""

_encode = msgspec.msgpack.Encoder().encode


class Kind(NamedTuple, Generic[T]):
    """What is kept in chunks, and the statements that do it."""

    add: str
    at: str
    after: str
    decode: Callable[[bytes], list[T]]


LINES: Kind[str] = Kind(
    queries.LINES_ADD, queries.LINES_AT, queries.LINES_AFTER, msgspec.msgpack.Decoder(list[str]).decode
)
CALLS: Kind[Call] = Kind(
    queries.CALLS_ADD, queries.CALLS_AT, queries.CALLS_AFTER, msgspec.msgpack.Decoder(list[Call]).decode
)


def add(connection: sqlite3.Connection, added: list[JobAdded]) -> None:
    for change in added:
        if change.lines:
            rows = _chunks(change.job.id, change.job.ranges, change.lines)
            connection.executemany(queries.LINES_ADD, rows)
        if change.calls:
            rows = _chunks(change.job.id, change.job.ranges, change.calls)
            connection.executemany(queries.CALLS_ADD, rows)


def _chunks(job: int, ranges: Sequence[Range], items: Sequence[object]) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    for first, last in ranges:
        for task in range(first, last + 1, CHUNK_TASKS):
            count = min(CHUNK_TASKS, last + 1 - task)
            for start, blob in _fitting(task, items[at : at + count]):
                yield job, start, blob
            at += count


def _fitting(first: int, items: Sequence[object]) -> Iterator[tuple[int, bytes]]:
    """Halves until each is small enough, or one item."""
    blob = _encode(items)
    if len(blob) <= CHUNK_BYTES or len(items) == 1:
        yield first, blob
        return
    half = len(items) // 2
    yield from _fitting(first, items[:half])
    yield from _fitting(first + half, items[half:])


class Chunk(NamedTuple, Generic[T]):
    job: int
    first: int
    items: list[T]

    @property
    def behind(self) -> int:
        """The first task after it."""
        return self.first + len(self.items)


class Chunks(Generic[T]):
    """What tasks of committed jobs have, which never changes: what was read once stays true."""

    def __init__(self, readers: Readers, kind: Kind[T]) -> None:
        self._readers = readers
        self._kind = kind
        self._lock = Lock()
        self._cached: OrderedDict[tuple[int, int], Chunk[T]] = OrderedDict()
        """By job and first task; the one used last at the end."""

    def of(self, job: int, ranges: Iterable[Range]) -> list[T]:
        found: list[T] = []
        chunk: Chunk[T] | None = None
        for at, last in ranges:
            while at <= last:
                # Mostly it is the one of the range before.
                if chunk is None or not chunk.first <= at < chunk.behind:
                    chunk = self._recall(job, at) or self._read(job, at)
                if chunk is None or chunk.first > last:
                    break
                found += chunk.items[max(at - chunk.first, 0) : last + 1 - chunk.first]
                at = chunk.behind
        return found

    def forget(self, jobs: Collection[int]) -> None:
        """These jobs were removed."""
        with self._lock:
            for key in [key for key in self._cached if key[0] in jobs]:
                del self._cached[key]

    def _recall(self, job: int, task: int) -> Chunk[T] | None:
        with self._lock:
            for key, chunk in reversed(self._cached.items()):
                if chunk.job == job and chunk.first <= task < chunk.behind:
                    self._cached.move_to_end(key)
                    return chunk
        return None

    def _read(self, job: int, task: int) -> Chunk[T] | None:
        """The chunk with the task's item, or the next one after it."""
        with self._readers.snapshot() as connection:
            chunk = self._fetched(connection, self._kind.at, job, task)
            if chunk is None or chunk.behind <= task:
                chunk = self._fetched(connection, self._kind.after, job, task)
        if chunk is not None:
            with self._lock:
                self._cached[job, chunk.first] = chunk
                if len(self._cached) > CACHED_CHUNKS:
                    self._cached.popitem(last=False)
        return chunk

    def _fetched(self, connection: sqlite3.Connection, query: str, job: int, task: int) -> Chunk[T] | None:
        columns = connection.execute(query, (job, task)).fetchone()
        return columns and Chunk(job, columns[0], self._kind.decode(columns[1]))
