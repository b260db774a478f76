"""What a report makes of its task: finished, failed, tried again, blocked, or nothing at all.

Blame: a report that an attempt ended by the worker's doing, and the loss of a worker, return the task to `ready`
and spend none of its retries.
"""

import heapq
from collections.abc import Mapping

import msgspec

from tercel.core.blocking import fault_of, rule_for, seen_by, trigger_of
from tercel.core.books import EPOCH_BITS
from tercel.core.changes import AttemptLost, AttemptSpent, Concluded, Noted
from tercel.core.conditions import Place
from tercel.core.faults import fault_at_worker
from tercel.core.flights import Flight
from tercel.core.ledger import Job
from tercel.core.model import MAX_BACKOFF_S, MAX_MEM_BYTES, BlockRule, JobSpec
from tercel.core.naming import Named
from tercel.core.registering import Registering
from tercel.core.reports import Blame, End, Outcome, Report
from tercel.core.states import TaskEvent, TaskState, next_state
from tercel.core.workers import Worker

NOTED_INTERRUPTIONS = 20
"""Of one task, in its history: a node that fails once a second for weeks must not fill the disk."""
NOTED_BLOCKINGS = 20
"""Of one task, all of them; then every one whose number is a power of two, and the newest, each with how many it stands for.

What is broken and mended in turn for weeks must not fill the disk, least of all with what the attempts print.
"""
REFUSED_S = 300.0
"""How long what a worker's system refused counts against it, if nothing tests that."""
MAX_GROWTHS = 10
"""Of one task: what needs ever more memory has a fault."""


