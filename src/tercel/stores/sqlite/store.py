"""The contract on SQLite.

service's thread   write: BEGIN, then rows into the transaction      (memory and CPU only)
another thread     commit: COMMIT                                    (the disk)
any thread         questions, each on a connection and a committed state of its own
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from tercel.core.changes import Change, LiveJob, Loaded, Noted
from tercel.core.conditions import ConditionRow
from tercel.core.files import FileRow
from tercel.core.intervals import Range
from tercel.core.model import Call, JobRow, Lease, Role, Token
from tercel.core.reports import Outcome
from tercel.core.states import TaskState
from tercel.stores.contract import Catalogued, Cleaned, Compacted, Old, Store, needed_by, unfinished_only
from tercel.stores.snapshot.contract import Placed, Reading
from tercel.stores.snapshot.records import Restored
from tercel.stores.sqlite import (
    cleaning,
    conditions,
    faults,
    files,
    jobs,
    notes,
    outcomes,
    pool,
    queries,
    snapshots,
    values,
    writing,
)
from tercel.stores.sqlite.chunks import CALLS, LINES, Chunks
from tercel.stores.sqlite.connections import Ownership, Readers, open_writer
from tercel.stores.sqlite.outcomes import WorkerIds
from tercel.wire.api import ValueRow

_MOST = 2**63 - 1
"""The largest number SQLite knows. No id comes near it."""


class SqliteStore(Store):
    """One file (and SQLite's own beside it), owned by one process at a time.

    `factory` makes the writing connection: tests give one that fails when told to.
    """

    def __init__(
        self, path: str | PathLike[str], *, factory: type[sqlite3.Connection] = sqlite3.Connection
    ) -> None:
        self._path = Path(path)
        self._ownership = Ownership(self._path)
        try:
            self._writer = open_writer(self._path, factory)
        except BaseException:
            self._ownership.give_up()
            raise
        self._workers = WorkerIds(self._writer)
        self._readers = Readers(self._path)
        self._lines = Chunks(self._readers, LINES)
        self._calls = Chunks(self._readers, CALLS)
        self._spoilt = False
        """What is in the transaction was to be undone and could not be."""
        self._closed = False

    # --- keeping

    def load(self) -> Loaded:
        self._roll_back()
        try:
            self._writer.execute(queries.BEGIN)
            self._writer.execute(queries.EPOCH_ADVANCE)
            snapshots.abandon(self._writer)
            self._writer.execute(queries.COMMIT)
            return self._loaded()
        except sqlite3.Error as error:
            self._roll_back()
            raise faults.translated(error, self._path) from error

    def _loaded(self) -> Loaded:
        (epoch,) = self._writer.execute(queries.EPOCH).fetchone()
        live = [_live(self._writer, row) for row in jobs.unfinished(self._writer)]
        past = {needed for job in live for needed in needed_by(job)} - {job.job.id for job in live}
        return Loaded(
            epoch=epoch,
            next_job=jobs.next_number(self._writer),
            jobs=live,
            past=[
                _live(self._writer, row)
                for needed in sorted(past)
                if (row := jobs.job(self._writer, needed)) is not None
            ],
            queues=jobs.queues(self._writer),
            workers=pool.workers(self._writer),
            reservations=pool.reservations(self._writer),
            switches=pool.switches(self._writer),
            # Ascending, as all the rest here.
            conditions=conditions.newest(self._writer, open_only=True, below=_MOST, limit=_MOST)[::-1],
            next_condition=conditions.next_number(self._writer),
            leases=[Lease(*columns) for columns in self._writer.execute(queries.LEASES)],
            tokens=[
                Token(id=id, role=Role(role), user=user, digest=digest, created_at=created_at, note=note)
                for id, role, user, digest, created_at, note in self._writer.execute(queries.TOKENS)
            ],
        )

    def write(self, changes: Sequence[Change]) -> None:
        try:
            if self._spoilt:
                self._undo()
            if not self._writer.in_transaction:
                self._writer.execute(queries.BEGIN)
            writing.apply(self._writer, self._workers, changes)
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise faults.translated(error, self._path) from error
            raise

    def commit(self) -> None:
        if self._spoilt or not self._writer.in_transaction:
            return
        try:
            self._writer.execute(queries.COMMIT)
        except sqlite3.Error as error:
            self._roll_back()
            raise faults.translated(error, self._path) from error

    def remove_jobs(self, jobs: Sequence[int], *, ended_before: float) -> list[int]:
        with self._transaction() as connection:
            removed = cleaning.remove(connection, [_known(job) for job in jobs], ended_before=ended_before)
        for chunks in (self._lines, self._calls):
            chunks.forget(set(removed))
        return removed

    def clean(
        self,
        *,
        before: float,
        keep_values: Collection[str] = (),
        unnamed_before: float = 0.0,
        limit: int = 1000,
    ) -> Cleaned:
        with self._transaction() as connection:
            cleaned = cleaning.clean(
                connection,
                before=before,
                keep_values=keep_values,
                unnamed_before=unnamed_before,
                limit=max(limit, 1),
            )
        if cleaned.more:
            return cleaned
        try:
            return cleaning.shrink(self._writer)
        except sqlite3.Error as error:
            raise faults.translated(error, self._path) from error

    def put_unnamed(self, keys: Sequence[str], now: float) -> None:
        with self._transaction() as connection:
            cleaning.put_unnamed(connection, keys, now)

    def compact_history(
        self,
        *,
        ended_before: float,
        keep: int,
        after: tuple[int, int] = (0, -1),
        limit: int = 1000,
    ) -> Compacted:
        with self._transaction() as connection:
            return cleaning.compact(
                connection,
                ended_before=ended_before,
                keep=max(keep, 1),
                after=after,
                limit=max(limit, 1),
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One of its own: durable when left, undone if anything is raised."""
        try:
            if self._spoilt:
                self._undo()
            if self._writer.in_transaction:
                raise RuntimeError("what was written must be committed first")
        except sqlite3.Error as error:
            raise faults.translated(error, self._path) from error
        try:
            self._writer.execute(queries.BEGIN)
            yield self._writer
            self._writer.execute(queries.COMMIT)
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise faults.translated(error, self._path) from error
            raise

    def _roll_back(self) -> None:
        self._spoilt = True
        try:
            self._undo()
        except sqlite3.Error:
            pass  # tried again before anything else is written; until then nothing is committed

    def _undo(self) -> None:
        self._workers.clear()  # numbers given in the transaction go with it
        if self._writer.in_transaction:  # SQLite ends it by itself after some errors
            self._writer.execute(queries.ROLLBACK)
        self._spoilt = False

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._roll_back()
        self._readers.close()
        # Last, and by the one that may write: it brings the log home into the file.
        self._writer.close()
        self._ownership.give_up()

    # --- snapshots

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        with self._readers.snapshot() as connection:
            yield snapshots.SqliteReading(connection, _live)

    def stage(self, jobs: Sequence[int], parts: Sequence[Placed]) -> None:
        with self._transaction() as connection:
            snapshots.stage(connection, self._workers, jobs, parts)

    def adopt(self, jobs: Sequence[int], changes: Sequence[Change], restored: Restored) -> None:
        with self._transaction() as connection:
            snapshots.adopt(connection, self._workers, jobs, changes, restored)

    def unstage(self, jobs: Sequence[int]) -> None:
        with self._transaction() as connection:
            snapshots.unstage(connection, jobs)

    def restored(self, id: str) -> Restored | None:
        with self._readers.snapshot() as connection:
            return snapshots.restored(connection, id)

    # --- questions

    def removable(self, *, ended_before: float, owner: str | None, limit: int) -> list[int]:
        with self._readers.snapshot() as connection:
            return cleaning.removable(
                connection, ended_before=ended_before, owner=owner, limit=_known(max(limit, 0))
            )

    def old(self, *, before: float, keep: int, removed: Collection[int]) -> Old:
        with self._readers.snapshot() as connection:
            return cleaning.old(connection, before=before, keep=max(keep, 1), removed=removed)

    def job(self, job: int) -> JobRow | None:
        with self._readers.snapshot() as connection:
            return jobs.job(connection, _known(job))

    def live(self, job: int) -> LiveJob | None:
        with self._readers.snapshot() as connection:
            row = jobs.job(connection, _known(job))
            return None if row is None else _live(connection, row)

    def dependents(self, job: int) -> list[int]:
        with self._readers.snapshot() as connection:
            return jobs.dependents(connection, _known(job))

    def job_by_key(self, owner: str, key: str) -> JobRow | None:
        with self._readers.snapshot() as connection:
            return jobs.job_by_key(connection, owner, key)

    def jobs(self, *, owner: str | None, before: int | None, limit: int) -> list[JobRow]:
        below = None if before is None else _known(before)
        with self._readers.snapshot() as connection:
            return jobs.newest(connection, owner=owner, before=below, limit=_known(max(limit, 0)))

    def lines(self, job: int, ranges: Sequence[Range]) -> list[str]:
        return self._lines.of(_known(job), _all_known(ranges))

    def calls(self, job: int, ranges: Sequence[Range]) -> list[Call]:
        return self._calls.of(_known(job), _all_known(ranges))

    def outcomes(
        self, job: int, *, ranges: Sequence[Range], states: Sequence[TaskState] = (), limit: int
    ) -> list[Outcome]:
        known = _all_known(ranges)
        with self._readers.snapshot() as connection:
            return outcomes.outcomes(
                connection, _known(job), ranges=known, states=states, limit=_known(max(limit, 0))
            )

    def history(self, job: int, task: int) -> list[Outcome]:
        with self._readers.snapshot() as connection:
            return outcomes.history(connection, _known(job), _known(task))

    def tried(self, job: int, task: int) -> list[tuple[int, str]]:
        with self._readers.snapshot() as connection:
            return outcomes.tried(connection, _known(job), _known(task))

    def notes(self, job: int, task: int) -> list[Noted]:
        with self._readers.snapshot() as connection:
            return notes.of_task(connection, _known(job), _known(task))

    def job_notes(self, job: int, *, since: float = 0.0, skip: int = 0, limit: int) -> list[Noted]:
        with self._readers.snapshot() as connection:
            return notes.of_job(connection, _known(job), since, max(skip, 0), max(limit, 0))

    def half_done(self, job: int, ranges: Sequence[Range]) -> list[tuple[int, int]]:
        known = _all_known(ranges)
        with self._readers.snapshot() as connection:
            return outcomes.half_done(connection, _known(job), known)

    def condition(self, id: int) -> ConditionRow | None:
        with self._readers.snapshot() as connection:
            return conditions.condition(connection, _known(id))

    def conditions(self, *, open_only: bool, before: int | None, limit: int) -> list[ConditionRow]:
        below = _MOST if before is None else _known(before)
        with self._readers.snapshot() as connection:
            return conditions.newest(
                connection, open_only=open_only, below=below, limit=_known(max(limit, 0))
            )

    def ended(self, job: int, state: TaskState) -> list[Range]:
        with self._readers.snapshot() as connection:
            return outcomes.ended(connection, _known(job), state)

    def ended_since(self, job: int, at: float) -> list[Range]:
        with self._readers.snapshot() as connection:
            return outcomes.ended_since(connection, _known(job), at)

    def kept_bytes(self, job: int) -> int:
        with self._readers.snapshot() as connection:
            return outcomes.kept_bytes(connection, _known(job))

    def output_segments(
        self, attempt: int, stream: str, *, first: int = 0, last: int | None = None
    ) -> list[bytes]:
        where = (_known(attempt), stream, _known(first), _MOST if last is None else _known(last))
        with self._readers.snapshot() as connection:
            found = connection.execute(queries.SEGMENTS, where)
            return [data for (data,) in found]

    def values(self, job: int, *, ranges: Sequence[Range], limit: int, most_bytes: int) -> list[ValueRow]:
        known = _all_known(ranges)
        with self._readers.snapshot() as connection:
            return values.returned(connection, _known(job), ranges=known, limit=limit, most_bytes=most_bytes)

    def value_piece_count(self, key: str) -> int:
        with self._readers.snapshot() as connection:
            return values.count(connection, key)

    def unnamed_values(self) -> list[str]:
        with self._readers.snapshot() as connection:
            return values.unnamed(connection)

    def value_pieces(self, key: str, first: int, last: int) -> list[bytes]:
        with self._readers.snapshot() as connection:
            return values.pieces(connection, key, _known(first), _known(last))

    # --- the catalogue

    def files(self, names: Iterable[str]) -> list[Catalogued]:
        with self._readers.snapshot() as connection:
            return files.named(connection, names)

    def files_from(
        self, *, prefix: str = "", pattern: str = "", after: str = "", limit: int
    ) -> list[FileRow]:
        with self._readers.snapshot() as connection:
            return files.from_name(
                connection, prefix=prefix, pattern=pattern, after=after, limit=max(limit, 0)
            )

    def made_by(
        self, job: int, ranges: Sequence[Range], *, after: tuple[int, str] = (-1, ""), limit: int
    ) -> list[FileRow]:
        known, behind = _all_known(ranges), (_known(after[0]), after[1])
        with self._readers.snapshot() as connection:
            return files.made_by(connection, _known(job), known, behind, _known(max(limit, 0)))

    def names_at(self, urls: Iterable[str]) -> dict[str, list[str]]:
        with self._readers.snapshot() as connection:
            return files.names_at(connection, urls)

    def readers(self, name: str, *, limit: int) -> list[int]:
        with self._readers.snapshot() as connection:
            return files.readers(connection, name, max(limit, 0))

    def left_overs(self, job: int, ranges: Sequence[Range]) -> dict[int, list[str]]:
        with self._readers.snapshot() as connection:
            return files.left(connection, _known(job), _all_known(ranges))


def _live(connection: sqlite3.Connection, row: JobRow) -> LiveJob:
    (begun,) = connection.execute(queries.JOB_BEGUN, {"job": row.id}).fetchone()
    if not begun:  # as very many, where jobs have one task each
        return LiveJob(job=row)
    finished, failed, cancelled = (
        outcomes.ended(connection, row.id, state)
        for state in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)
    )
    return LiveJob(
        job=row,
        finished=finished,
        failed=failed,
        cancelled=cancelled,
        failures=outcomes.failures(connection, row.id),
        skipped=outcomes.skipped(connection, row.id),
        edges=jobs.edges(connection, row.id),
        blocked=conditions.blocked(connection, row.id),
        left=unfinished_only(files.left(connection, row.id, row.ranges), finished, failed, cancelled),
    )


def _known(number: int) -> int:
    """A number that SQLite can be asked about: people may ask for anything, and what is absurd is not there."""
    return max(-_MOST, min(number, _MOST))


def _all_known(ranges: Iterable[Range]) -> list[Range]:
    return [(_known(first), _known(last)) for first, last in ranges]
