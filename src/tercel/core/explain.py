"""Why a task is not running, in one sentence, with counts: no task waits without a reason that can be seen."""

from collections.abc import Iterator

from tercel.core.graph import Need, edges_of
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Flight, Job
from tercel.core.machine import Machine
from tercel.core.model import AfterKind, Needs
from tercel.core.sizes import size
from tercel.core.states import TaskState
from tercel.core.waiting import grown_bytes
from tercel.core.workers import Worker

SHOWN_NEEDS = 5


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
        return "no worker is connected: start one with `tercel worker` (or run `tercel up`)"
    able = [w for w in online if job.kind.suits(w.shape(machine.ready.significant))]
    if not able:
        return _nobody_has(job.needs, online)
    willing = [w for w in able if w.id not in job.refused_by]
    if not willing:
        worker, reason = next((w.id, job.refused_by[w.id]) for w in able)
        return f"{_of(len(able), len(online))} could run it but refused: {worker}: {reason}"
    taking = [w for w in willing if not w.draining]
    if not taking:
        return f"{_of(len(willing), len(online))} could run it, but all of them are draining"
    return (
        f"waits for a free slot: {_of(len(taking), len(online))} could run it, all busy{_ahead(machine, job)}"
    )


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


def why_paused(job: Job) -> str:
    return f"is held: `tercel release {job.id}` lets it go on"


def why_resting(machine: Machine, job: Job, now: float) -> Iterator[tuple[TaskState, int, str]]:
    """All that is neither under way nor ended: how many tasks, and why; those that wait alike together."""
    if job.ready:
        yield TaskState.READY, len(job.ready), why_ready(machine, job, now)
    if job.paused:
        yield TaskState.PAUSED, len(job.paused), why_paused(job)
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


def _nobody_has(needs: Needs, online: list[Worker]) -> str:
    parts = []
    most_cpus = max(w.capacity.millicpus for w in online)
    if needs.millicpus > most_cpus:
        parts.append(
            f"cpus ≥ {needs.millicpus / 1000:g}: 0 of {_count(len(online), 'worker')} have them; "
            f"the largest has {most_cpus / 1000:g}"
        )
    most_mem = max(w.capacity.mem_bytes for w in online)
    if needs.mem_bytes > most_mem:
        parts.append(
            f"memory ≥ {size(needs.mem_bytes)}: 0 of {_count(len(online), 'worker')} have it; "
            f"the largest has {size(most_mem)}"
        )
    if not parts and needs.python:
        there = ", ".join(sorted({w.python for w in online}))
        able = any(w.slots(needs) > 0 for w in online)
        if able:
            parts.append(
                f"Python {needs.python}, under which the function was pickled: "
                f"{_count(len(online), 'worker')} run Python {there}"
            )
    if not parts:
        parts.append(
            f"cpus ≥ {needs.millicpus / 1000:g} and memory ≥ {size(needs.mem_bytes)} together: "
            f"0 of {_count(len(online), 'worker')} have both"
        )
    return "waits for " + "; and for ".join(parts)


def why_under_way(flight: Flight, now: float) -> str:
    worker = flight.worker
    where = worker.id
    if not worker.online:
        left = max(0.0, (worker.lost_at or now) - now)
        doing = "was offered to" if flight.state is TaskState.OFFERED else "ran on"
        return f"{doing} {where}, which is away; others get it in {left:.0f} s unless that worker returns"
    if flight.running_since is not None:
        return f"runs on {where} since {now - flight.running_since:.0f} s"
    return f"is at {where}, about to start or waiting there for a slot"


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _of(some: int, all_: int) -> str:
    return f"{some:,} of {_count(all_, 'worker')}"
