"""Values: those that clients uploaded, in pieces; and, of many tasks at once, what their functions returned.

The latter are asked for by the thousand while the manager is busy. So they are read as text, in one row for many tasks
(see the package's header), and become as few objects as can be.
"""

import sqlite3
from collections.abc import Sequence
from itertools import islice

import msgspec

from tercel.core.changes import JobAdded, ValueKept
from tercel.core.intervals import IntervalSet, Range
from tercel.stores.codes import ENDS, STATES
from tercel.stores.contract import values_named
from tercel.stores.sqlite import cleaning_queries, queries
from tercel.stores.sqlite.outcomes import ALL_STATES
from tercel.wire.api import ValueRow

ROWS_AT_ONCE = 1000
"""Read as one text: with values as large as an inline one may be, 32 MiB."""

_decode_output = msgspec.msgpack.Decoder(tuple[int, int, bytes, int]).decode
_STATES = {str(code): str(state) for code, state in STATES.items()}
_ENDS = {str(code): str(end) for code, end in ENDS.items()}


def keep(connection: sqlite3.Connection, kept: list[ValueKept]) -> None:
    connection.executemany(
        queries.VALUE_ADD, [(piece.key, piece.number, piece.data, piece.last) for piece in kept]
    )
    # What was there of it before may have been put down as unnamed long ago.
    connection.executemany(queries.VALUE_ANEW, [(piece.key,) for piece in kept if piece.number == 0])


def use(connection: sqlite3.Connection, added: list[JobAdded]) -> None:
    """Put down which values these jobs refer to."""
    uses = [
        (change.job.id, key) for change in added for key in sorted(values_named(change.job, change.calls))
    ]
    if uses:
        connection.executemany(queries.VALUE_USE, uses)


def count(connection: sqlite3.Connection, key: str) -> int:
    (last,) = connection.execute(queries.VALUE_LAST, (key,)).fetchone()
    return 0 if last is None else int(last) + 1


def pieces(connection: sqlite3.Connection, key: str, first: int, last: int) -> list[bytes]:
    return [data for (data,) in connection.execute(queries.VALUE_PIECES, (key, first, last))]


def unnamed(connection: sqlite3.Connection) -> list[str]:
    return [key for (key,) in connection.execute(cleaning_queries.VALUES_UNNAMED)]


def returned(
    connection: sqlite3.Connection, job: int, *, ranges: Sequence[Range], limit: int, most_bytes: int
) -> list[ValueRow]:
    """In order of task number; ends early where the values are more than `most_bytes`."""
    found: list[ValueRow] = []
    size = 0
    for first, last in IntervalSet(ranges).ranges():
        while first <= last and len(found) < limit and size < most_bytes:
            room = min(limit - len(found), ROWS_AT_ONCE)
            rows = _page(connection, job, first, last, room)
            found += rows
            size += sum(len(row[5]) for row in rows if row[5] is not None)
            if len(rows) < room:
                break
            first = rows[-1][0] + 1
    return found


def _page(connection: sqlite3.Connection, job: int, first: int, last: int, limit: int) -> list[ValueRow]:
    where = {"job": job, "first": first, "last": last, "states": ALL_STATES, "limit": limit}
    (text,) = connection.execute(queries.VALUES_RETURNED, where).fetchone()
    rows = [] if text is None else [_row(*line.split(",")) for line in text.split(";")]
    spans = connection.execute(queries.SPANS, where).fetchall()
    if not spans:
        return rows
    told = (
        (task, str(STATES[state]), str(ENDS[end]), 0, reason, None, 0)
        for start, last_of_span, state, _, reason, end in spans
        for task in range(max(first, start), min(last, last_of_span) + 1)
    )
    return sorted([*rows, *islice(told, limit)])[:limit]


def _row(task: str, state: str, end: str, code: str, note: str, output: str) -> ValueRow:
    said = bytes.fromhex(note).decode() if note else ""
    if not output:
        return int(task), _STATES[state], _ENDS[end], int(code), said, None, 0
    _, kept, inline, segments = _decode_output(bytes.fromhex(output))
    value = None if segments else inline
    return int(task), _STATES[state], _ENDS[end], int(code), said, value, kept
