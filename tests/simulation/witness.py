"""Sees everything, and says when a promise of DESIGN.md section 3 is broken.

It knows what really happened at the workers (which attempt began, how it ended) and follows what the manager makes
durable. It keeps two views: `expected`, what the machine has decided so far, and `durable`, what is committed. When
the manager crashes the first falls back to the second.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Blamed,
    Change,
    Concluded,
    Edge,
    JobAdded,
    JobEnded,
    JobRevised,
    LeaseClosed,
    Leased,
    Reopened,
    SpanConcluded,
    TasksBlocked,
    TasksUnblocked,
)
from tercel.core.explain import why_resting, why_under_way, why_waiting
from tercel.core.intervals import IntervalSet
from tercel.core.invariants import violations
from tercel.core.machine import Machine
from tercel.core.model import AfterKind, JobRow, Lease, OnFailure
from tercel.core.presence import Held
from tercel.core.reports import End, Outcome, Report
from tercel.core.states import TERMINAL, Stage, TaskState
from tercel.runners.contract import Launch

from . import registry
from .registry import Registry

if TYPE_CHECKING:
    from .worker import SimWorker
    from .world import World

Task = tuple[int, int]
ISSUES_MOST = 150
OWN_DOING = (End.EXITED, End.SIGNALLED, End.TIMED_OUT)


class Violation(AssertionError):
    """A promise was broken."""


class View:
    """What is known of all tasks, by the changes made so far."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobRow] = {}
        self.records: dict[Task, TaskState] = {}
        """The terminal record of each task that has one."""
        self.spent: dict[Task, int] = {}
        """Retries spent since the task was last reopened."""
        self.counted: set[int] = set()
        """Attempts whose failure was counted, for a retry or for good."""
        self.fence: dict[Task, int] = {}
        """The newest attempt there was when the task was last settled in any way."""
        self.over: dict[Task, int] = {}
        """The newest attempt there was when the task last ended."""
        self.leases: dict[int, Lease] = {}
        self.issued: dict[int, str] = {}
        """Attempt -> worker."""
        self.newest = 0
        self.told: set[int] = set()
        """Attempts that were reported, and did not end their tasks."""
        self.edges: dict[int, tuple[Edge, ...]] = {}
        self.held: dict[int, IntervalSet] = {}
        self.skipped: set[Task] = set()
        self.blocked: dict[Task, tuple[int, Stage]] = {}
        """Which condition a task waits for, and in which stage it met that."""
        self.ever: dict[Task, set[TaskState]] = {}
        """All the ways in which a task has ended so far."""
        self.registry = Registry()

    def copy(self) -> "View":
        twin = View()
        for name, value in vars(self).items():
            setattr(twin, name, value if isinstance(value, int) else _copied(value))
        return twin

    def apply(self, change: Change) -> None:
        self.registry.apply(change)
        match change:
            case Leased(lease):
                self.newest = max(self.newest, lease.id + lease.last - lease.first)
                self.leases[lease.id] = lease
                for at in range(lease.last - lease.first + 1):
                    self.issued[lease.id + at] = lease.worker
            case LeaseClosed(id):
                self.leases.pop(id, None)
            case Concluded(outcome):
                task = outcome.report.job, outcome.report.task
                self.records[task] = outcome.state
                self.fence[task] = self.over[task] = self.newest
                self.ever.setdefault(task, set()).add(outcome.state)
                if outcome.state is TaskState.FAILED:
                    self.counted.add(outcome.report.attempt)
            case AttemptSpent(outcome):
                task = outcome.report.job, outcome.report.task
                self.spent[task] = self.spent.get(task, 0) + 1
                self.fence[task] = self.newest
                self.counted.add(outcome.report.attempt)
                self.told.add(outcome.report.attempt)
            case AttemptLost(outcome) if outcome.report.end is End.EXCEEDED:
                self.told.add(outcome.report.attempt)
            case AttemptLost(outcome) if outcome.state is TaskState.BLOCKED and not outcome.report.code:
                pass  # it has run well, and what it left is kept
            case AttemptLost(outcome) if outcome.report.end in OWN_DOING:  # its worker's fault
                task = outcome.report.job, outcome.report.task
                self.told.add(outcome.report.attempt)
                self.fence[task] = max(self.fence.get(task, 0), outcome.report.attempt)
            case Blamed(job, attempts):
                for number, attempt in attempts:
                    if (job, number) in self.spent and attempt in self.counted:
                        self.spent[job, number] -= 1
            case SpanConcluded(job, first, last, state, _, _, end):
                for number in range(first, last + 1):
                    self.records[job, number] = state
                    self.fence[job, number] = self.over[job, number] = self.newest
                    self.ever.setdefault((job, number), set()).add(state)
                    if end is End.SKIPPED:
                        self.skipped.add((job, number))
            case Reopened(job, ranges):
                for first, last in ranges:
                    for number in range(first, last + 1):
                        del self.records[job, number]
                        self.spent.pop((job, number), None)
                        self.skipped.discard((job, number))
            case TasksBlocked(job, ranges, condition, _, stage):
                self.blocked |= {(job, number): (condition, stage) for number in IntervalSet(ranges)}
            case TasksUnblocked(job, ranges):
                for number in IntervalSet(ranges):
                    del self.blocked[job, number]
            case JobAdded(row, _, _, edges):
                self.jobs[row.id] = row
                self.edges[row.id] = edges
                self.held[row.id] = IntervalSet(row.held)
            case JobRevised(job, spec, held, postponed):
                self.jobs[job] = msgspec.structs.replace(self.jobs[job], spec=spec, postponed=postponed)
                self.held[job] = IntervalSet(held)

    # -- needs, as naively as can be ----------------------------------------------------------------------

    def needs_of(self, task: Task) -> Iterator[tuple[AfterKind, list[Task]]]:
        """How each group of tasks that it needs must end."""
        id, number = task
        for after in self.jobs[id].spec.after:
            if after.each:
                group = [(after.job, number)]
            else:
                group = [(after.job, n) for n in IntervalSet(self.jobs[after.job].ranges)]
            yield self._kind(after.job, after.kind), group
        for waiting, job, first, last in self.edges[id]:
            if waiting == number:
                yield self._kind(job, AfterKind.OK), [(job, n) for n in range(first, last + 1)]

    def _kind(self, job: int, kind: AfterKind) -> AfterKind:
        runs_anyway = kind is AfterKind.OK and self.jobs[job].spec.on_failure is OnFailure.RUN
        return AfterKind.ANY if runs_anyway else kind

    def unmet(self, task: Task) -> str:
        """What it should still wait for, going by all that ever happened."""
        for kind, group in self.needs_of(task):
            for needed in group:
                ends = self.ever.get(needed, set())
                if not ends or (kind is AfterKind.OK and TaskState.FINISHED not in ends):
                    return f"{needed} {kind}"
        return ""

    def skipped_in_vain(self) -> list[Task]:
        """What stayed skipped although all it needs is as it should be in the end."""
        return [
            task
            for task in self.skipped
            if all(
                kind is AfterKind.OK and self.records.get(needed) is TaskState.FINISHED
                for kind, group in self.needs_of(task)
                for needed in group
            )
        ]

    def cause_to_skip(self, task: Task) -> bool:
        """Whether there ever was: what it needed may be retried by the time this is asked."""
        for kind, group in self.needs_of(task):
            ends: set[TaskState] = set().union(*(self.ever.get(needed, set()) for needed in group))
            if kind is AfterKind.OK and ends & {TaskState.FAILED, TaskState.CANCELLED}:
                return True
            if kind is AfterKind.NOTOK and TaskState.FINISHED in ends:
                return True
        return False

    def allowed(self, report: Report) -> int:
        """How many retries a task has that ended like this."""
        spec = self.jobs[report.job].spec
        if report.end is End.EXITED:
            for rule in spec.retry_rules:
                if report.code in rule.codes:
                    return rule.retries
        return spec.retries


