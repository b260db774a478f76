"""A batch of changes -> few statements with many rows.

Changes of one kind are written together. That is the same as one by one wherever kinds do not meet:

    lease ids are never used again      so all openings may go before all closings
    an end and a resumption of a job    share one statement, in order
    files                               touch no other table, and stay in order among themselves
    blocking and unblocking             touch no other table, and are sorted out among themselves
    a task ends once                    unless it was reopened between: so each Reopened begins a new stretch,
                                        and within a stretch it goes first; so does OutputsDropped
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Blamed,
    Change,
    Concluded,
    ConditionSet,
    FileRegistered,
    FileRemoved,
    JobAdded,
    JobEnded,
    JobResumed,
    JobRevised,
    LeaseClosed,
    Leased,
    LeftRemoved,
    MadeUndone,
    Noted,
    OutputKept,
    OutputsDropped,
    QueueRemoved,
    QueueSet,
    Reopened,
    ReplicaRemoved,
    ReplicaSet,
    ReservationRemoved,
    ReservationSet,
    SpanConcluded,
    SwitchSet,
    TasksBlocked,
    TasksUnblocked,
    TokenAdded,
    TokenRevoked,
    ValueKept,
    WorkerSet,
)
from tercel.stores.sqlite import chunks, conditions, files, jobs, notes, outcomes, pool, queries, values
from tercel.stores.sqlite.outcomes import WorkerIds

_GO_FIRST = (Reopened, OutputsDropped)


class _Stretch:
    """Changes that may be written kind by kind."""

    def __init__(self) -> None:
        self.reopened: list[Reopened] = []
        self.added: list[JobAdded] = []
        self.kept: list[OutputKept] = []
        self.dropped: list[OutputsDropped] = []
        self.values: list[ValueKept] = []
        self.leased: list[Leased] = []
        self.closed: list[LeaseClosed] = []
        self.spent: list[AttemptSpent | AttemptLost] = []
        self.concluded: list[Concluded] = []
        self.blamed: list[Blamed] = []
        self.spans: list[SpanConcluded] = []
        self.ends: list[JobEnded | JobResumed] = []
        self.revised: list[JobRevised] = []
        self.queues: list[QueueSet | QueueRemoved] = []
        self.pool: list[pool.PoolChange] = []
        self.conditions: list[ConditionSet] = []
        self.blocked: list[TasksBlocked | TasksUnblocked] = []
        self.noted: list[Noted] = []
        self.files: list[files.FileChange] = []
        self.tokens: list[TokenAdded | TokenRevoked] = []
        self.takes: dict[type[Change], Callable[[Any], None]] = {
            Reopened: self.reopened.append,
            JobAdded: self.added.append,
            OutputKept: self.kept.append,
            OutputsDropped: self.dropped.append,
            ValueKept: self.values.append,
            Leased: self.leased.append,
            LeaseClosed: self.closed.append,
            AttemptSpent: self.spent.append,
            AttemptLost: self.spent.append,
            Concluded: self.concluded.append,
            Blamed: self.blamed.append,
            SpanConcluded: self.spans.append,
            JobEnded: self.ends.append,
            JobResumed: self.ends.append,
            JobRevised: self.revised.append,
            QueueSet: self.queues.append,
            QueueRemoved: self.queues.append,
            WorkerSet: self.pool.append,
            ReservationSet: self.pool.append,
            ReservationRemoved: self.pool.append,
            SwitchSet: self.pool.append,
            ConditionSet: self.conditions.append,
            TasksBlocked: self.blocked.append,
            TasksUnblocked: self.blocked.append,
            Noted: self.noted.append,
            FileRegistered: self.files.append,
            FileRemoved: self.files.append,
            ReplicaSet: self.files.append,
            ReplicaRemoved: self.files.append,
            MadeUndone: self.files.append,
            LeftRemoved: self.files.append,
            TokenAdded: self.tokens.append,
            TokenRevoked: self.tokens.append,
        }

    @property
    def goes_before(self) -> bool:
        """Whether there is anything that a Reopened (which makes notes) or an OutputsDropped must find written."""
        return bool(self.concluded or self.spent or self.spans or self.noted or self.kept)


def apply(connection: sqlite3.Connection, workers: WorkerIds, changes: Sequence[Change]) -> None:
    """Write changes into the open transaction."""
    stretch = _Stretch()
    takes = stretch.takes
    for change in changes:
        kind = type(change)
        if kind in _GO_FIRST and stretch.goes_before:
            _write(connection, workers, stretch)
            stretch = _Stretch()
            takes = stretch.takes
        takes[kind](change)
    _write(connection, workers, stretch)


def _write(connection: sqlite3.Connection, workers: WorkerIds, stretch: _Stretch) -> None:
    if stretch.reopened:
        outcomes.reopen(connection, stretch.reopened)
    if stretch.dropped:
        dropped = [(attempt,) for change in stretch.dropped for attempt in change.attempts]
        connection.executemany(queries.SEGMENTS_DROP, dropped)
    if stretch.added:
        jobs.add(connection, stretch.added)
        chunks.add(connection, stretch.added)
        values.use(connection, stretch.added)
        files.use(connection, stretch.added)
    if stretch.kept:
        connection.executemany(
            queries.SEGMENT_ADD,
            [(piece.attempt, piece.stream, piece.number, piece.data) for piece in stretch.kept],
        )
    if stretch.values:
        values.keep(connection, stretch.values)
    if stretch.leased:
        connection.executemany(
            queries.LEASE_ADD,
            [
                (lease.id, workers[lease.worker], lease.job, lease.first, lease.last)
                for lease in [change.lease for change in stretch.leased]
            ],
        )
    if stretch.closed:
        connection.executemany(queries.LEASE_CLOSE, [(change.id,) for change in stretch.closed])
    if stretch.spent:
        outcomes.spend(connection, stretch.spent, workers)
    if stretch.concluded:
        outcomes.conclude(connection, [change.outcome for change in stretch.concluded], workers)
    if stretch.blamed:  # of what was reopened or spent before, in this stretch or an earlier one
        outcomes.blame(connection, stretch.blamed)
    if stretch.spans:
        outcomes.conclude_spans(connection, stretch.spans)
    if stretch.ends:
        jobs.end(connection, stretch.ends)
    if stretch.revised:
        jobs.revise(connection, stretch.revised)
        files.use_anew(connection, stretch.revised)
    if stretch.conditions:
        conditions.keep(connection, stretch.conditions)
    if stretch.blocked:
        conditions.block(connection, stretch.blocked)
    if stretch.noted:
        notes.add(connection, stretch.noted)
    if stretch.files:
        files.write(connection, stretch.files)
    for queue in stretch.queues:
        jobs.set_queue(connection, queue)
    for kept in stretch.pool:
        pool.keep(connection, kept)
    for change in stretch.tokens:
        _write_token(connection, change)


def _write_token(connection: sqlite3.Connection, change: TokenAdded | TokenRevoked) -> None:
    if isinstance(change, TokenRevoked):
        connection.execute(queries.TOKEN_REVOKE, (change.id,))
        return
    token = change.token
    connection.execute(
        queries.TOKEN_ADD, (token.id, token.role, token.user, token.digest, token.created_at, token.note)
    )
