"""Command lines, many to a row: a million lines are a thousand rows, and a batch of tasks reads one of them.

A chunk holds the lines of consecutive tasks, so that a task's line is found by its number alone. The last few
chunks read are kept decoded: tasks are dispatched in order, a handful at a time.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import NamedTuple

import msgspec

from tercel.core.changes import JobAdded
from tercel.stores.sqlite import queries
from tercel.stores.sqlite.connections import Readers

CHUNK_LINES = 1000
CHUNK_BYTES = 256 * 1024
CACHED_CHUNKS = 32
"""So at most about 8 MiB (one line longer than CHUNK_BYTES has a chunk of its own)."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[str]).decode


def add(connection: sqlite3.Connection, added: list[JobAdded]) -> None:
    for change in added:
        if change.lines:
            connection.executemany(queries.LINES_ADD, _chunks(change))


def _chunks(added: JobAdded) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    for first, last in added.job.ranges:
        for task in range(first, last + 1, CHUNK_LINES):
            count = min(CHUNK_LINES, last + 1 - task)
            for start, blob in _fitting(task, added.lines[at : at + count]):
                yield added.job.id, start, blob
            at += count


def _fitting(first: int, lines: Sequence[str]) -> Iterator[tuple[int, bytes]]:
    """Halves until each is small enough, or one line."""
    blob = _encode(lines)
    if len(blob) <= CHUNK_BYTES or len(lines) == 1:
        yield first, blob
        return
    half = len(lines) // 2
    yield from _fitting(first, lines[:half])
    yield from _fitting(first + half, lines[half:])


class Chunk(NamedTuple):
    job: int
    first: int
    lines: list[str]

    @property
    def behind(self) -> int:
        """The first task after it."""
        return self.first + len(self.lines)


class Lines:
    """The lines of committed jobs, which never change: what was read once stays true."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._lock = Lock()
        self._cached: OrderedDict[tuple[int, int], Chunk] = OrderedDict()
        """By job and first task; the one used last at the end."""

    def of(self, job: int, first: int, last: int) -> list[str]:
        found: list[str] = []
        at = first
        while at <= last:
            chunk = self._recall(job, at) or self._read(job, at)
            if chunk is None or chunk.first > last:
                break
            found += chunk.lines[max(at - chunk.first, 0) : last + 1 - chunk.first]
            at = chunk.behind
        return found

    def _recall(self, job: int, task: int) -> Chunk | None:
        with self._lock:
            for key, chunk in reversed(self._cached.items()):
                if chunk.job == job and chunk.first <= task < chunk.behind:
                    self._cached.move_to_end(key)
                    return chunk
        return None

    def _read(self, job: int, task: int) -> Chunk | None:
        """The chunk with the task's line, or the next one after it."""
        with self._readers.snapshot() as connection:
            chunk = _fetched(connection, queries.LINES_AT, job, task)
            if chunk is None or chunk.behind <= task:
                chunk = _fetched(connection, queries.LINES_AFTER, job, task)
        if chunk is not None:
            with self._lock:
                self._cached[job, chunk.first] = chunk
                if len(self._cached) > CACHED_CHUNKS:
                    self._cached.popitem(last=False)
        return chunk


def _fetched(connection: sqlite3.Connection, query: str, job: int, task: int) -> Chunk | None:
    columns = connection.execute(query, (job, task)).fetchone()
    return columns and Chunk(job, columns[0], _decode(columns[1]))
