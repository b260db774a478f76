"""A store that keeps everything in dictionaries: for tests and simulation, and the reference for the others.

What was written waits in a list until it is committed, so a crash is simply the loss of that list:

    write --> pending --commit--> the dictionaries
                 |
               crash --> gone

It is meant to be obviously right and cheap for small jobs; nothing here is tuned for large ones.
"""

from collections import defaultdict
from collections.abc import Sequence
from threading import Lock
from typing import TypeVar

import msgspec

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Blamed,
    Change,
    Concluded,
    ConditionSet,
    Edge,
    JobAdded,
    JobEnded,
    JobResumed,
    JobRevised,
    LeaseClosed,
    Leased,
    LiveJob,
    Loaded,
    Noted,
    OutputKept,
    QueueRemoved,
    QueueSet,
    Reopened,
    ReservationRemoved,
    ReservationSet,
    SpanConcluded,
    TasksBlocked,
    TasksUnblocked,
    TokenAdded,
    TokenRevoked,
    ValueKept,
    WorkerSet,
)
from tercel.core.conditions import ConditionRow
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import Call, JobRow, Lease, QueueRow, Token
from tercel.core.presence import Reservation, WorkerRow
from tercel.core.reports import Outcome
from tercel.core.states import TaskState
from tercel.stores.contract import Store, needed_by
from tercel.stores.memory.tasks import Tasks
from tercel.wire.api import ValueRow

T = TypeVar("T")


