"""What befell tasks beside their attempts, by range: a million tasks that were held are one row.

Ranges overlap as they like. Those that contain a task are found level by level: a range of a level is no longer than its
length, so that it begins not far before the task.
"""

import sqlite3

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


def of_job(connection: sqlite3.Connection, job: int, skip: int, limit: int) -> list[Noted]:
    found: list[tuple[int, int, int, float, str, str]] = connection.execute(
        queries.NOTES_OF_JOB, {"job": job}
    ).fetchall()
    for first, last, at, end, reason in connection.execute(queries.SPANS_OF_JOB, {"job": job}):
        found.append((_BEHIND, first, last, at, SPAN_WORDS[ENDS[end]], reason))
    joined: dict[tuple[float, str, str], tuple[int, list[Range]]] = {}
    for id, first, last, at, what, note in sorted(found):
        joined.setdefault((at, what, note), (id, []))[1].append((first, last))
    order = sorted((at, id, what, note, ranges) for (at, what, note), (id, ranges) in joined.items())
    return [
        Noted(job, tuple(IntervalSet(ranges).ranges()), at, what, note)
        for at, _, what, note, ranges in order[skip : skip + limit]
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
