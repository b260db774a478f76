"""Conditions, and which tasks wait for them.

A task waits for one condition at a time, and may be blocked and unblocked many times within one batch: what counts is the
last. So of each batch the last word on each task is found first, and neighbours with the same are written as one range.
Long ranges are not taken apart for that: they are written in their turn, after what came before them.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tercel.core.changes import ConditionSet, TasksBlocked, TasksUnblocked
from tercel.core.conditions import ConditionRow
from tercel.core.intervals import IntervalSet, Range
from tercel.core.states import Stage
from tercel.stores.codes import STAGE_CODES, STAGES
from tercel.stores.sqlite import queries

LONG = 1000
"""Ranges of more tasks are not taken apart."""
RANGES_AT_ONCE = 100_000
"""Read as one row."""

Word = tuple[int, float, int]
"""(condition, since when, code of the stage), or FREE."""
FREE: Word = (0, 0.0, 0)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ConditionRow).decode
_decode_ranges = msgspec.json.Decoder(list[tuple[int, int, int, int]]).decode


# --- writing


def keep(connection: sqlite3.Connection, changes: list[ConditionSet]) -> None:
    last = {change.condition.id: change.condition for change in changes}
    connection.executemany(
        queries.CONDITION_SET, [(id, _encode(row), row.closed_at) for id, row in last.items()]
    )


def block(connection: sqlite3.Connection, changes: Sequence[TasksBlocked | TasksUnblocked]) -> None:
    """In order."""
    short: dict[int, dict[int, Word]] = {}  # by job and task
    for change in changes:
        word = FREE
        if isinstance(change, TasksBlocked):
            word = (change.condition, change.at, STAGE_CODES[change.stage])
        long: list[Range] = []
        for first, last in change.ranges:
            if last - first < LONG:
                short.setdefault(change.job, {}).update(dict.fromkeys(range(first, last + 1), word))
            else:
                long.append((first, last))
        if long:
            _settle(connection, short)
            short = {}
            _put(connection, change.job, [(first, last, word) for first, last in long])
    _settle(connection, short)


def _settle(connection: sqlite3.Connection, short: dict[int, dict[int, Word]]) -> None:
    for job, words in short.items():
        _put(connection, job, list(_runs(sorted(words.items()))))


def _runs(words: Iterable[tuple[int, Word]]) -> Iterator[tuple[int, int, Word]]:
    """Neighbours that wait for the same and met it in the same stage, as ranges: with the time of the first of them."""
    run: tuple[int, int, Word] | None = None
    for task, word in words:
        if run is not None and run[1] == task - 1 and run[2][0] == word[0] and run[2][2] == word[2]:
            run = (run[0], task, run[2])
            continue
        if run is not None:
            yield run
        run = (task, task, word)
    if run is not None:
        yield run


def _put(connection: sqlite3.Connection, job: int, runs: list[tuple[int, int, Word]]) -> None:
    if connection.execute(queries.BLOCKED_ANY, (job,)).fetchone() is not None:
        cut = IntervalSet((first, last) for first, last, _ in runs).ranges()
        where = [{"job": job, "first": first, "last": last} for first, last in cut]
        for statement in queries.BLOCKED_CUT:
            connection.executemany(statement, where)
    rows = [(job, first, last, *word) for first, last, word in runs if word is not FREE]
    if rows:
        connection.executemany(queries.BLOCKED_ADD, rows)


# --- questions


def condition(connection: sqlite3.Connection, id: int) -> ConditionRow | None:
    found = connection.execute(queries.CONDITION, (id,)).fetchone()
    return None if found is None else _decode(found[0])


def newest(connection: sqlite3.Connection, *, open_only: bool, below: int, limit: int) -> list[ConditionRow]:
    query = queries.CONDITIONS_OPEN if open_only else queries.CONDITIONS
    return [_decode(row) for (row,) in connection.execute(query, (below, limit))]


def next_number(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute(queries.CONDITION_NEXT).fetchone()
    return int(number)


def blocked(connection: sqlite3.Connection, job: int) -> list[tuple[int, Stage, list[Range]]]:
    """By condition and stage, ascending, which tasks of a job wait for it and met it there."""
    waiting: dict[tuple[int, Stage], list[Range]] = {}
    after = -1
    while True:
        where = {"job": job, "after": after, "limit": RANGES_AT_ONCE}
        (text,) = connection.execute(queries.BLOCKED, where).fetchone()
        if text is None:
            return [(*key, ranges) for key, ranges in sorted(waiting.items())]
        for first, last, condition, stage in _decode_ranges(f"[{text}]"):
            ranges = waiting.setdefault((condition, STAGES[stage]), [])
            if ranges and ranges[-1][1] == first - 1:
                first = ranges.pop()[0]
            ranges.append((first, last))
            after = last