def _copied(value: Any) -> Any:
    """One level deeper than a dictionary's own copy: its sets are changed in place."""
    if isinstance(value, dict):
        return {key: part.copy() if isinstance(part, set) else part for key, part in value.items()}
    return value.copy()


class Witness:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.accepted: dict[int, JobRow] = {}
        """Jobs whose submission was acknowledged."""
        self.durable = View()
        self.expected = View()
        self.newest = 0
        """The newest attempt id ever used, also by a manager that crashed before it was durable."""
        self.begun: set[int] = set()
        self.acked: set[int] = set()
        self.cleaned: set[int] = set()
        self.ends: dict[int, Report] = {}
        """How attempts really ended, of those that reached a spool; what was told last ..."""
        self.told: dict[int, list[Report]] = {}
        """... and before: that what they left could not be delivered, until it was."""
        self.excused: set[int] = set()
        """Attempts that the manager told a worker to drop, or that came back when their task was elsewhere."""
        self.issued_of: dict[Task, list[int]] = {}
        self.cancel_asked: set[Task] = set()
        self.skips_to_check: list[Task] = []
        self.retry_asked: set[Task] = set()
        self.rolled_back: set[Task] = set()
        self.outdated: set[int] = set()
        """Lost attempts that used what a rollback undid: what they may yet tell counts for nothing."""
        """Somebody asked for that, however they had ended."""
        self.let_go: set[int] = set()
        """Attempts that were told to end, for others have their tasks."""
        self.given_up: set[Task] = set()
        """Somebody asked that they fail, since they were blocked."""

    def broken(self, text: str) -> None:
        raise Violation(text)

    # -- what happens at the workers ----------------------------------------------------------------------

    def began(self, worker: "SimWorker", launch: Launch) -> None:
        if launch.attempt in self.begun:
            self.broken(f"attempt {launch.attempt} began twice")
        self.begun.add(launch.attempt)
        if self.durable.issued.get(launch.attempt) != worker.name:
            self.broken(f"attempt {launch.attempt} runs on {worker.name} before its lease is durable")

    def cleans(self, launch: Launch) -> None:
        """Only after what has ended, and when that is acknowledged, or nobody wants to hear of it (K13)."""
        if launch.attempt not in self.acked and launch.attempt not in self.excused:
            self.broken(f"attempt {launch.attempt} is cleaned up after before it is acknowledged")
        if launch.attempt in self.cleaned:
            self.broken(f"attempt {launch.attempt} is cleaned up after twice")
        self.cleaned.add(launch.attempt)

    def ended(self, report: Report) -> None:
        self.ends[report.attempt] = report
        self.told.setdefault(report.attempt, []).append(report)

    # -- what the machine decides -------------------------------------------------------------------------

    def returned(self, machine: Machine, held: list[Held]) -> None:
        for one in held:
            job = machine.jobs.get(one.job)
            if job is None:
                continue
            full = job.row.max_running and len(job.flights) >= job.row.max_running
            elsewhere = one.task in job.flights and job.flights[one.task].attempt != one.attempt
            if elsewhere or (full and one.task not in job.flights):
                self.excused.add(one.attempt)

    def dropping(self, machine: Machine, drop: list[int]) -> None:
        """Only what is settled, or under way elsewhere, may be dropped."""
        for attempt in drop:
            if attempt in self.excused:
                continue  # when its worker came back it was so, whatever has happened since
            self.excused.add(attempt)
            task = next((task for task, issued in self.issued_of.items() if attempt in issued), None)
            if task is None:
                self.broken(f"attempt {attempt} is dropped but was never issued")
                return
            job = machine.jobs.get(task[0])
            if job is None or job.state_of(task[1]) in TERMINAL:
                continue
            settled = attempt <= self.expected.over.get(task, 0) or attempt in self.expected.told
            if settled or attempt in self.outdated:
                continue
            current = job.flights.get(task[1])
            full = job.row.max_running and len(job.flights) >= job.row.max_running
            if not full and (current is None or current.attempt == attempt):
                self.broken(f"attempt {attempt} of {task} is dropped although nobody else has the task")

    def ending(self, machine: Machine, attempts: list[int]) -> None:
        """What an attempt left is given up only if its task has ended, or is in other hands."""
        for attempt in attempts:
            task = next((task for task, issued in self.issued_of.items() if attempt in issued), None)
            job = machine.jobs.get(task[0]) if task is not None else None
            if job is None or task is None or attempt in self.outdated or attempt in self.let_go:
                continue
            current = job.flights.get(task[1])
            over = attempt <= self.expected.over.get(task, 0)
            if not over and (current is None or current.attempt == attempt):
                self.broken(f"attempt {attempt} of {task} is ended although nobody else has the task")
            self.excused.add(attempt)
            self.let_go.add(attempt)

    def resumed(self, attempts: list[int]) -> None:
        self.expected.registry.set_aside -= set(attempts)

    def taken(self, machine: Machine, changes: list[Change]) -> None:
        if self.world.has_files:
            for violation in registry.violations(self.expected.registry, changes):
                self.broken(violation)
        blamed = [change for change in changes if isinstance(change, Blamed)]
        self.retry_asked |= {(change.job, task) for change in blamed for task, _ in change.attempts}
        for change in changes:
            self._check(machine, change)
            self.expected.apply(change)
        if any(isinstance(change, Reopened) for change in changes):
            self.skips_to_check += self.expected.skipped  # some may have to be revived
        for task in self.skips_to_check:
            if task in self.expected.skipped and not self.expected.cause_to_skip(task):
                self.broken(f"task {task} is skipped without cause")
        self.skips_to_check.clear()

    def _check(self, machine: Machine, change: Change) -> None:
        match change:
            case Leased(lease):
                self._check_lease(machine, lease)
            case Concluded(outcome):
                self._check_concluded(outcome)
            case AttemptSpent(outcome):
                self._check_failure(outcome)
                task = outcome.report.job, outcome.report.task
                if self.expected.spent.get(task, 0) >= self.expected.allowed(outcome.report):
                    self.broken(f"task {task} is tried again although no retry is left")
            case SpanConcluded(job, first, last, state, _, reason, end):
                for number in range(first, last + 1):
                    self._check_unrecorded((job, number))
                    if (
                        end is End.BLOCKED
                        and state is TaskState.FAILED
                        and self._had_no_patience(job, number)
                    ):
                        continue
                    if state is not TaskState.CANCELLED or not self._deserved(job, number, reason, end):
                        self.broken(f"task {job}.{number} is {state} ({reason}) though nobody asked")
            case Reopened(job, ranges):
                for first, last in ranges:
                    for number in range(first, last + 1):
                        state = self.expected.records.get((job, number))
                        skipped = (job, number) in self.expected.skipped
                        asked = (job, number) in self.retry_asked or (skipped and bool(self.retry_asked))
                        if (job, number) in self.rolled_back and state in TERMINAL:
                            continue
                        if not asked or state not in (TaskState.FAILED, TaskState.CANCELLED):
                            self.broken(f"task {job}.{number}, {state}, is reopened; asked for: {asked}")
            case JobEnded(job, _, finished, failed, cancelled):
                self._check_job_ended(job, (finished, failed, cancelled))

    def _deserved(self, job: int, number: int, reason: str, end: End) -> bool:
        """Whether there was cause to end it without an attempt."""
        if end is End.SKIPPED:
            # Several may be skipped in one go, told in any order: a need may be about to be recorded.
            self.skips_to_check.append((job, number))
            return True
        if reason.startswith("stopped:"):
            failed = [t for t, s in self.expected.records.items() if t[0] == job and s is TaskState.FAILED]
            return bool(failed)
        return (job, number) in self.cancel_asked

    def _had_no_patience(self, job: int, number: int) -> bool:
        """Whether it may fail because what blocked it did not clear."""
        rules = self.expected.jobs[job].spec.block_on
        return (job, number) in self.given_up or any(rule.policy == "every 2s for 9s" for rule in rules)

    def _check_lease(self, machine: Machine, lease: Lease) -> None:
        if self._is_what_is_left(lease):
            return
        if lease.id <= self.newest:
            self.broken(f"attempt id {lease.id} is used again")
        row = self.expected.jobs[lease.job]
        for number in range(lease.first, lease.last + 1):
            task = lease.job, number
            if not any(first <= number <= last for first, last in row.ranges):
                self.broken(f"task {task} does not exist and is offered")
            self._check_unrecorded(task)
            self._check_nobody_holds(machine, task)
            if self.world.has_files:
                self._check_nobody_keeps(lease, task)
            if reason := self.expected.unmet(task):
                self.broken(f"task {task} is offered before what it needs: {reason}")
            if task in self.expected.blocked:
                self.broken(f"task {task} is offered although it is blocked")
            if number in self.expected.held[lease.job]:
                self.broken(f"task {task} is offered although it is held")
            self.newest = lease.id + number - lease.first
            issued = self.issued_of.setdefault(task, [])
            issued.append(self.newest)
            if len(issued) > ISSUES_MOST:
                self.broken(f"task {task} goes round in circles: {len(issued)} attempts")

    def _is_what_is_left(self, lease: Lease) -> bool:
        """Whether it is a part of a lease that was issued before."""
        return all(
            self.expected.issued.get(lease.id + at) == lease.worker
            and lease.id + at in self.issued_of[lease.job, lease.first + at]
            for at in range(lease.last - lease.first + 1)
        )

    def _check_unrecorded(self, task: Task) -> None:
        if task in self.expected.records:
            self.broken(f"task {task} has a terminal record ({self.expected.records[task]}) and goes on")

    def _check_nobody_holds(self, machine: Machine, task: Task) -> None:
        """A task is given to another worker only when the one before was away for the grace time."""
        attempt = max((a for a in self.issued_of.get(task, ()) if a in self.expected.issued), default=0)
        if attempt <= self.expected.fence.get(task, 0) or attempt in self.excused | self.outdated:
            return
        if attempt in self.ends and self.ends[attempt].end not in OWN_DOING:
            return
        if attempt in self.expected.registry.set_aside:
            return  # nobody waits for its worker: see `_check_nobody_keeps`
        name = self.expected.issued[attempt]
        holder = next((worker for worker in self.world.workers if worker.name == name), None)
        if holder is not None and holder.holds(attempt) and self.world.awaited(holder.name):
            self.broken(f"task {task} is given away while {name} holds it (attempt {attempt})")

    def _check_nobody_keeps(self, lease: Lease, task: Task) -> None:
        """Work that is done is not done again (section 3, 2)."""
        over = self.expected.over.get(task, 0)
        settled = (self.excused, self.outdated, self.expected.told)
        done = [
            attempt
            for attempt in self.issued_of.get(task, ())
            if attempt > over and not any(attempt in some for some in settled)
        ]
        if why := registry.run_again(self.world, lease, task[1], done, self.expected.issued):
            self.broken(why)

    def _check_concluded(self, outcome: Outcome) -> None:
        report = outcome.report
        task = report.job, report.task
        self._check_unrecorded(task)
        if outcome.state is TaskState.FAILED:
            self._check_failure(outcome)
            left = self.expected.allowed(report) - self.expected.spent.get(task, 0)
            if left > 0:
                self.broken(f"task {task} failed with {left} retries left")
            return
        if (
            outcome.state is not TaskState.FINISHED
            or report not in self.told.get(report.attempt, ())
            or (report.end, report.code) != (End.EXITED, 0)
        ):
            self.broken(f"task {task} is {outcome.state} by a report that is not true: {report}")
        if bool(report.files) != bool(self.expected.jobs[report.job].spec.outputs):
            self.broken(f"task {task} is finished without what it was to leave, or with more: {report}")
        self._check_reporter(outcome)

    def _check_failure(self, outcome: Outcome) -> None:
        report = outcome.report
        task = report.job, report.task
        self._check_unrecorded(task)
        if report not in self.told.get(report.attempt, ()):
            self.broken(f"task {task}: failure of attempt {report.attempt} never happened")
        if report.end not in OWN_DOING or (report.end is End.EXITED and report.code == 0):
            self.broken(f"task {task} is blamed for {report.end} {report.code}")
        if report.code == 75 and self.expected.jobs[report.job].spec.block_on:
            self.broken(f"task {task} is blamed for what is broken outside")
        if report.attempt in self.expected.counted:
            self.broken(f"task {task}: one failure (attempt {report.attempt}) is counted twice")
        self._check_reporter(outcome)

    def _check_reporter(self, outcome: Outcome) -> None:
        if self.expected.issued.get(outcome.report.attempt) != outcome.worker:
            self.broken(f"attempt {outcome.report.attempt} was not issued to {outcome.worker}")

    def _check_job_ended(self, job: int, counts: tuple[int, int, int]) -> None:
        row = self.expected.jobs[job]
        states = [state for (owner, _), state in self.expected.records.items() if owner == job]
        mine = tuple(
            states.count(state) for state in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)
        )
        if mine != counts or sum(counts) != row.task_count:
            self.broken(f"job {job} ended with counts {counts}, but {mine} of {row.task_count} are known")

    # -- what is durable, and what is said --------------------------------------------------------------

    def committed(self, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, JobAdded):
                self.expected.apply(change)
            self.durable.apply(change)

    def manager_crashed(self) -> None:
        self.expected = self.durable.copy()

    def accepted_job(self, row: JobRow) -> None:
        if row.id not in self.durable.jobs:
            self.broken(f"job {row.id} is acknowledged before it is durable")
        self.accepted[row.id] = row

    def acknowledged(self, attempts: list[int], *, parked: bool = False) -> None:
        """A worker may forget a task's own end only when the task was durably settled after it had begun.

        `parked`: it is not to forget it, but to keep it aside.
        """
        for attempt in attempts:
            self.acked.add(attempt)
            report = self.ends.get(attempt)
            if report is None:
                self.broken(f"attempt {attempt} is acknowledged but was not reported")
            elif parked:
                continue
            elif report.end in OWN_DOING and attempt not in self.let_go:
                fence = self.durable.fence.get((report.job, report.task), 0)
                if attempt > fence and attempt not in self.outdated:
                    self.broken(f"attempt {attempt} is acknowledged, its result is not durable")
                over = self.durable.over.get((report.job, report.task), 0)
                if (
                    (report.end, report.code) == (End.EXITED, 0)
                    and attempt > over
                    and attempt not in self.outdated
                ):
                    self.broken(f"attempt {attempt} finished its task, and is acknowledged for nothing")

    # -- at every step ------------------------------------------------------------------------------------

    def check_machine(self, machine: Machine) -> None:
        if found := violations(machine):
            self.broken("; ".join(found))

    def check_round(self, machine: Machine) -> None:
        """After a round no worker idles that could run what waits, and whatever waits has a reason."""
        for job in machine.jobs.values():
            if job.id not in machine.ready or job.queue.room(job.user) <= 0:
                continue
            for worker in machine.workers.values():
                if (
                    worker.takes_more
                    and not worker.row.quarantined
                    and (worker.reservation is None or worker.reservation.lend)
                    and job.kind.allows(worker, self.world.now)
                    and worker.saving_for in (None, job)
                    and job.kind.suits(worker.shape(machine.ready.significant))
                    and worker.id not in job.refused_by
                    and worker.room(job.needs, 0) > 0
                ):
                    self.broken(f"worker {worker.id} idles while job {job.id} waits")

    def check_caps(self, machine: Machine) -> None:
        """After a round: of no queue more was given out than it may have under way, or anything while it is paused."""
        for change in machine.changes:
            if not isinstance(change, Leased) or change.lease.id <= self.newest:
                continue
            job = machine.jobs[change.lease.job]
            queue, row = job.queue, job.queue.row
            if (
                row.paused
                or 0 < row.max_running < queue.account.under_way
                or 0 < row.user_max < job.user.under_way
            ):
                self.broken(f"{change.lease} is given out beyond what queue {row} allows")

    def check_reasons(self, machine: Machine, now: float) -> None:
        for job in machine.jobs.values():
            told = sum(count for _, count, text in why_resting(machine, job, now) if text)
            if told != sum(len(members) for members in job.resting):
                self.broken(f"job {job.id} waits without a reason")
            for task in job.waiting:
                if not why_waiting(machine, job, task, now).removeprefix("waits for "):
                    self.broken(f"task {job.id}.{task} waits without a reason")
            for flight in job.flights.values():
                if not why_under_way(flight, now):
                    self.broken(f"task {job.id}.{flight.task} is under way without a word")

    def check_restored(self, machine: Machine) -> None:
        """A manager that starts knows exactly what was committed, of all jobs that are not over."""
        for job in machine.jobs.values():
            for first, last in job.row.ranges:
                for number in range(first, last + 1):
                    known = job.state_of(number)
                    record = self.durable.records.get((job.id, number))
                    if known != record and (
                        record is not None or known in (TaskState.FINISHED, TaskState.FAILED)
                    ):
                        self.broken(f"task {job.id}.{number} is {record}, but {known} after a restart")
                    if (known is TaskState.BLOCKED) != ((job.id, number) in self.durable.blocked):
                        self.broken(
                            f"task {job.id}.{number} is {known} after a restart: it was blocked, or was not"
                        )
                    _, met = self.durable.blocked.get((job.id, number), (0, None))
                    if job.stage_of(number) is not met:
                        self.broken(f"task {job.id}.{number} met its fault in {met}, not so after a restart")
                    spent = self.durable.spent.get((job.id, number), 0)
                    if record is None and job.failures.get(number, 0) != spent:
                        self.broken(f"task {job.id}.{number}: spent retries were miscounted at a restart")
        for id in self.accepted:
            over = all(
                (id, number) in self.durable.records
                for first, last in self.accepted[id].ranges
                for number in range(first, last + 1)
            )
            ends_now = any(isinstance(change, JobEnded) and change.job == id for change in machine.changes)
            if (id in machine.jobs or ends_now) == over:
                self.broken(f"job {id} {'is over and comes back' if over else 'is missing'} after a restart")

    def check_end(self) -> None:
        """All is over: every accepted task has its one record, and nothing is left behind."""
        world = self.world
        for id, row in self.accepted.items():
            kept = world.store.outcomes(id, ranges=row.ranges, limit=10**9)
            states = {(id, outcome.report.task): outcome.state for outcome in kept}
            wanted = {task: state for task, state in self.durable.records.items() if task[0] == id}
            if len(kept) != row.task_count or states != wanted:
                self.broken(f"job {id}: its {row.task_count} tasks have {len(kept)} records in the store")
            stored = world.store.job(id)
            if stored is None or stored.ended_at is None:
                self.broken(f"job {id} is over, but the store does not say so")
        if not world.crashed and (left := self.durable.skipped_in_vain()):
            self.broken(f"tasks stayed skipped although what they need finished: {left}")
        if self.durable.blocked or world.store.conditions(open_only=True, before=None, limit=9):
            self.broken("all is over, and something still waits for a condition")
        self._check_catalogue()
        if self.durable.leases:
            self.broken(f"leases were left open: {list(self.durable.leases.values())}")
        machine = world.manager.machine if world.manager else None
        if machine is None or machine.jobs or len(machine.ready):
            self.broken("the machine did not forget what is over")
            return
        for worker in machine.workers.values():
            if worker.flights or worker.used_millicpus or worker.used_mem_bytes:
                self.broken(f"worker {worker.id} is still booked")
        for node in world.workers:
            if node.up and (node.agent.owed or not node.agent.idle):
                self.broken(f"worker {node.name} still owes {list(node.agent.owed)}")
            if node.up and (node.agent.parcels or node.files.parcels):
                self.broken(f"worker {node.name} still keeps what {list(node.files.parcels)} left")

    def _check_catalogue(self) -> None:
        """It has what finished tasks told, and nothing else of theirs."""
        rows = self.world.store.files_from(limit=10**9)
        kept = {(row.job, row.task, row.attempt, row.name, row.digest) for row in rows if row.job}
        told = {
            (*task, int(digest.removeprefix("blake3:"), 16), name, digest)
            for task, made in self.durable.registry.made.items()
            for name, digest in made
        }
        if kept != told:
            self.broken(f"the catalogue has {kept - told} too many, and lacks {told - kept}")
