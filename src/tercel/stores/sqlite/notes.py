"""What befell tasks beside their attempts, by range: a million tasks that were held are one row.

Ranges overlap as they like. Those that contain a task are found level by level: a range of a level is no longer than its
length, so that it begins not far before the task.
"""

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing
from heapq import merge
from itertools import groupby, islice

from tercel.core.changes import Noted
from tercel.core.intervals import IntervalSet, Range
from tercel.stores.codes import ENDS
from tercel.stores.contract import SPAN_WORDS
from tercel.stores.sqlite import queries

_BEHIND = 2**62
"""After all that was written."""
LENGTHS = (1, 16, 256, 4096, 65_536, 1_048_576, 16_777_216, 2**62)
"""By level, how long its ranges are at most. In files: never changed."""


def add(connection: sqlite3.Connection, noted: list[Noted]) -> None:
    connection.executemany(
        queries.NOTE_ADD,
        [
            (note.job, _level(last - first + 1), first, last, note.at, note.what, note.note)
            for note, ranges in _joined(noted)
            for first, last in ranges
        ],
    )


def _joined(noted: list[Noted]) -> list[tuple[Noted, list[Range]]]:
    """Those of a job that say the same one after the other, as one."""
    joined: list[tuple[Noted, list[Range]]] = []
    latest: dict[int, tuple[Noted, list[Range]]] = {}  # by job
    for note in noted:
        before = latest.get(note.job)
        if before is None or _words(before[0]) != _words(note):
            before = latest[note.job] = (note, [])
            joined.append(before)
        before[1].extend(note.ranges)
    return [(note, IntervalSet(ranges).ranges()) for note, ranges in joined]


def _words(note: Noted) -> tuple[float, str, str]:
    return note.at, note.what, note.note


def _level(length: int) -> int:
    return next(level for level, longest in enumerate(LENGTHS) if length <= longest)


def of_job(connection: sqlite3.Connection, job: int, since: float, skip: int, limit: int) -> list[Noted]:
    with closing(_as_they_came(connection, job, since)) as rows:
        told = (
            note for at, alike in groupby(rows, key=lambda row: row[0]) for note in _at_once(job, at, alike)
        )
        return list(islice(told, skip, skip + limit))


_Row = tuple[float, int, int, int, str, str]
"""When, the note's number, of which tasks first..last, what, and more of it."""


def _as_they_came(connection: sqlite3.Connection, job: int, since: float) -> Generator[_Row, None, None]:
    """Notes are read as they are asked for: a page needs few of them. Spans have no index by time."""
    where = {"job": job, "since": since}
    spans = sorted(connection.execute(queries.SPANS_OF_JOB, where))
    told = ((at, _BEHIND, first, last, SPAN_WORDS[ENDS[end]], why) for at, first, last, end, why in spans)
    with closing(connection.execute(queries.NOTES_OF_JOB, where)) as written:
        yield from merge(written, told, key=lambda row: row[:2])


def _at_once(job: int, at: float, rows: Iterable[_Row]) -> list[Noted]:
    """Of one time: those that say the same as one, in the order in which the first of each was written."""
    joined: dict[tuple[str, str], list[Range]] = {}
    for _, _, first, last, what, note in sorted(rows, key=lambda row: (row[1], *row[4:])):
        joined.setdefault((what, note), []).append((first, last))
    return [
        Noted(job, tuple(IntervalSet(ranges).ranges()), at, what, note)
        for (what, note), ranges in joined.items()
    ]


def of_task(connection: sqlite3.Connection, job: int, task: int) -> list[Noted]:
    found: list[tuple[float, int, str, str]] = []
    for level, longest in enumerate(LENGTHS):
        where = {"job": job, "level": level, "lowest": max(task - longest, 0), "task": task}
        found += connection.execute(queries.NOTES, where)
    at_once = {"job": job, "first": task, "last": task, "states": -1, "limit": 1}
    for _, _, _, at, reason, end in connection.execute(queries.SPANS, at_once):
        found.append((at, _BEHIND, SPAN_WORDS[ENDS[end]], reason))
    alone = ((task, task),)
    # A dictionary: what is there twice was handed over twice.
    return list({Noted(job, alone, at, what, note): None for at, _, what, note in sorted(found)})
