"""How tasks ended: one record each, spans for those cancelled without an attempt, and the history behind them.

    Concluded --> outcome --Reopened--> history <-- AttemptSpent
                                           ^--- Blamed: not the task's fault after all
    SpanConcluded --> span --Reopened--> note (nothing ran: a line in its tasks' history)

Each row's output stands in a table of its own, by attempt, and stays there when the row moves.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, islice

import msgspec

from tercel.core.changes import AttemptLost, AttemptSpent, Blamed, Noted, Reopened, SpanConcluded
from tercel.core.intervals import IntervalSet, Range
from tercel.core.reports import End, Outcome, Output, Report
from tercel.core.states import TaskState
from tercel.stores.codes import BLAME_CODES, BLAMES, END_CODES, ENDS, STATE_CODES, STATES
from tercel.stores.contract import noted_span, unattempted
from tercel.stores.sqlite import notes, queries
from tercel.stores.sqlite.ranges import append_islands, united

ALL_STATES = sum(1 << code for code in STATES)
_FINISHED = 1 << STATE_CODES[TaskState.FINISHED]

TASKS_AT_ONCE = 100_000
"""Task numbers read as one row: bounds the memory that a restart takes."""

CACHED_WORKERS = 10_000
"""Pilots come and go under new names for years."""

OutcomeColumns = tuple[
    int,
    int,
    int,
    int,
    str,
    int,
    int,
    float,
    float,
    float,
    float,
    int,
    str | None,
    str | None,
    int | None,
    bytes | None,
    bytes | None,
    bytes | None,
]

_encode = msgspec.msgpack.Encoder().encode
_decode_output = msgspec.msgpack.Decoder(Output).decode
_decode_tasks = msgspec.json.Decoder(list[int]).decode


class WorkerIds(dict[str, int]):
    """Small numbers for workers' names, given when first needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection

    def __missing__(self, name: str) -> int:
        self._connection.execute(queries.WORKER_ADD, (name,))
        (number,) = self._connection.execute(queries.WORKER_ID, (name,)).fetchone()
        if len(self) >= CACHED_WORKERS:
            self.clear()
        self[name] = number
        return int(number)


# --- writing


def conclude(connection: sqlite3.Connection, outcomes: list[Outcome], workers: WorkerIds) -> None:
    rows = _rows(outcomes, workers)
    size = queries.ROWS_AT_ONCE
    whole = len(rows) - len(rows) % size
    if whole:
        connection.executemany(
            queries.OUTCOME_ADD_MANY,
            [tuple(chain.from_iterable(rows[at : at + size])) for at in range(0, whole, size)],
        )
    if whole < len(rows):
        connection.executemany(queries.OUTCOME_ADD, rows[whole:])
    _keep_outputs(connection, outcomes)


def spend(
    connection: sqlite3.Connection, spent: list[AttemptSpent | AttemptLost], workers: WorkerIds
) -> None:
    """In order: an attempt that was thought lost may be reported as failed after all."""
    outcomes = [change.outcome for change in spent]
    counts = [isinstance(change, AttemptSpent) for change in spent]
    blames = [None if outcome.blame is None else BLAME_CODES[outcome.blame] for outcome in outcomes]
    rows = [(*row, *more) for row, *more in zip(_rows(outcomes, workers), blames, counts, strict=True)]
    connection.executemany(queries.HISTORY_ADD, rows)
    _keep_outputs(connection, outcomes)
    for change in spent:
        if isinstance(change, AttemptLost) and change.instead_of:
            _forget(connection, change.outcome.report, change.instead_of)


def _forget(connection: sqlite3.Connection, report: Report, attempt: int) -> None:
    """An earlier attempt at the task of this report, with its output."""
    where = {"job": report.job, "task": report.task, "attempt": attempt}
    if connection.execute(queries.HISTORY_FORGET, where).rowcount:
        for statement in queries.OUTPUT_FORGET:
            connection.execute(statement, where)


