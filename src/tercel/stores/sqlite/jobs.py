"""Job rows: values <-> columns, and the questions about them.

A spec is kept as msgpack by field name: a field that was added since has its default in an older row.
"""

import sqlite3

import msgspec

from tercel.core.changes import JobAdded, JobEnded, JobResumed
from tercel.core.intervals import Range
from tercel.core.model import JobRow, JobSpec
from tercel.stores.sqlite import queries

JobColumns = tuple[int, str, str, float, int, int, float | None, int, int, int, bytes, bytes]

_encode = msgspec.msgpack.Encoder().encode
_decode_spec = msgspec.msgpack.Decoder(JobSpec).decode
_decode_ranges = msgspec.msgpack.Decoder(tuple[Range, ...]).decode

_ABOVE_ALL = 2**63 - 1


def add(connection: sqlite3.Connection, added: list[JobAdded]) -> None:
    connection.executemany(queries.JOB_ADD, [_columns(change.job) for change in added])


def end(connection: sqlite3.Connection, ends: list[JobEnded | JobResumed]) -> None:
    """In order: a job may end, be resumed and end again within one batch."""
    connection.executemany(
        queries.JOB_END,
        [
            (change.at, change.finished, change.failed, change.cancelled, change.job)
            if isinstance(change, JobEnded)
            else (None, 0, 0, 0, change.job)
            for change in ends
        ],
    )


def job(connection: sqlite3.Connection, number: int) -> JobRow | None:
    columns = connection.execute(queries.JOB, (number,)).fetchone()
    return columns and _row(columns)


def job_by_key(connection: sqlite3.Connection, owner: str, key: str) -> JobRow | None:
    columns = connection.execute(queries.JOB_BY_KEY, (owner, key)).fetchone()
    return columns and _row(columns)


def newest(
    connection: sqlite3.Connection, *, owner: str | None, before: int | None, limit: int
) -> list[JobRow]:
    below = _ABOVE_ALL if before is None else before
    if owner is None:
        found = connection.execute(queries.JOBS, (below, limit))
    else:
        found = connection.execute(queries.JOBS_OF_OWNER, (owner, below, limit))
    return [_row(columns) for columns in found]


def unfinished(connection: sqlite3.Connection) -> list[JobRow]:
    return [_row(columns) for columns in connection.execute(queries.JOBS_UNFINISHED)]


def next_number(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute(queries.JOB_NEXT).fetchone()
    return int(number)


def _columns(row: JobRow) -> JobColumns:
    return (
        row.id,
        row.owner,
        row.key,
        row.submitted_at,
        row.max_running,
        row.has_lines,
        row.ended_at,
        row.finished,
        row.failed,
        row.cancelled,
        _encode(row.spec),
        _encode(row.ranges),
    )


def _row(columns: JobColumns) -> JobRow:
    number, owner, key, submitted_at, max_running, has_lines = columns[:6]
    ended_at, finished, failed, cancelled, spec, ranges = columns[6:]
    return JobRow(
        id=number,
        owner=owner,
        spec=_decode_spec(spec),
        ranges=_decode_ranges(ranges),
        max_running=max_running,
        submitted_at=submitted_at,
        key=key,
        has_lines=bool(has_lines),
        ended_at=ended_at,
        finished=finished,
        failed=failed,
        cancelled=cancelled,
    )
