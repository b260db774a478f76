"""Why a task is not running, in one sentence, with counts: no task waits without a reason that can be seen."""

import math
from collections.abc import Iterator

from tercel.core.blocked import Condition
from tercel.core.conditions import EVERYWHERE, ConditionRow, Place
from tercel.core.demands import why_nobody
from tercel.core.flights import Flight
from tercel.core.graph import Need, edges_of
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.machine import Machine
from tercel.core.model import AfterKind
from tercel.core.presence import Reservation, WorkerState
from tercel.core.sizes import duration, size
from tercel.core.states import Stage, TaskState
from tercel.core.waiting import grown_bytes
from tercel.core.workers import Worker

SHOWN_NEEDS = 5
SHOWN_TESTERS = 3


def why_ready(machine: Machine, job: Job, now: float) -> str:
    """Why the ready tasks of a job are not under way."""
    if job.row.max_running and len(job.flights) >= job.row.max_running:
        return (
            f"its job runs at most {_count(job.row.max_running, 'task')} at a time, and so many are under way"
        )
    if reason := _held_back_by_queue(job):
        return reason
    online = [w for w in machine.workers.values() if w.online]
    if not online:
        away = [
            w for w in machine.workers.values() if w.lost_at is not None and w.lost_at > now and w.flights
        ]
        if away:
            return f"no worker is connected; {_count(len(away), 'worker')} may still come back"
        cleaning = [w for w in machine.workers.values() if w.reported_state is WorkerState.CLEANING]
        if cleaning:
            return (
                f"no worker is connected; {cleaning[0].id} went away while it cleaned up and is expected back"
            )
        return "no worker is connected: start one with `tercel worker` (or run `tercel up`)"
    able = [w for w in online if _meets_all(machine, job, w, now)]
    if not able:
        return why_nobody(job, online, now, machine.ever)
    willing = [w for w in able if w.id not in job.refused_by]
    if not willing:
        worker, reason = next((w.id, job.refused_by[w.id]) for w in able)
        return f"{_of(len(able), len(online))} could run it but refused: {worker}: {reason}"
    if reason := _none_takes(job, willing, len(online), now):
        return reason
    taking = [w for w in willing if not _keeps_out(job, w, now)]
    slot_at = min(machine.throttle.next_slot(w.info.node, now) for w in taking)
    if slot_at > now:
        rates = machine.throttle.rates
        return (
            f"starts are throttled: {rates.starts} in all, {rates.launches} on one node; "
            f"the next goes in {duration(slot_at - now)}"
        )
    return (
        f"waits for a free slot: {_of(len(taking), len(online))} could run it, all busy"
        f"{_saving(job)}{_ahead(machine, job)}"
    )


def _meets_all(machine: Machine, job: Job, worker: Worker, now: float) -> bool:
    kind = job.kind
    if not kind.suits(worker.shape(machine.ready.significant)):
        return False
    return not kind.particular or kind.allows(worker, now) or kind.outlasts(worker, now)


def _none_takes(job: Job, willing: list[Worker], online: int, now: float) -> str:
    """If no worker that could run it takes it: why, how many of each."""
    reasons: dict[str, int] = {}
    for worker in willing:
        reason = _keeps_out(job, worker, now)
        if not reason:
            return ""
        reasons[reason] = reasons.get(reason, 0) + 1
    if len(reasons) == 1:
        return f"{_of(len(willing), online)} could run it, but all of them are {next(iter(reasons))}"
    told = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items(), key=lambda r: -r[1]))
    return f"{_of(len(willing), online)} could run it, but none takes it: {told}"


def _keeps_out(job: Job, worker: Worker, now: float) -> str:
    """Why a worker that could run it is not offered it, if so."""
    reservation = worker.reservation
    if worker.draining:
        return "draining"
    if worker.row.quarantined:
        return "quarantined (`tercel pool --why`)"
    if worker.facts.unhealthy:
        return f"unhealthy: {worker.facts.unhealthy}"
    if reservation is not None and not reservation.lend and not is_for_job(reservation, job):
        return f"reserved for {reserved_for(reservation)}"
    if job.kind.outlasts(worker, now):
        return f"about to leave, and it may take {job.kind.span_s:.0f} s"
    if worker.state is WorkerState.CLEANING:
        return "cleaning up"
    if worker.slots(job.needs) < 1:
        return "short of the cores or memory it needs, as others use them"
    return ""