def conclude_spans(connection: sqlite3.Connection, spans: list[SpanConcluded]) -> None:
    _cut_spans(connection, [{"job": span.job, "first": span.first, "last": span.last} for span in spans])
    connection.executemany(
        queries.SPAN_ADD,
        [
            (
                span.job,
                span.first,
                span.last,
                STATE_CODES[span.state],
                span.at,
                span.reason,
                END_CODES[span.end],
            )
            for span in spans
        ],
    )


def reopen(connection: sqlite3.Connection, reopened: list[Reopened]) -> None:
    where = [
        {"job": change.job, "first": first, "last": last}
        for change in reopened
        for first, last in change.ranges
    ]
    for statement in queries.REOPEN:
        connection.executemany(statement, where)
    notes.add(connection, _spans_among(connection, where))
    _cut_spans(connection, where)


def _spans_among(connection: sqlite3.Connection, where: list[dict[str, int]]) -> list[Noted]:
    """What is told of those parts of spans that are about to be cut out."""
    cut = {job for job in {place["job"] for place in where} if _has_spans(connection, job)}
    found: list[Noted] = []
    for place in where:
        if place["job"] in cut:
            asked = {**place, "states": ALL_STATES, "limit": -1}
            for start, end, state, at, reason, how in connection.execute(queries.SPANS, asked):
                span = SpanConcluded(place["job"], start, end, STATES[state], at, reason, ENDS[how])
                found.append(noted_span(span, max(place["first"], start), min(place["last"], end)))
    return found


def blame(connection: sqlite3.Connection, blamed: list[Blamed]) -> None:
    connection.executemany(
        queries.BLAME,
        [
            (BLAME_CODES[change.blame], change.job, *attempt)
            for change in blamed
            for attempt in change.attempts
        ],
    )


def _cut_spans(connection: sqlite3.Connection, where: list[dict[str, int]]) -> None:
    # Most jobs have no spans at all, and a job of scattered tasks is cancelled in very many at once.
    cut = {job for job in {place["job"] for place in where} if _has_spans(connection, job)}
    if not cut:
        return
    for statement in queries.SPAN_CUT:
        connection.executemany(statement, [place for place in where if place["job"] in cut])


def _has_spans(connection: sqlite3.Connection, job: int) -> bool:
    return connection.execute(queries.SPAN_ANY, (job,)).fetchone() is not None


def _rows(outcomes: list[Outcome], workers: WorkerIds) -> list[tuple[object, ...]]:
    return [
        (
            report.job,
            report.task,
            report.attempt,
            STATE_CODES[outcome.state],
            workers[outcome.worker],
            END_CODES[report.end],
            report.code,
            report.started_at,
            outcome.ended_at,
            report.wall_s,
            report.cpu_s,
            report.max_rss_bytes,
            report.note or None,
            report.exceeded or None,
        )
        for outcome in outcomes
        for report in (outcome.report,)
    ]


def _keep_outputs(connection: sqlite3.Connection, outcomes: list[Outcome]) -> None:
    reports = [outcome.report for outcome in outcomes]
    rows = [
        (report.attempt, *[kept and _encode(kept) for kept in (report.out, report.err, report.value)])
        for report in reports
        if report.out is not None or report.err is not None or report.value is not None
    ]
    if rows:
        connection.executemany(queries.OUTPUT_ADD, rows)


# --- questions


def outcomes(
    connection: sqlite3.Connection,
    job: int,
    *,
    ranges: Sequence[Range],
    states: Sequence[TaskState],
    limit: int,
) -> list[Outcome]:
    wanted = sum({1 << STATE_CODES[state] for state in states if state in STATE_CODES})
    if not states:
        wanted = ALL_STATES
    query = queries.OUTCOMES if wanted & _FINISHED else queries.OUTCOMES_UNSUCCESSFUL
    found: list[Outcome] = []
    for first, last in IntervalSet(ranges).ranges():
        if len(found) >= limit:
            break
        room = limit - len(found)
        where = {"job": job, "first": first, "last": last, "states": wanted, "limit": room}
        records = [_outcome(columns) for columns in connection.execute(query, where)]
        spans = connection.execute(queries.SPANS, where).fetchall()
        told = (record for span in spans for record in _told(job, span, first, last))
        found += islice(merge(records, told, key=lambda record: record.report.task), room)
    return found


