"""Snapshots on SQLite: what is known of a job <-> parts.

Rows go from the cursor into a part and from a part into a statement as they are: a million of them is a matter of seconds.
What is staged stands in the same tables as all else, but of jobs that have no row: nobody finds it. Those jobs are listed in
`restoring`; a file that is opened with such has the rest of somebody's restoring, which is then `leaving`.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from tercel.core.changes import Change, LiveJob, Noted
from tercel.core.conditions import ConditionRow
from tercel.core.files import FileRow
from tercel.core.intervals import Range
from tercel.core.model import JobRow
from tercel.core.reports import Output
from tercel.stores.codes import STAGE_CODES
from tercel.stores.contract import Catalogued
from tercel.stores.snapshot.contract import PART_BYTES, ROWS, Placed, Reading
from tercel.stores.snapshot.filing import Catalogue, file_parts
from tercel.stores.snapshot.records import (
    BlockedPart,
    CallsPart,
    HistoryPart,
    HistoryRow,
    JobsPart,
    LinesPart,
    NotesPart,
    OutcomeRow,
    OutcomesPart,
    Restored,
    SegmentPart,
    SpansPart,
    ValuePart,
)
from tercel.stores.sqlite import conditions, files, jobs, notes, queries, values, writing
from tercel.stores.sqlite import snapshot_queries as own
from tercel.stores.sqlite.chunks import CALLS, LINES
from tercel.stores.sqlite.outcomes import WorkerIds

PAGE = 500
"""Rows fetched at a time: with outputs as large as inline ones may be, 24 MiB."""
_WITH_OUTPUTS = 16
"""Columns of a row that has outputs, at least."""

_encode = msgspec.msgpack.Encoder().encode
_decode_output = msgspec.msgpack.Decoder(Output).decode
_decode_restored = msgspec.msgpack.Decoder(Restored).decode


# --- reading


class SqliteReading(Reading):
    """`live` tells all of a job, given its row."""

    def __init__(
        self, connection: sqlite3.Connection, live: Callable[[sqlite3.Connection, JobRow], LiveJob]
    ) -> None:
        self._connection = connection
        self._live = live

    def job_ids(self, owner: str | None) -> list[int]:
        return [id for (id,) in self._connection.execute(own.JOB_IDS, {"owner": owner})]

    def flow_ids(self, flow: int) -> list[int]:
        return [id for (id,) in self._connection.execute(own.FLOW_IDS, {"flow": flow})]

    def live(self, job: int) -> LiveJob | None:
        row = jobs.job(self._connection, job)
        return None if row is None else self._live(self._connection, row)

    def condition(self, id: int) -> ConditionRow | None:
        return conditions.condition(self._connection, id)

    def value(self, key: str) -> Iterator[ValuePart]:
        count = values.count(self._connection, key)
        if self._connection.execute(own.PIECE_COUNT, (key, count)).fetchone() != (count,):
            return
        for number in range(count):
            (data,) = values.pieces(self._connection, key, number, number)
            yield ValuePart(key, number, data, number == count - 1)

    def parts(self, job: int) -> Iterator[JobsPart]:
        run = self._connection.execute
        for first, blob in run(own.LINE_CHUNKS, (job,)):
            yield LinesPart(job, first, LINES.decode(blob))
        for first, blob in run(own.CALL_CHUNKS, (job,)):
            yield CallsPart(job, first, CALLS.decode(blob))
        for earlier in _pages(run(own.HISTORY, {"job": job})):
            yield HistoryPart(job, self._names(earlier), earlier)
            yield from self._segments(earlier)
        for rows in _pages(run(own.OUTCOMES, {"job": job})):
            yield OutcomesPart(job, self._names(rows), rows)
            yield from self._segments(rows)
        for spans in _pages(run(own.SPANS, (job,))):
            yield SpansPart(job, spans)
        for stage, code in STAGE_CODES.items():
            for blocked in _pages(run(own.BLOCKED, (job, code))):
                yield BlockedPart(job, blocked, stage)
        for told in _pages(run(own.NOTES, (job,))):
            yield NotesPart(job, told)
        row = jobs.job(self._connection, job)
        if row is not None:
            yield from file_parts(_Catalogue(self._connection), row)

    def _names(self, rows: Sequence[OutcomeRow | HistoryRow]) -> dict[int, str]:
        numbers = {row[3] for row in rows}
        return {number: self._connection.execute(own.WORKER, (number,)).fetchone()[0] for number in numbers}

    def _segments(self, rows: Sequence[OutcomeRow | HistoryRow]) -> Iterator[SegmentPart]:
        for row in rows:
            for blob in row[13:16]:
                if blob is not None and has_segments(blob):
                    yield from self.segments(row[1])
                    break

    def segments(self, attempt: int) -> Iterator[SegmentPart]:
        for piece in self._connection.execute(own.SEGMENTS, (attempt,)):
            yield SegmentPart(attempt, *piece)


class _Catalogue(Catalogue):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def named(self, names: Sequence[str]) -> list[Catalogued]:
        return files.named(self._connection, names)

    def from_name(self, *, prefix: str, pattern: str, after: str, limit: int) -> list[FileRow]:
        return files.from_name(self._connection, prefix=prefix, pattern=pattern, after=after, limit=limit)

    def made_by(self, job: int, ranges: Sequence[Range], after: tuple[int, str], limit: int) -> list[FileRow]:
        return files.made_by(self._connection, job, ranges, after, limit)


def has_segments(blob: bytes) -> bool:
    """Of an output, as msgpack. Its last number says so, and is 0 of nearly all: so few need to be decoded.

    Numbers that end with a byte of 0 and are not 0 are written as 0xcd and two bytes.
    """
    return (blob[-1] != 0 or blob[-3:-2] == b"\xcd") and _decode_output(blob).segments > 0


def _pages(cursor: sqlite3.Cursor) -> Iterator[list[Any]]:
    """Up to ROWS rows at a time, or fewer where they are large."""
    gathered: list[Any] = []
    size = 0
    while page := cursor.fetchmany(PAGE):
        gathered += page
        if len(page[0]) >= _WITH_OUTPUTS:
            size += sum([len(blob) for row in page for blob in row[13:16] if blob is not None])
        if len(gathered) >= ROWS or size >= PART_BYTES:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


# --- staging


def stage(
    connection: sqlite3.Connection, workers: WorkerIds, jobs: Sequence[int], parts: Iterable[Placed]
) -> None:
    """Into the open transaction."""
    connection.executemany(own.RESTORING_ADD, [(job,) for job in jobs])
    connection.execute(own.JOB_NUMBER_KEEP, (max(jobs, default=0) + 1,))
    for part, attempt in parts:
        _stage(connection, workers, part, attempt)


def _stage(connection: sqlite3.Connection, workers: WorkerIds, part: JobsPart, attempt: int) -> None:
    many = connection.executemany
    match part:
        case OutcomesPart(job, names, rows):
            numbers = {number: workers[name] for number, name in names.items()}
            _add_outcomes(
                connection,
                [
                    (job, row[0], number, row[2], numbers[row[3]], *row[4:13])
                    for number, row in enumerate(rows, attempt)
                ],
            )
            _add_outputs(connection, rows, attempt)
        case HistoryPart(job, names, rows):
            numbers = {number: workers[name] for number, name in names.items()}
            many(
                queries.HISTORY_ADD,
                [
                    (job, row[0], number, row[2], numbers[row[3]], *row[4:13], *row[16:])
                    for number, row in enumerate(rows, attempt)
                ],
            )
            _add_outputs(connection, rows, attempt)
        case SegmentPart(number, stream, at, data):
            connection.execute(queries.SEGMENT_ADD, (number, stream, at, data))
        case LinesPart(job, first, lines):
            connection.execute(queries.LINES_ADD, (job, first, _encode(lines)))
        case CallsPart(job, first, calls):
            connection.execute(queries.CALLS_ADD, (job, first, _encode(calls)))
            used = {key for call in calls for key in call.values if key.startswith("b")}
            many(own.VALUE_USE, [(job, key) for key in sorted(used)])
        case SpansPart(job, rows):
            many(queries.SPAN_ADD, [(job, *row) for row in rows])
        case BlockedPart(job, rows, stage):
            many(queries.BLOCKED_ADD, [(job, *row, STAGE_CODES[stage]) for row in rows])
        case NotesPart(job, rows):
            notes.add(
                connection,
                [Noted(job, ((first, last),), at, what, note) for first, last, at, what, note in rows],
            )
        case ValuePart():
            connection.execute(queries.VALUE_ADD, (part.key, part.number, part.data, part.last))


def _add_outcomes(connection: sqlite3.Connection, rows: list[tuple[object, ...]]) -> None:
    size = queries.ROWS_AT_ONCE
    whole = len(rows) - len(rows) % size
    connection.executemany(
        queries.OUTCOME_ADD_MANY,
        [tuple(chain.from_iterable(rows[at : at + size])) for at in range(0, whole, size)],
    )
    connection.executemany(queries.OUTCOME_ADD, rows[whole:])


def _add_outputs(
    connection: sqlite3.Connection, rows: Sequence[OutcomeRow | HistoryRow], attempt: int
) -> None:
    kept = [
        (number, *row[13:16])
        for number, row in enumerate(rows, attempt)
        if row[13] is not None or row[14] is not None or row[15] is not None
    ]
    if kept:
        connection.executemany(queries.OUTPUT_ADD, kept)


def adopt(
    connection: sqlite3.Connection,
    workers: WorkerIds,
    jobs: Sequence[int],
    changes: Sequence[Change],
    restored: Restored,
) -> None:
    """Into the open transaction."""
    connection.executemany(own.RESTORING_REMOVE, [(job,) for job in jobs])
    writing.apply(connection, workers, changes)
    connection.execute(own.RESTORED_SET, (restored.id, _encode(restored)))


def unstage(connection: sqlite3.Connection, jobs: Sequence[int]) -> None:
    """Into the open transaction."""
    connection.executemany(own.LEAVING_ADD, [(job,) for job in jobs])
    connection.executemany(own.RESTORING_REMOVE, [(job,) for job in jobs])


def abandon(connection: sqlite3.Connection) -> None:
    """Into the open transaction: what was staged before the store was opened belongs to nobody."""
    connection.execute(own.RESTORING_LEAVE)
    connection.execute(own.RESTORING_CLEAR)


def restored(connection: sqlite3.Connection, id: str) -> Restored | None:
    found = connection.execute(own.RESTORED, (id,)).fetchone()
    return None if found is None else _decode_restored(found[0])
