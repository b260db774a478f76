"""Job rows: values <-> columns, and the questions about them.

A spec is kept as msgpack by field name: a field that was added since has its default in an older row.
"""

import sqlite3

import msgspec

from tercel.core.changes import Edge, JobAdded, JobEnded, JobResumed, JobRevised, QueueRemoved, QueueSet
from tercel.core.conditions import Postponed
from tercel.core.intervals import Range
from tercel.core.model import JobRow, JobSpec, QueueRow
from tercel.stores.sqlite import queries

JobColumns = tuple[
    int, str, str, float, int, int, float | None, int, int, int, bytes, bytes, int, bytes | None, bytes | None
]

_encode = msgspec.msgpack.Encoder().encode
_decode_spec = msgspec.msgpack.Decoder(JobSpec).decode
_decode_ranges = msgspec.msgpack.Decoder(tuple[Range, ...]).decode
_decode_postponed = msgspec.msgpack.Decoder(tuple[Postponed, ...]).decode
_decode_edges = msgspec.msgpack.Decoder(list[Edge]).decode
_decode_queue = msgspec.msgpack.Decoder(QueueRow).decode

_ABOVE_ALL = 2**63 - 1


def add(connection: sqlite3.Connection, added: list[JobAdded]) -> None:
    connection.executemany(queries.JOB_ADD, [_columns(change.job) for change in added])
    needs = [
        (needed, change.job.id)
        for change in added
        if change.edges or change.job.spec.after
        for needed in {after.job for after in change.job.spec.after} | {edge[1] for edge in change.edges}
        if needed != change.job.id
    ]
    if needs:
        connection.executemany(queries.NEED_ADD, needs)
    if with_edges := [(change.job.id, _encode(change.edges)) for change in added if change.edges]:
        connection.executemany(queries.EDGES_ADD, with_edges)


def revise(connection: sqlite3.Connection, revised: list[JobRevised]) -> None:
    connection.executemany(
        queries.JOB_REVISE,
        [
            (_encode(change.spec), _if_any(change.held), _if_any(change.postponed), change.job)
            for change in revised
        ],
    )


def set_queue(connection: sqlite3.Connection, change: QueueSet | QueueRemoved) -> None:
    if isinstance(change, QueueSet):
        connection.execute(queries.QUEUE_SET, (change.queue.name, _encode(change.queue)))
    else:
        connection.execute(queries.QUEUE_REMOVE, (change.name,))


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


def edges(connection: sqlite3.Connection, job: int) -> list[Edge]:
    found = connection.execute(queries.EDGES, (job,)).fetchone()
    return _decode_edges(found[0]) if found is not None else []


def dependents(connection: sqlite3.Connection, job: int) -> list[int]:
    return [number for (number,) in connection.execute(queries.DEPENDENTS, (job,))]


def queues(connection: sqlite3.Connection) -> list[QueueRow]:
    return [_decode_queue(row) for (row,) in connection.execute(queries.QUEUES)]


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
        row.flow,
        _if_any(row.held),
        _if_any(row.postponed),
    )


def _if_any(some: tuple[object, ...]) -> bytes | None:
    return _encode(some) if some else None


def _row(columns: JobColumns) -> JobRow:
    number, owner, key, submitted_at, max_running, has_lines = columns[:6]
    ended_at, finished, failed, cancelled, spec, ranges, flow, held, postponed = columns[6:]
    return JobRow(
        id=number,
        owner=owner,
        spec=_decode_spec(spec),
        ranges=_decode_ranges(ranges),
        max_running=max_running,
        submitted_at=submitted_at,
        key=key,
        has_lines=bool(has_lines),
        flow=flow,
        held=_decode_ranges(held) if held is not None else (),
        postponed=_decode_postponed(postponed) if postponed is not None else (),
        ended_at=ended_at,
        finished=finished,
        failed=failed,
        cancelled=cancelled,
    )