def is_for_job(reservation: Reservation, job: Job) -> bool:
    return (not reservation.queue or reservation.queue == job.queue.name) and (
        not reservation.user or reservation.user == job.row.owner
    )


def reserved_for(reservation: Reservation) -> str:
    who = [f"queue {reservation.queue}"] if reservation.queue else []
    who += [f"user {reservation.user}"] if reservation.user else []
    return " and ".join(who) or "nobody"


def _saving(job: Job) -> str:
    return f"; {job.saver.id} is being emptied for it" if job.saver is not None else ""


def _held_back_by_queue(job: Job) -> str:
    """Caps are soft: what exceeds them waits."""
    queue, row = job.queue, job.queue.row
    if row.paused:
        return f"its queue {row.name} is {row.paused}; `tercel queue resume {row.name}` lets it go on"
    if not job.admitted:
        return (
            f"its queue {row.name} takes up to {_count(row.max_queued, 'queued task')} at a time and has "
            f"{queue.backlog:,}: this job comes when some of those have ended"
        )
    if row.max_running and queue.account.under_way >= row.max_running:
        most = _count(row.max_running, "task")
        return f"its queue {row.name} runs at most {most} at a time, and so many are under way"
    if row.user_max and job.user.under_way >= row.user_max:
        return (
            f"its queue {row.name} runs at most {_count(row.user_max, 'task')} of one user at a time, and so many of "
            f"{job.row.owner} are under way"
        )
    return ""


def _ahead(machine: Machine, job: Job) -> str:
    others = list(machine.ready.before(job))
    tasks = sum(len(other.ready) for other in others)
    elsewhere = machine.ready.rivals(job)
    shared = (
        f"; {_count(elsewhere, 'other user or queue', 'other users and queues')} share them"
        if elsewhere
        else ""
    )
    if not tasks:
        return f"; it is next in line{shared}"
    return f"; {_count(tasks, 'task')} of {_count(len(others), 'job')} come before it{shared}"


def why_waiting(machine: Machine, job: Job, task: int, now: float) -> str:
    """Why a task waits that is not ready: for its next try, or for others."""
    if (due := job.delayed.get(task)) is not None:
        spent = job.failures.get(task, 0)
        return f"failed {_count(spent, 'time')}; tries again in {max(0.0, due - now):.0f} s"
    if (sizes := job.outgrown.get(task)) is not None:
        return (
            f"{_used(*sizes)}; runs again with {size(grown_bytes(job))} when the rest of the job has started"
        )
    reasons = [_need(need) for need in job.after if need.waits(task)]
    if task in job.unmet:
        reasons += _arrows(machine, job, task)
    return "waits for " + "; and for ".join(reasons)


def _used(had_bytes: int, used_bytes: int) -> str:
    had = size(had_bytes)
    return f"used {size(used_bytes)} of {had}" if used_bytes > had_bytes else f"used more than {had}"


def _need(need: Need) -> str:
    job = need.needed
    what = {
        AfterKind.OK: "to finish",
        AfterKind.ANY: "to end",
        AfterKind.NOTOK: "to end, one of them by failing",
    }[need.kind]
    if need.after.each:
        return f"the task of the same number of job {job.id} {what}"
    if len(need.left) == 1:
        return f"{job.id}.{need.left.first()} {what.partition(',')[0]}"
    return f"{_count(len(need.left), 'task')} of job {job.id} {what}"


def _arrows(machine: Machine, job: Job, task: int) -> list[str]:
    left: list[str] = []
    for _, id, first, last in edges_of(job, IntervalSet([(task, task)])):
        needed = machine.find(id)
        left += [
            f"{id}.{number}"
            for number in range(first, last + 1)
            if needed is not None and number not in needed.finished
        ]
    more = f" and {len(left) - SHOWN_NEEDS:,} more" if len(left) > SHOWN_NEEDS else ""
    return [", ".join(left[:SHOWN_NEEDS]) + more + " to finish"]


