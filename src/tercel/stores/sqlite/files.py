"""The catalogue: files, their replicas, which jobs read which, and what is left where tasks had delivered it to.

Changes are written in order, those of one kind that follow one another together: a job that registers ten thousand files at
once takes three statements. No URL is both a replica and left over: it would be removed under whoever reads it.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import msgspec

from tercel.core.changes import (
    FileRegistered,
    FileRemoved,
    JobAdded,
    JobRevised,
    LeftRemoved,
    MadeUndone,
    ReplicaRemoved,
    ReplicaSet,
)
from tercel.core.filenames import begins_with, may_mean, names_read
from tercel.core.files import FileRow, ReplicaRow
from tercel.core.intervals import Range
from tercel.core.model import JobSpec
from tercel.stores.contract import Catalogued, matcher
from tercel.stores.sqlite import file_queries as queries

FileChange = FileRegistered | FileRemoved | ReplicaSet | ReplicaRemoved | MadeUndone | LeftRemoved
AT_ONCE = 1000
"""Names asked for in one statement."""
PASSED_AT_ONCE = 10_000
"""Rows read at a time where a pattern may pass over most of them."""
BEHIND_ALL = "\U0010ffff"

_json = msgspec.json.Encoder().encode


# --- writing


def write(connection: sqlite3.Connection, changes: Sequence[FileChange]) -> None:
    """In order."""
    for kind, alike in groupby(changes, type):
        _WRITE[kind](connection, list(alike))


def _register(connection: sqlite3.Connection, changes: list[FileRegistered]) -> None:
    connection.executemany(queries.FILE_ADD, [msgspec.structs.astuple(change.file) for change in changes])
    places = [
        {
            "name": change.file.name,
            "digest": change.file.digest,
            "url": url,
            "at": change.file.made_at,
            "job": change.file.job,
            "task": change.file.task,
        }
        for change in changes
        for url in change.urls
    ]
    connection.executemany(queries.REPLICA_ADD, places)
    connection.executemany(queries.LEFT_KEPT, places)


def _remove(connection: sqlite3.Connection, changes: list[FileRemoved]) -> None:
    remove(connection, [change.name for change in changes])


def remove(connection: sqlite3.Connection, names: Iterable[str]) -> None:
    gone = [{"name": name} for name in names]
    for statement in queries.FILE_REMOVE:
        connection.executemany(statement, gone)


def _set_replicas(connection: sqlite3.Connection, changes: list[ReplicaSet]) -> None:
    rows = [change.replica for change in changes]
    where = [{"name": row.name, "url": row.url, "at": row.verified_at, "bad": row.bad} for row in rows]
    connection.executemany(queries.REPLICA_SET, where)
    connection.executemany(queries.LEFT_KEPT, where)


def _remove_replicas(connection: sqlite3.Connection, changes: list[ReplicaRemoved]) -> None:
    connection.executemany(queries.REPLICA_REMOVE, [(change.name, change.url) for change in changes])


def _undo(connection: sqlite3.Connection, changes: list[MadeUndone]) -> None:
    where = [
        {"job": change.job, "first": first, "last": last}
        for change in changes
        for first, last in change.ranges
    ]
    for one in where:
        for statement in queries.UNDONE:
            connection.execute(statement, one)


def _remove_left(connection: sqlite3.Connection, changes: list[LeftRemoved]) -> None:
    connection.executemany(queries.LEFT_REMOVED, [(change.job, change.task) for change in changes])


_WRITE: dict[type[FileChange], Callable[[sqlite3.Connection, list[Any]], None]] = {
    FileRegistered: _register,
    FileRemoved: _remove,
    ReplicaSet: _set_replicas,
    ReplicaRemoved: _remove_replicas,
    MadeUndone: _undo,
    LeftRemoved: _remove_left,
}


def use(connection: sqlite3.Connection, added: list[JobAdded]) -> None:
    """Put down which names these jobs read."""
    _use(connection, [(change.job.id, change.job.spec) for change in added])


def use_anew(connection: sqlite3.Connection, revised: list[JobRevised]) -> None:
    """Likewise, in the place of what they read before."""
    connection.executemany(queries.USES_DROP, [(change.job,) for change in revised])
    last = {change.job: change.spec for change in revised}
    _use(connection, list(last.items()))


def _use(connection: sqlite3.Connection, jobs: list[tuple[int, JobSpec]]) -> None:
    uses = [
        (job, source, begins_with(source))
        for job, spec in jobs
        if spec.inputs
        for source in sorted(names_read(spec))
    ]
    if uses:
        connection.executemany(queries.USE_ADD, uses)


# --- questions


def named(connection: sqlite3.Connection, names: Iterable[str]) -> list[Catalogued]:
    asked = list(dict.fromkeys(names))
    found: list[Catalogued] = []
    for at in range(0, len(asked), AT_ONCE):
        some = asked[at : at + AT_ONCE]
        where = {"names": _json(some).decode()}
        rows = {columns[0]: _file(columns) for columns in connection.execute(queries.FILES_NAMED, where)}
        places: dict[str, list[ReplicaRow]] = {}
        for name, url, verified_at, bad, made in connection.execute(queries.REPLICAS_NAMED, where):
            row = ReplicaRow(name=name, url=url, verified_at=verified_at, bad=bad, made=bool(made))
            places.setdefault(name, []).append(row)
        found += [
            Catalogued(rows[name], tuple(sorted(places.get(name, ()), key=lambda row: row.url)))
            for name in some
            if name in rows
        ]
    return found


def from_name(
    connection: sqlite3.Connection, *, prefix: str, pattern: str, after: str, limit: int
) -> list[FileRow]:
    matches = matcher(pattern)
    found: list[FileRow] = []
    while len(found) < limit:
        size = PASSED_AT_ONCE if pattern else min(limit, PASSED_AT_ONCE)
        where = {"least": prefix, "after": after, "below": prefix + BEHIND_ALL, "limit": size}
        page = connection.execute(queries.FILES_FROM, where).fetchall()
        found += [_file(columns) for columns in page if matches(columns[0])]
        if len(page) < size:
            break
        after = page[-1][0]
    return found[:limit]


def made_by(
    connection: sqlite3.Connection, job: int, ranges: Sequence[Range], after: tuple[int, str], limit: int
) -> list[FileRow]:
    found: list[FileRow] = []
    for first, last in ranges:
        where = {
            "job": job,
            "first": first,
            "last": last,
            "task": after[0],
            "name": after[1],
            "limit": limit - len(found),
        }
        found += [_file(columns) for columns in connection.execute(queries.FILES_MADE, where)]
    return found


def names_at(connection: sqlite3.Connection, urls: Iterable[str]) -> dict[str, list[str]]:
    asked = list(dict.fromkeys(urls))
    found: dict[str, list[str]] = {}
    for at in range(0, len(asked), AT_ONCE):
        where = {"urls": _json(asked[at : at + AT_ONCE]).decode()}
        for url, name in connection.execute(queries.NAMES_AT, where):
            found.setdefault(url, []).append(name)
    return {url: sorted(names) for url, names in found.items()}


def readers(connection: sqlite3.Connection, name: str, limit: int) -> list[int]:
    beginnings = [name[:length] for length in range(1, len(name) + 1)]
    rows = connection.execute(queries.READERS, {"begins": _json(beginnings).decode()})
    return sorted({job for job, source in rows if may_mean(source, name)}, reverse=True)[:limit]


def left(connection: sqlite3.Connection, job: int, ranges: Sequence[Range]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for first, last in ranges:
        for task, url in connection.execute(queries.LEFT, (job, first, last)):
            found.setdefault(task, []).append(url)
    return found


def _file(columns: tuple[str, int, str, str, float, int, int, int]) -> FileRow:
    name, size_bytes, digest, owner, made_at, job, task, attempt = columns
    return FileRow(
        name=name,
        size_bytes=size_bytes,
        digest=digest,
        owner=owner,
        made_at=made_at,
        job=job,
        task=task,
        attempt=attempt,
    )