class Judging(Registering):
    def _judge(
        self, worker: Worker, flight: Flight, report: Report, now: float, known: Mapping[int, BlockRule]
    ) -> bool:
        """Move the task by what the report says. True if the task has ended."""
        job, task = flight.job, flight.task
        if report.end in (End.REFUSED, End.INTERRUPTED, End.CANCELLED):
            # CANCELLED too: had we asked for it, the flight would be `ending` and never come here.
            self._take_unrun(worker, flight, report, now)
            return False
        if report.end is End.EXCEEDED and _outgrew(job, flight, report):
            self._take_outgrown(worker, flight, report, now)
            return False
        if report.hitch is not None and self._take_hitched(worker, flight, report, report.hitch, now):
            return False
        if job.row.spec.block_on:
            rule = rule_for(job.row.spec, report, known.get(report.attempt))
            if rule is not None:
                self._take_blocked(worker, flight, report, self._one_of_few(worker, flight, rule), now)
                return False
        event = self._verdict(job, task, report)
        fine = event is TaskEvent.FINISH
        current = job.flights.get(task)
        if not fine and current is not flight and (flight.outdone or current is not None):
            self.changes.append(AttemptLost(Outcome(TaskState.FAILED, worker.id, now, report)))
            self._take_off(flight, again=True)
            return False
        if not fine and self._is_workers_fault(worker, flight, report, now):
            self._take_off(flight, again=True)
            return False
        if report.files and (hitch := self._unregistrable(report, event)) is not None:
            self._take_hitched(worker, flight, report, hitch, now)
            return False
        before = job.state_of(task)
        after = next_state(before, event) if before is not None else None
        if after is None:
            return False
        if report.end is End.EXITED and job.took(report.wall_s) and self._timed:
            job.find_kind()
        job.due += self.worth_of(flight, report.wall_s)
        if not fine:
            self._book_failure(worker, flight, now)
        self._supersede(flight, event, now)
        if event is TaskEvent.TRY_AGAIN:
            self.changes.append(AttemptSpent(Outcome(TaskState.FAILED, worker.id, now, report)))
            self._try_again(job, task, report, after, now)
            return False
        outcome = Outcome(after, worker.id, now, report)
        job.ended_in(after).add(task)
        if job.failures or job.growths or job.interruptions or job.blockings:
            for told in job.tries:
                told.pop(task, None)
        if job.out:
            self._came_through(job, task, now)
        if report.files:
            self._register(job, report, now)
        self.changes.append(Concluded(outcome))
        return True

    def _take_unrun(self, worker: Worker, flight: Flight, report: Report, now: float) -> None:
        """Its worker could not run it, or not to its end: that is no doing of the task's."""
        job, task = flight.job, flight.task
        if report.end is End.INTERRUPTED:
            self._book_interruption(worker, job, report, now)
            if worker.ends_at is not None and report.wall_s > job.long_s:
                job.long_s = report.wall_s  # at least: it goes to nobody who has less time left
                job.find_kind()
            times = job.interruptions.get(task, (0, ""))[0] + 1
            job.interruptions[task] = (times, report.note)
            if report.started_at and times <= NOTED_INTERRUPTIONS:
                self.changes.append(AttemptLost(Outcome(TaskState.CANCELLED, worker.id, now, report)))
        elif report.end is End.REFUSED:
            worker.conduct.fault("refused")
            job.refused_by[worker.id] = report.note
            self._refusals.setdefault(worker.id, set()).add(job.id)
        self._take_off(flight, again=False)
        self._mind_fault(worker, job, task, report, now)
        if report.end is End.REFUSED and report.errno and not job.blocks:
            # Nothing is tested while others can run it, and they may go: it is asked again some time.
            heapq.heappush(self._avoided, (now + REFUSED_S, worker.id, job.id, report.note))

    def _mind_fault(self, worker: Worker, job: Job, task: int, report: Report, now: float) -> None:
        """If nobody else can run it, it waits until this worker can."""
        fault = fault_at_worker(job.row.spec, report, worker.id, worker.info) if report.errno else None
        if fault is not None and task in job.ready and not self._another_for(job, worker):
            self._meet_fault(job, task, fault, report.wall_s, now)
            told = f"{fault.stage} at {worker.id}: {'; '.join(fault.context)}; blocked on {fault.tester}"
            self.changes.append(Noted(job.id, ((task, task),), now, "blocked", told))

    def _take_off(self, flight: Flight, again: bool) -> None:
        """An attempt that settles nothing. `again` as of `_close`."""
        if flight.job.flights.get(flight.task) is flight:
            self._requeue(flight, TaskEvent.LOSE, again)
        else:
            self._forget_stray(flight)
            self._close(flight, again)

    def _take_outgrown(self, worker: Worker, flight: Flight, report: Report, now: float) -> None:
        """It ended for want of memory, and its task is to have more. If the task is not its any more, that is no news."""
        job, task = flight.job, flight.task
        self.changes.append(AttemptLost(Outcome(TaskState.FAILED, worker.id, now, report)))
        if job.flights.get(task) is not flight:
            self._forget_stray(flight)
            self._close(flight, again=True)
            return
        job.due += self.worth_of(flight, report.wall_s)
        self._land(flight, again=True)
        self._outdo_strays(job, task)
        job.rest(task)
        # Of an attempt of an earlier epoch it is not known how much it had: it is tried with what the job asks for now.
        had_bytes = flight.lease.needs.mem_bytes if flight.attempt >> EPOCH_BITS == self.epoch else 0
        self._outgrow(job, task, had_bytes, report.max_rss_bytes)

    def _take_blocked(
        self, worker: Worker, flight: Flight, report: Report, rule: BlockRule, now: float
    ) -> None:
        """Something outside kept it from going on: its task waits for that. If it is not its task any more, that is no news."""
        job, task = flight.job, flight.task
        seen = seen_by(rule, report)
        instead_of, more = _blocked_again(job, task, report.attempt)
        told = msgspec.structs.replace(report, note=_blocked_note(rule, seen, report.note, more))
        outcome = Outcome(TaskState.BLOCKED, worker.id, now, told, Blame.OUTSIDE)
        self.changes.append(AttemptLost(outcome, instead_of))
        if job.flights.get(task) is not flight:
            self._forget_stray(flight)
            self._close(flight, again=True)
            return
        job.due += self.worth_of(flight, report.wall_s)
        self._land(flight, again=True)
        self._outdo_strays(job, task)
        job.rest(task)
        context = (rule.on, seen) if seen else (rule.on,)
        fault = fault_of(job.row.spec, rule, worker.id, worker.info.site, context)
        if task in job.ready:
            condition = self._meet_fault(job, task, fault, report.wall_s, now)
            if len(job.blocks.get(condition, ())) == 1:
                # For the job's history: the others' records say the same.
                begun = f"the first of its job to wait for {fault.tester}"
                self.changes.append(Noted(job.id, ((task, task),), now, "blocked", begun))
        else:
            self._postpone_one(job, task, fault)

    def _one_of_few(self, worker: Worker, flight: Flight, rule: BlockRule) -> BlockRule:
        """What its task is to wait for: what it printed names it, or one of few that others have named. See naming."""
        if not trigger_of(rule.on).known:
            return rule
        job = flight.job

        def is_waited_for(tester: str) -> bool:
            sought = fault_of(
                job.row.spec, msgspec.structs.replace(rule, tester=tester), worker.id, worker.info.site
            )
            known = self._known.get(sought.key(job.row.owner))
            return known is not None and known.id in self.conditions

        where = worker.id if rule.at == Place.WORKER else ""
        named = job.named.setdefault((rule.at, where), Named())
        tester = named.chosen(rule.tester, flight.task, is_waited_for)
        if tester == rule.tester:
            job.borrowed.discard(flight.task)
            return rule
        job.borrowed.add(flight.task)
        return msgspec.structs.replace(rule, tester=tester)

    def _verdict(self, job: Job, task: int, report: Report) -> TaskEvent:
        if report.end is End.EXITED and report.code == 0:
            return TaskEvent.FINISH
        retries, _ = _retry_rule(job.row.spec, report)
        if retries and job.failures.get(task, 0) < retries:
            return TaskEvent.TRY_AGAIN
        return TaskEvent.FAIL

    def _try_again(self, job: Job, task: int, report: Report, after: TaskState, now: float) -> None:
        spent = job.failures.get(task, 0)
        job.failures[task] = spent + 1
        if after is TaskState.WAITING:
            job.waiting.add(task)
            return
        job.rest(task)
        if task not in job.ready:
            return  # it is held
        _, backoff_s = _retry_rule(job.row.spec, report)
        if backoff_s:
            self._delay(job, task, now + min(backoff_s * 2.0 ** min(spent, 64), MAX_BACKOFF_S))

    def _supersede(self, flight: Flight, event: TaskEvent, now: float) -> None:
        """The report of `flight` settles its task, or this try of it: take the task out of wherever it is.

        Attempts that were thought lost are over with the task. While it goes on they may yet tell that they have finished
        it, and nothing else.
        """
        job, task = flight.job, flight.task
        again = event is not TaskEvent.FINISH
        current = job.flights.get(task)
        if current is flight:
            self._land(flight, again)
        else:
            if current is not None:  # a late report: its task is under way again elsewhere
                self._abandon(current)
                self._end_later(current)
            else:
                self._take_out(job, task, now)
            self._forget_stray(flight)
            self._close(flight, again)
        if event is TaskEvent.TRY_AGAIN:
            self._outdo_strays(job, task)
        elif job.strays:
            self._conclude_strays(job, task, again)