def why_blocked(condition: Condition, now: float) -> str:
    """What it waits for, and what becomes of that."""
    row = condition.row
    seen = f", the last saw: {row.note}" if row.note else ""
    met = f"; what the first met: {row.note}" if row.note else ""
    tests = f"{_count(row.asked, 'test')} so far{seen}" if row.asked else f"not tested yet{met}"
    return f"waits for {row.tester} (C{row.id}): {tests}; {what_next(condition, now)}"


def what_next(condition: Condition, now: float) -> str:
    """When it is tested, and given up."""
    row = condition.row
    if row.paused:
        return f"{row.paused}; `tercel blocked resume C{row.id}` lets it be tested"
    if condition.probe:
        return "it is being tested"
    if row.next_test_at <= now and row.place in (Place.SITE, Place.WORKER):
        return f"it is tested when {_examiner(row)} is connected"
    word = "tested again" if row.asked else "first tested"
    test = f"{word} in {duration(max(0.0, row.next_test_at - now))}"
    end = condition.policy.ends_at(row.tests, row.opened_at, row.next_test_at)
    return test if end == math.inf else f"{test}, given up in {duration(end - now)}"


def _examiner(row: ConditionRow) -> str:
    if row.place is Place.WORKER:
        return f"worker {row.where}"
    return "a worker" if row.where in ("", EVERYWHERE) else f"a worker of site {row.where!r}"


def why_paused(job: Job) -> str:
    were_blocked = {fault.tester for fault, tasks in job.postponed.values() if tasks.intersection(job.paused)}
    then = f"; what was blocked waits for {_some(sorted(were_blocked))} again" if were_blocked else ""
    return f"is held: `tercel release {job.id}` lets it go on{then}"


def _some(testers: list[str]) -> str:
    named = ", ".join(testers[:SHOWN_TESTERS])
    return named if len(testers) <= SHOWN_TESTERS else f"{named} or {len(testers) - SHOWN_TESTERS:,} more"


def why_resting(machine: Machine, job: Job, now: float) -> Iterator[tuple[TaskState, int, str]]:
    """All that is neither under way nor ended: how many tasks, and why; those that wait alike together."""
    if job.ready:
        yield TaskState.READY, len(job.ready), why_ready(machine, job, now)
    if job.paused:
        yield TaskState.PAUSED, len(job.paused), why_paused(job)
    for condition, tasks in job.blocks.items():
        yield TaskState.BLOCKED, len(tasks), why_blocked(condition, now)
    if not job.waiting:
        return
    late = IntervalSet((task, task) for task in job.delayed)
    late = late.intersection(job.waiting)
    if late:
        soonest = min(job.delayed[task] for task in late)
        text = f"failed before; the first of them tries again in {max(0.0, soonest - now):.0f} s"
        yield TaskState.WAITING, len(late), text
    large = IntervalSet((task, task) for task in sorted(job.outgrown))
    large = large.intersection(job.waiting)
    if large:
        most, used = max(job.outgrown.values())
        text = f"{_used(most, used)}; run again with {size(grown_bytes(job))} when the rest of the job has started"
        yield TaskState.WAITING, len(large), text
    rest = job.waiting.copy()
    rest.difference_update(late)
    rest.difference_update(large)
    if rest:
        whole = [_need(need) for need in job.after if need.left]
        text = "; and for ".join(whole) if whole else "other tasks that they need, each for its own"
        yield TaskState.WAITING, len(rest), f"wait for {text}"


def why_under_way(flight: Flight, now: float) -> str:
    worker = flight.worker
    where = worker.id
    if not worker.online:
        left = max(0.0, (worker.lost_at or now) - now)
        doing = "was offered to" if flight.state is TaskState.OFFERED else "ran on"
        return f"{doing} {where}, which is away; others get it in {left:.0f} s unless that worker returns"
    if flight.moving is not None:
        doing = (
            "brings the files that it reads" if flight.moving is Stage.STAGE_IN else "delivers what it left"
        )
        return f"is at {where}, which {doing}"
    if flight.running_since is not None:
        return f"runs on {where} since {now - flight.running_since:.0f} s"
    return f"is at {where}, about to start or waiting there for a slot"


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _of(some: int, all_: int) -> str:
    return f"{some:,} of {_count(all_, 'worker')}"