def _told(job: int, span: tuple[int, int, int, float, str, int], first: int, last: int) -> Iterator[Outcome]:
    """A span's tasks among first..last, one by one, as many as are asked for."""
    start, last_of_span, state, at, reason, end = span
    whole = SpanConcluded(job, start, last_of_span, STATES[state], at, reason, ENDS[end])
    for task in range(max(first, start), min(last, last_of_span) + 1):
        yield unattempted(whole, task)


def history(connection: sqlite3.Connection, job: int, task: int) -> list[Outcome]:
    return [_outcome(columns) for columns in connection.execute(queries.HISTORY, {"job": job, "task": task})]


def tried(connection: sqlite3.Connection, job: int, task: int) -> list[tuple[int, str]]:
    where = {"job": job, "task": task}
    return sorted({row for query in queries.TRIED for row in connection.execute(query, where)})


def ended(connection: sqlite3.Connection, job: int, state: TaskState) -> list[Range]:
    if state not in STATE_CODES:
        return []
    code = STATE_CODES[state]
    query = queries.TASKS_FINISHED if state is TaskState.FINISHED else queries.TASKS_UNSUCCESSFUL
    ranges: list[Range] = []
    after = -1
    while True:
        where = {"job": job, "state": code, "after": after, "limit": TASKS_AT_ONCE}
        (numbers,) = connection.execute(query, where).fetchone()
        if numbers is None:
            break
        tasks = _decode_tasks(f"[{numbers}]")
        append_islands(ranges, tasks)
        after = tasks[-1]
    spans = connection.execute(queries.SPANS_ENDED, {"job": job, "state": code}).fetchall()
    return united(ranges, spans)


def ended_since(connection: sqlite3.Connection, job: int, at: float) -> list[Range]:
    where = {"job": job, "at": at}
    ranges: list[Range] = []
    append_islands(ranges, [task for (task,) in connection.execute(queries.TASKS_SINCE, where)])
    return united(ranges, connection.execute(queries.SPANS_SINCE, where).fetchall())


def half_done(connection: sqlite3.Connection, job: int, ranges: Sequence[Range]) -> list[tuple[int, int]]:
    found: Counter[int] = Counter()
    for first, last in ranges:
        where = {"job": job, "first": first, "last": last}
        found.update(attempt for (attempt,) in connection.execute(queries.HALF_DONE, where))
    return sorted(found.items())


def kept_bytes(connection: sqlite3.Connection, job: int) -> int:
    sizes = [connection.execute(statement, {"job": job}).fetchone()[0] for statement in queries.KEPT_BYTES]
    return sum(size or 0 for size in sizes)


def skipped(connection: sqlite3.Connection, job: int) -> list[Range]:
    spans = connection.execute(queries.SPANS_SKIPPED, {"job": job, "end": END_CODES[End.SKIPPED]})
    return united([], spans.fetchall())


def failures(connection: sqlite3.Connection, job: int) -> dict[int, int]:
    return dict(connection.execute(queries.FAILURES, {"job": job}))


def _outcome(columns: OutcomeColumns) -> Outcome:
    job, task, attempt, state, worker, end, code, started_at, ended_at, wall_s, cpu_s, rss, note = columns[
        :13
    ]
    exceeded, blamed, out, err, value = columns[13:]
    report = Report(
        job,
        task,
        attempt,
        ENDS[end],
        code,
        started_at,
        wall_s,
        cpu_s,
        rss,
        note or "",
        None if out is None else _decode_output(out),
        None if err is None else _decode_output(err),
        None if value is None else _decode_output(value),
        exceeded or "",
    )
    return Outcome(STATES[state], worker, ended_at, report, None if blamed is None else BLAMES[blamed])