def _outgrew(job: Job, flight: Flight, report: Report) -> bool:
    """Whether the attempt ended for want of memory, and its task is to have more."""
    if report.end is not End.EXCEEDED or report.exceeded != "memory" or job.row.spec.mem_growth <= 1:
        return False
    return job.growths.get(flight.task, 0) < MAX_GROWTHS and flight.lease.needs.mem_bytes < MAX_MEM_BYTES


def _blocked_note(rule: BlockRule, seen: str, note: str, more: int) -> str:
    """Of an attempt's record. `seen`: what it printed; `more`: how many like it are told by this one."""
    told = (
        f"blocked on {rule.tester} ({rule.on})"
        + (f": {seen}" if seen else "")
        + (f"; {note}" if note else "")
    )
    return f"after {more:,} more like it: {told}" if more else told


def _blocked_again(job: Job, task: int, attempt: int) -> tuple[int, int]:
    """Of an attempt that is blocked: which it takes the place of (0: none), and how many before it are not kept. See NOTED_BLOCKINGS."""
    if not any(task in out for out in job.out.values()):
        return 0, 0  # nothing has let it go: it is the first time, and most tasks have no other
    times = job.blockings[task] = job.blockings.get(task, 1) + 1
    if times <= NOTED_BLOCKINGS:
        return 0, 0
    before = job.last_blocked.get(task, 0)
    job.last_blocked[task] = attempt
    stays = max(NOTED_BLOCKINGS, 1 << ((times - 1).bit_length() - 1))
    more = times - 1 - stays
    return (before if more else 0), more


def _retry_rule(spec: JobSpec, report: Report) -> tuple[int, float]:
    """(how often a task that ended like this is tried again, the pause before the first retry)."""
    if report.end is End.EXITED:
        for rule in spec.retry_rules:
            if report.code in rule.codes:
                return rule.retries, rule.backoff_s
    return spec.retries, spec.backoff_s
