"""The dictionaries, and what each change does to them."""

from collections import defaultdict

import msgspec

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Blamed,
    Change,
    Concluded,
    ConditionSet,
    Edge,
    FileRegistered,
    FileRemoved,
    JobAdded,
    JobEnded,
    JobResumed,
    JobRevised,
    LeaseClosed,
    Leased,
    LeftRemoved,
    LiveJob,
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
from tercel.core.conditions import ConditionRow, SwitchRow
from tercel.core.model import Call, JobRow, Lease, QueueRow, Token
from tercel.core.presence import Reservation, WorkerRow
from tercel.core.reports import Outcome
from tercel.core.states import TaskState
from tercel.stores.contract import unfinished_only
from tercel.stores.memory.files import Files
from tercel.stores.memory.tasks import Tasks


class Books:
    def __init__(self) -> None:
        self.jobs: dict[int, JobRow] = {}
        self.unfinished: set[int] = set()
        self.lines: dict[int, tuple[str, ...]] = {}
        self.edges: dict[int, tuple[Edge, ...]] = {}
        self.queues: dict[str, QueueRow] = {}
        self.workers: dict[str, WorkerRow] = {}
        self.reservations: dict[int, Reservation] = {}
        self.switches: dict[str, SwitchRow] = {}
        self.calls: dict[int, tuple[Call, ...]] = {}
        self.values: defaultdict[str, dict[int, tuple[bytes, bool]]] = defaultdict(dict)
        """By key and number: a piece, and whether it is the last."""
        self.tasks: defaultdict[int, Tasks] = defaultdict(Tasks)
        self.leases: dict[int, Lease] = {}
        self.segments: defaultdict[tuple[int, str], dict[int, bytes]] = defaultdict(dict)
        self.tokens: dict[str, Token] = {}
        self.conditions: dict[int, ConditionRow] = {}
        self.catalogue = Files()
        self.leaving: dict[int, JobRow] = {}
        """Jobs that were removed and have left something behind."""
        self.unnamed: dict[str, int] = {}
        """Values that no job refers to, and since when that is known."""
        self.next_job = self.next_condition = 1
        """At least: the last may have been removed."""

    def live(self, job: JobRow) -> LiveJob:
        tasks = self.tasks[job.id]
        finished, failed, cancelled = (
            tasks.ended(state).ranges()
            for state in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)
        )
        return LiveJob(
            job=job,
            finished=finished,
            failed=failed,
            cancelled=cancelled,
            failures=tasks.failures(),
            skipped=tasks.skipped().ranges(),
            edges=list(self.edges.get(job.id, ())),
            blocked=[(*key, tasks.blocked[key].ranges()) for key in sorted(tasks.blocked)],
            left=unfinished_only(self.catalogue.left_of(job.id), finished, failed, cancelled),
        )

    def apply(self, change: Change) -> None:
        match change:
            case Concluded(outcome):
                self.tasks[outcome.report.job].outcomes[outcome.report.task] = _kept(outcome)
            case Leased(lease):
                self.leases[lease.id] = lease
            case LeaseClosed(lease_id):
                self.leases.pop(lease_id, None)
            case AttemptSpent(outcome):
                tasks, report = self.tasks[outcome.report.job], outcome.report
                tasks.history[report.task][report.attempt] = _kept(outcome)
                tasks.spent[report.task].add(report.attempt)
            case AttemptLost(outcome, instead_of):
                tasks, report = self.tasks[outcome.report.job], outcome.report
                tasks.history[report.task][report.attempt] = _kept(outcome)
                if tasks.forget(report.task, instead_of):
                    for stream in ("out", "err", "value"):
                        self.segments.pop((instead_of, stream), None)
            case SpanConcluded():
                self.tasks[change.job].conclude_span(change)
            case Reopened(job, ranges):
                for first, last in ranges:
                    self.tasks[job].reopen(first, last)
            case Blamed(job, attempts, blame):
                for task, attempt in attempts:
                    self.tasks[job].put_blame(task, attempt, blame)
            case WorkerSet(worker):
                self.workers[worker.name] = worker
                if worker == WorkerRow(name=worker.name):
                    del self.workers[worker.name]
            case ReservationSet(reservation):
                self.reservations[reservation.id] = reservation
            case ReservationRemoved(id):
                self.reservations.pop(id, None)
            case SwitchSet(switch) if switch.off:
                self.switches[switch.name] = switch
            case SwitchSet(switch):
                self.switches.pop(switch.name, None)
            case JobAdded(row, lines, calls, edges):
                if row.id not in self.jobs:
                    self._keep(row)
                    self.lines[row.id] = lines
                    self.calls[row.id] = calls
                    self.edges[row.id] = edges
            case JobRevised(job, spec, held, postponed):
                self._keep(msgspec.structs.replace(self.jobs[job], spec=spec, held=held, postponed=postponed))
            case QueueSet(queue):
                self.queues[queue.name] = queue
            case QueueRemoved(name):
                self.queues.pop(name, None)
            case JobEnded(job, at, finished, failed, cancelled):
                self._keep(_ended(self.jobs[job], at, finished, failed, cancelled))
            case JobResumed(job):
                self._keep(_ended(self.jobs[job], None, 0, 0, 0))
            case ConditionSet(condition):
                self.conditions[condition.id] = condition
            case TasksBlocked(job, ranges, condition_id, _, stage):
                self.tasks[job].block(ranges, condition_id, stage)
            case TasksUnblocked(job, ranges):
                self.tasks[job].unblock(ranges)
            case Noted(job):
                self.tasks[job].notes.append(change)
            case OutputKept(attempt, stream, number, data):
                self.segments[attempt, stream][number] = data
            case OutputsDropped(attempts):
                for place in self.half_done(set(attempts)):
                    del self.segments[place]
            case ValueKept(key, number, data, last):
                self.values[key][number] = (data, last)
                if number == 0:
                    self.unnamed.pop(key, None)
            case (
                FileRegistered()
                | FileRemoved()
                | ReplicaSet()
                | ReplicaRemoved()
                | MadeUndone()
                | LeftRemoved()
            ):
                self.catalogue.apply(change)
            case TokenAdded(token):
                self.tokens[token.id] = token
            case TokenRevoked(token_id):
                self.tokens.pop(token_id, None)

    def half_done(self, attempts: set[int]) -> list[tuple[int, str]]:
        """Pieces of output of these attempts that no record tells of."""
        told = {
            (record.report.attempt, stream)
            for tasks in self.tasks.values()
            for record in tasks.all_records()
            for stream in ("out", "err", "value")
            if getattr(record.report, stream) is not None
        }
        return [place for place in self.segments if place[0] in attempts and place not in told]

    def _keep(self, row: JobRow) -> None:
        self.jobs[row.id] = row
        if row.ended_at is None:
            self.unfinished.add(row.id)
        else:
            self.unfinished.discard(row.id)


def _kept(outcome: Outcome) -> Outcome:
    """Without what only said where the attempt's task is to go, and what is in the catalogue."""
    report = outcome.report
    if not (report.matched or report.errno or report.said or report.seen or report.files or report.hitch):
        return outcome
    report = msgspec.structs.replace(report, matched=(), errno="", said="", seen=(), files=(), hitch=None)
    return msgspec.structs.replace(outcome, report=report)


def _ended(row: JobRow, at: float | None, finished: int, failed: int, cancelled: int) -> JobRow:
    return msgspec.structs.replace(row, ended_at=at, finished=finished, failed=failed, cancelled=cancelled)
