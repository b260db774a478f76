"""Removing what is old, in slices so small that nobody waits long for the writer.

    remove   job rows go, at once: nobody finds the job any more. Its number is put down as `leaving`
    clean    a slice of what leaving jobs have left, of uploads that nobody reads, and of notes and conditions that are old
    shrink   gives room back, when there is nothing to clean
    compact  of tasks that were tried very often, the attempts in the middle

A job that were taken apart piece by piece before its row is gone could be retried half-way, and would run again what had
finished.
"""

import sqlite3
from collections.abc import Collection, Sequence

import msgspec

from tercel.core.changes import Noted
from tercel.core.filenames import upload_of
from tercel.core.files import UPLOADED
from tercel.stores.contract import LEFT_OUT, Cleaned, Compacted, Old, note_left_out
from tercel.stores.sqlite import cleaning_queries as queries
from tercel.stores.sqlite import file_queries, files, notes
from tercel.stores.sqlite.queries import VALUE_ANEW

HEAVY = 25
"""A row of up to 256 KiB counts as so many."""
VACUUM_PAGES = 128
"""Given back to the file system by one slice."""
SPARE_PAGES = 1024
"""So many free pages stay: new rows need some soon."""
_INCREMENTAL = 2
COUNTED_AT_ONCE = 10_000
"""Tasks with a history, when it is counted what would go."""


# --- jobs


def removable(
    connection: sqlite3.Connection, *, ended_before: float, owner: str | None, limit: int
) -> list[int]:
    where = {"ended_before": ended_before, "owner": owner, "limit": limit}
    leased = _leased(connection)
    return [job for (job,) in connection.execute(queries.REMOVABLE, where) if job not in leased]


def remove(connection: sqlite3.Connection, jobs: Sequence[int], *, ended_before: float) -> list[int]:
    leased = _leased(connection)
    removed: list[int] = []
    connection.execute(queries.JOB_NUMBER_KEEP)
    for job in jobs:
        where = {"job": job, "ended_before": ended_before}
        if job in leased or connection.execute(queries.REMOVABLE_STILL, where).fetchone() is None:
            continue
        for statement in queries.JOB_REMOVE:
            connection.execute(statement, (job,))
        removed.append(job)
    return removed


def _leased(connection: sqlite3.Connection) -> set[int]:
    return {job for (job,) in connection.execute(queries.LEASED)}


# --- what is left of them