class MemoryStore(Store):
    def __init__(self) -> None:
        self._lock = Lock()  # questions come from any thread, also during a commit
        self._pending: list[Change] = []
        self._epoch = 0
        self._jobs: dict[int, JobRow] = {}
        self._unfinished: set[int] = set()
        self._lines: dict[int, tuple[str, ...]] = {}
        self._edges: dict[int, tuple[Edge, ...]] = {}
        self._queues: dict[str, QueueRow] = {}
        self._workers: dict[str, WorkerRow] = {}
        self._reservations: dict[int, Reservation] = {}
        self._calls: dict[int, tuple[Call, ...]] = {}
        self._values: defaultdict[str, dict[int, tuple[bytes, bool]]] = defaultdict(dict)
        """By key and number: a piece, and whether it is the last."""
        self._tasks: defaultdict[int, Tasks] = defaultdict(Tasks)
        self._leases: dict[int, Lease] = {}
        self._segments: defaultdict[tuple[int, str], dict[int, bytes]] = defaultdict(dict)
        self._tokens: dict[str, Token] = {}
        self._conditions: dict[int, ConditionRow] = {}

    def load(self) -> Loaded:
        with self._lock:
            self._pending.clear()
            self._epoch += 1
            jobs = [self._live(self._jobs[job]) for job in sorted(self._unfinished)]
            past = {needed for live in jobs for needed in needed_by(live)} - self._unfinished
            return Loaded(
                epoch=self._epoch,
                next_job=max(self._jobs, default=0) + 1,
                jobs=jobs,
                past=[self._live(self._jobs[job]) for job in sorted(past) if job in self._jobs],
                queues=[queue for _, queue in sorted(self._queues.items())],
                workers=[worker for _, worker in sorted(self._workers.items())],
                reservations=[reservation for _, reservation in sorted(self._reservations.items())],
                leases=[lease for _, lease in sorted(self._leases.items())],
                tokens=[token for _, token in sorted(self._tokens.items())],
                conditions=[row for _, row in sorted(self._conditions.items()) if row.closed_at is None],
                next_condition=max(self._conditions, default=0) + 1,
            )

    def _live(self, job: JobRow) -> LiveJob:
        tasks = self._tasks[job.id]
        return LiveJob(
            job=job,
            finished=tasks.ended(TaskState.FINISHED).ranges(),
            failed=tasks.ended(TaskState.FAILED).ranges(),
            cancelled=tasks.ended(TaskState.CANCELLED).ranges(),
            failures=tasks.failures(),
            skipped=tasks.skipped().ranges(),
            edges=list(self._edges.get(job.id, ())),
            blocked=[(condition, waiting.ranges()) for condition, waiting in sorted(tasks.blocked.items())],
        )

    def write(self, changes: Sequence[Change]) -> None:
        self._pending.extend(changes)

    def commit(self) -> None:
        with self._lock:
            for change in self._pending:
                self._apply(change)
            self._pending.clear()

    def crash(self) -> None:
        """Lose what was written and not committed, as the end of the process would."""
        self._pending.clear()

    def close(self) -> None:
        self._pending.clear()

    def _apply(self, change: Change) -> None:
        match change:
            case Concluded(outcome):
                self._tasks[outcome.report.job].outcomes[outcome.report.task] = _kept(outcome)
            case Leased(lease):
                self._leases[lease.id] = lease
            case LeaseClosed(lease_id):
                self._leases.pop(lease_id, None)
            case AttemptSpent(outcome):
                tasks, report = self._tasks[outcome.report.job], outcome.report
                tasks.history[report.task][report.attempt] = _kept(outcome)
                tasks.spent[report.task].add(report.attempt)
            case AttemptLost(outcome):
                report = outcome.report
                self._tasks[report.job].history[report.task][report.attempt] = _kept(outcome)
            case SpanConcluded():
                self._tasks[change.job].conclude_span(change)
            case Reopened(job, ranges):
                for first, last in ranges:
                    self._tasks[job].reopen(first, last)
            case Blamed(job, attempts, blame):
                for task, attempt in attempts:
                    self._tasks[job].put_blame(task, attempt, blame)
            case WorkerSet(worker):
                self._workers[worker.name] = worker
                if worker == WorkerRow(name=worker.name):
                    del self._workers[worker.name]
            case ReservationSet(reservation):
                self._reservations[reservation.id] = reservation
            case ReservationRemoved(id):
                self._reservations.pop(id, None)
            case JobAdded(row, lines, calls, edges):
                if row.id not in self._jobs:
                    self._keep(row)
                    self._lines[row.id] = lines
                    self._calls[row.id] = calls
                    self._edges[row.id] = edges
            case JobRevised(job, spec, held):
                self._keep(msgspec.structs.replace(self._jobs[job], spec=spec, held=held))
            case QueueSet(queue):
                self._queues[queue.name] = queue
            case QueueRemoved(name):
                self._queues.pop(name, None)
            case JobEnded(job, at, finished, failed, cancelled):
                self._keep(_ended(self._jobs[job], at, finished, failed, cancelled))
            case JobResumed(job):
                self._keep(_ended(self._jobs[job], None, 0, 0, 0))
            case ConditionSet(condition):
                self._conditions[condition.id] = condition
            case TasksBlocked(job, ranges, condition_id):
                self._tasks[job].block(ranges, condition_id)
            case TasksUnblocked(job, ranges):
                self._tasks[job].unblock(ranges)
            case Noted(job):
                self._tasks[job].notes.append(change)
            case OutputKept(attempt, stream, number, data):
                self._segments[attempt, stream][number] = data
            case ValueKept(key, number, data, last):
                self._values[key][number] = (data, last)
            case TokenAdded(token):
                self._tokens[token.id] = token
            case TokenRevoked(token_id):
                self._tokens.pop(token_id, None)

    def _keep(self, row: JobRow) -> None:
        self._jobs[row.id] = row
        if row.ended_at is None:
            self._unfinished.add(row.id)
        else:
            self._unfinished.discard(row.id)

    def job(self, job: int) -> JobRow | None:
        with self._lock:
            return self._jobs.get(job)

    def live(self, job: int) -> LiveJob | None:
        with self._lock:
            return self._live(self._jobs[job]) if job in self._jobs else None

    def dependents(self, job: int) -> list[int]:
        with self._lock:
            rows = list(self._jobs.values())
            return sorted(row.id for row in rows if job in needed_by(self._live(row)))

    def job_by_key(self, owner: str, key: str) -> JobRow | None:
        if not key:
            return None
        with self._lock:
            twins = [row for row in self._jobs.values() if row.owner == owner and row.key == key]
        return min(twins, key=lambda row: row.id, default=None)

    def jobs(self, *, owner: str | None, before: int | None, limit: int) -> list[JobRow]:
        with self._lock:
            rows = [
                self._jobs[job]
                for job in sorted(self._jobs, reverse=True)
                if (before is None or job < before) and (owner is None or self._jobs[job].owner == owner)
            ]
        return rows[: max(limit, 0)]

    def lines(self, job: int, first: int, last: int) -> list[str]:
        with self._lock:
            return _of_tasks(self._jobs.get(job), self._lines.get(job, ()), first, last)

    def calls(self, job: int, first: int, last: int) -> list[Call]:
        with self._lock:
            return _of_tasks(self._jobs.get(job), self._calls.get(job, ()), first, last)

    def outcomes(
        self, job: int, *, ranges: Sequence[Range], states: Sequence[TaskState] = (), limit: int
    ) -> list[Outcome]:
        with self._lock:
            records = [
                record
                for record in self._tasks[job].records(IntervalSet(ranges))
                if not states or record.state in states
            ]
        return sorted(records, key=lambda record: record.report.task)[: max(limit, 0)]

    def history(self, job: int, task: int) -> list[Outcome]:
        with self._lock:
            tasks = self._tasks[job]
            earlier = dict(tasks.history.get(task, {}))
            if task in tasks.outcomes:
                earlier.pop(tasks.outcomes[task].report.attempt, None)
        return [outcome for _, outcome in sorted(earlier.items())]

    def notes(self, job: int, task: int) -> list[Noted]:
        with self._lock:
            return self._tasks[job].notes_of(task)

    def condition(self, id: int) -> ConditionRow | None:
        with self._lock:
            return self._conditions.get(id)

    def conditions(self, *, open_only: bool, before: int | None, limit: int) -> list[ConditionRow]:
        with self._lock:
            rows = [
                row
                for id, row in sorted(self._conditions.items(), reverse=True)
                if (before is None or id < before) and (not open_only or row.closed_at is None)
            ]
        return rows[: max(limit, 0)]

    def ended(self, job: int, state: TaskState) -> list[Range]:
        with self._lock:
            return self._tasks[job].ended(state).ranges()

    def output_segments(
        self, attempt: int, stream: str, *, first: int = 0, last: int | None = None
    ) -> list[bytes]:
        with self._lock:
            pieces = sorted(self._segments.get((attempt, stream), {}).items())
        return [data for number, data in pieces if first <= number and (last is None or number <= last)]

    def values(self, job: int, *, ranges: Sequence[Range], limit: int, most_bytes: int) -> list[ValueRow]:
        rows: list[ValueRow] = []
        size = 0
        for outcome in self.outcomes(job, ranges=ranges, limit=limit):
            if size >= most_bytes:
                break
            report = outcome.report
            kept = report.value
            value = None if kept is None or kept.segments else kept.inline
            length = 0 if kept is None else kept.kept_bytes
            rows.append(
                (report.task, str(outcome.state), str(report.end), report.code, report.note, value, length)
            )
            size += len(value or b"")
        return rows

    def value_piece_count(self, key: str) -> int:
        with self._lock:
            ends = [number for number, (_, last) in self._values.get(key, {}).items() if last]
        return min(ends) + 1 if ends else 0

    def value_pieces(self, key: str, first: int, last: int) -> list[bytes]:
        with self._lock:
            pieces = sorted(self._values.get(key, {}).items())
        return [data for number, (data, _) in pieces if first <= number <= last]


def _of_tasks(row: JobRow | None, items: Sequence[T], first: int, last: int) -> list[T]:
    """Those of tasks first..last, of what each task of a job has."""
    if row is None or not items:
        return []
    found: list[T] = []
    passed = 0  # tasks of the ranges before this one
    for low, high in row.ranges:
        start, end = max(first, low), min(last, high)
        if start <= end:
            found += items[passed + start - low : passed + end - low + 1]
        passed += high - low + 1
    return found


def _kept(outcome: Outcome) -> Outcome:
    """Without what only said where the attempt's task is to go."""
    if not outcome.report.matched and not outcome.report.errno:
        return outcome
    report = msgspec.structs.replace(outcome.report, matched=(), errno="")
    return msgspec.structs.replace(outcome, report=report)


def _ended(row: JobRow, at: float | None, finished: int, failed: int, cancelled: int) -> JobRow:
    return msgspec.structs.replace(row, ended_at=at, finished=finished, failed=failed, cancelled=cancelled)