class _Slice:
    """Counts rows against a limit, and what went."""

    def __init__(self, connection: sqlite3.Connection, limit: int) -> None:
        self.connection = connection
        self.room = limit
        self.records = self.segments = self.values = self.conditions = self.notes = self.files = 0

    def take(self, statement: str, where: dict[str, object], weight: int = 1) -> int:
        """Run a statement that deletes as many rows as there is room for."""
        if self.room <= 0:
            return 0
        limit = max(1, self.room // weight)
        gone = self.connection.execute(statement, {**where, "limit": limit}).rowcount
        # As many as it may: there may be more of them, for the next slice.
        self.room = 0 if gone >= limit else self.room - gone * weight
        return gone

    def is_full(self) -> bool:
        return self.room <= 0


class _Stay(msgspec.Struct, frozen=True):
    """The values that are not removed though no job refers to them."""

    keys: Collection[str]
    young: int
    """Those as well that were put down as unnamed since then: a time in the place of a job."""


def clean(
    connection: sqlite3.Connection,
    *,
    before: float,
    keep_values: Collection[str],
    unnamed_before: float,
    limit: int,
) -> Cleaned:
    slice = _Slice(connection, limit)
    stay = _Stay(keep_values, _since(unnamed_before))
    while not slice.is_full():
        found = connection.execute(queries.LEAVING).fetchone()
        if found is None:
            break
        _empty(slice, found[0], stay)
        if not slice.is_full():
            connection.execute(queries.LEFT, found)
            slice.room -= 1
    _unnamed(slice, stay)
    if slice.room == limit:  # all uploads are looked at: not for every slice of something else
        _drop(slice, file_queries.UPLOADS_UNUSED, {"before": unnamed_before})
    slice.notes += slice.take(queries.OLD_NOTES_REMOVE, {"before": before})
    if not slice.is_full():
        connection.execute(queries.CONDITION_NUMBER_KEEP)
        slice.conditions += slice.take(queries.OLD_CONDITIONS_REMOVE, {"before": before})
    return Cleaned(
        records=slice.records,
        segments=slice.segments,
        values=slice.values,
        conditions=slice.conditions,
        notes=slice.notes,
        files=slice.files,
        more=slice.room < limit,
    )


def _empty(slice: _Slice, job: int, stay: _Stay) -> None:
    """All that is in other tables of a job, or as much as there is room for."""
    where: dict[str, object] = {"job": job}
    slice.records += slice.take(queries.SPANS_REMOVE, where)
    slice.take(queries.BLOCKED_REMOVE, where)
    slice.notes += slice.take(queries.NOTES_REMOVE, where)
    slice.take(queries.EDGES_REMOVE, where, HEAVY)
    slice.take(queries.LINES_REMOVE, where, HEAVY)
    slice.take(queries.CALLS_REMOVE, where, HEAVY)
    _records(slice, job, queries.HISTORY_FIRST, queries.HISTORY_REMOVE)
    _records(slice, job, queries.OUTCOMES_FIRST, queries.OUTCOME_REMOVE)
    _values(slice, job, stay)
    slice.take(file_queries.LEFT_CLEAN, where)
    _drop(slice, file_queries.MADE_UNNAMED, where)
    _uploads(slice, job)


def _uploads(slice: _Slice, job: int) -> None:
    """What was uploaded for this job, unless another reads some of the same upload. Its row says until then that it is to go."""
    if slice.is_full():
        return
    for (source,) in slice.connection.execute(
        file_queries.USES, {"job": job, "limit": slice.room}
    ).fetchall():
        where: dict[str, object] = {"job": job, "source": source}
        if source.startswith(UPLOADED):
            upload = upload_of(source)
            where |= {"upload": upload, "behind": f"{upload[:-1]}0"}
            if slice.connection.execute(file_queries.UPLOAD_SHARED, where).fetchone() is None:
                _drop(slice, file_queries.UPLOAD_FILES, where)
        if slice.is_full():
            return
        slice.connection.execute(file_queries.USE_DROP, where)
        slice.room -= 1


def _drop(slice: _Slice, which: str, where: dict[str, object]) -> None:
    """Files with their replicas, as many as there is room for."""
    if slice.is_full():
        return
    found = slice.connection.execute(which, {**where, "limit": slice.room}).fetchall()
    files.remove(slice.connection, [name for (name,) in found])
    slice.room -= len(found)
    slice.files += len(found)


def _records(slice: _Slice, job: int, first: str, remove: str) -> None:
    if slice.is_full():
        return
    found = slice.connection.execute(first, {"job": job, "limit": slice.room}).fetchall()
    _forget(slice, job, found, remove)


def _forget(slice: _Slice, job: int, found: list[tuple[int, int]], remove: str) -> None:
    """Records of (task, attempt) with their outputs; each of them whole or not at all, except for its output."""
    gone: list[tuple[int, int]] = []
    for task, attempt in found:
        slice.segments += slice.take(queries.SEGMENTS_REMOVE, {"attempt": attempt}, HEAVY)
        if slice.is_full():
            break
        gone.append((task, attempt))
        slice.room -= 1
    connection = slice.connection
    connection.executemany(queries.OUTPUT_REMOVE, [(attempt,) for _, attempt in gone])
    connection.executemany(remove, [(job, task, attempt) for task, attempt in gone])
    slice.records += len(gone)


def _values(slice: _Slice, job: int, stay: _Stay) -> None:
    if slice.is_full():
        return
    used = slice.connection.execute(queries.VALUES_USED, {"job": job, "limit": slice.room}).fetchall()
    for (key,) in used:
        _unuse(slice, job, key, stay)
        if slice.is_full():
            return


def _unnamed(slice: _Slice, stay: _Stay) -> None:
    """Those that no job has referred to for so long."""
    if slice.is_full():
        return
    where = {"since": stay.young + 1, "limit": slice.room + len(stay.keys)}
    for since, key in slice.connection.execute(queries.VALUES_LONG_UNNAMED, where).fetchall():
        if key not in stay.keys:
            _unuse(slice, since, key, stay)
        if slice.is_full():
            return


def put_unnamed(connection: sqlite3.Connection, keys: Sequence[str], now: float) -> None:
    connection.executemany(VALUE_ANEW, [(key,) for key in keys])
    connection.executemany(queries.VALUE_PUT_UNNAMED, [{"key": key, "since": _since(now)} for key in keys])


def _since(at: float) -> int:
    """A time in the place of a job."""
    return -max(int(at), 1)


def _unuse(slice: _Slice, job: int, key: str, stay: _Stay) -> None:
    """What nobody else refers to goes first: its row says until then that it is to go."""
    named: dict[str, object] = {"job": job, "key": key}
    others = {**named, "young": stay.young}
    shared = slice.connection.execute(queries.VALUE_SHARED, others).fetchone() is not None
    if not shared and key not in stay.keys:
        slice.values += slice.take(queries.PIECES_REMOVE, named, HEAVY)
    if not slice.is_full():
        slice.connection.execute(queries.VALUE_UNUSE, named)
        slice.room -= 1


def shrink(connection: sqlite3.Connection) -> Cleaned:
    """Outside of a transaction.

    A file that was made by an earlier version cannot be shortened while it is open: its free pages are used again.
    """
    if _number(connection, queries.VACUUM_MODE) != _INCREMENTAL:
        return Cleaned()
    free = _number(connection, queries.FREE_PAGES)
    pages = min(VACUUM_PAGES, free - SPARE_PAGES)
    if pages <= 0:
        return Cleaned()
    # As a script: Python runs only the first step of a statement without columns, and each step frees one page.
    connection.executescript(f"PRAGMA incremental_vacuum({pages})")
    left = _number(connection, queries.FREE_PAGES)
    return Cleaned(
        freed_bytes=(free - left) * _number(connection, queries.PAGE_BYTES), more=left > SPARE_PAGES
    )


def _number(connection: sqlite3.Connection, query: str, where: dict[str, float] | None = None) -> int:
    (number,) = connection.execute(query, where or {}).fetchone()
    return int(number)


# --- beforehand


def old(connection: sqlite3.Connection, *, before: float, keep: int, removed: Collection[int]) -> Old:
    """Counted row by row: beside the writer, so that nobody waits for it."""
    where = {"before": before}
    noted = _number(connection, queries.OLD_NOTES_COUNT, where)
    for job in removed:
        noted += _number(connection, queries.OTHER_NOTES_COUNT, where | {"job": job})
    attempts = 0
    after: tuple[int, int] | None = (0, -1)
    while after is not None:
        found = _histories(connection, after, COUNTED_AT_ONCE)
        for job, task, count in found:
            if count > 2 * keep and job not in removed:
                named = {"job": job, "task": task, "ended_before": before, "keep": keep, "limit": -1}
                attempts += len(connection.execute(queries.HISTORY_MIDDLE, named).fetchall())
        after = _next(found, COUNTED_AT_ONCE)
    return Old(_number(connection, queries.OLD_CONDITIONS_COUNT, where), noted, attempts)


# --- long histories


def compact(
    connection: sqlite3.Connection,
    *,
    ended_before: float,
    keep: int,
    after: tuple[int, int],
    limit: int,
) -> Compacted:
    slice = _Slice(connection, limit)
    found = _histories(connection, after, limit)
    for job, task, count in found:
        if count <= 2 * keep:
            continue
        named = {"job": job, "task": task, "ended_before": ended_before, "keep": keep, "limit": slice.room}
        middle = connection.execute(queries.HISTORY_MIDDLE, named).fetchall()
        before = slice.records
        _forget(slice, job, [(task, attempt) for attempt, _ in middle], queries.HISTORY_REMOVE)
        if gone := slice.records - before:
            _leave_out(connection, job, task, gone, max(at for _, at in middle[:gone]))
        if slice.is_full():  # perhaps in the midst of this task: it is looked at again
            return Compacted(slice.records, slice.segments, (job, task - 1))
    return Compacted(slice.records, slice.segments, _next(found, limit))


def _histories(
    connection: sqlite3.Connection, after: tuple[int, int], limit: int
) -> list[tuple[int, int, int]]:
    """(job, task, how many earlier attempts), of so many tasks."""
    where = {"job": after[0], "task": after[1], "limit": limit}
    return connection.execute(queries.LONG_HISTORIES, where).fetchall()


def _next(found: Sequence[tuple[int, int, int]], limit: int) -> tuple[int, int] | None:
    """Where to go on; None: these were the last."""
    return None if len(found) < limit else found[-1][:2]


def _leave_out(connection: sqlite3.Connection, job: int, task: int, count: int, at: float) -> None:
    """One note tells of all, however often some go."""
    alone = ((task, task),)
    rows = connection.execute(queries.LEFT_OUT_BEFORE, {"job": job, "task": task}).fetchall()
    earlier = [Noted(job, alone, was, LEFT_OUT, text) for _, was, text in rows]
    connection.executemany(queries.NOTE_REMOVE, [(id,) for id, _, _ in rows])
    notes.add(connection, [note_left_out(job, task, count, at, earlier)])
