"""Why a task is not running, in one sentence, with counts: no task waits without a reason that can be seen."""

from tercel.core.ledger import Flight, Job, Worker
from tercel.core.machine import Machine
from tercel.core.model import Needs
from tercel.core.states import TaskState


def why_waiting(machine: Machine, job: Job, now: float) -> str:
    """Why the ready tasks of a job are not under way."""
    if job.row.max_running and len(job.flights) >= job.row.max_running:
        return f"its job runs at most {job.row.max_running} tasks at a time, and so many are under way"
    online = [w for w in machine.workers.values() if w.online]
    if not online:
        away = [
            w for w in machine.workers.values() if w.lost_at is not None and w.lost_at > now and w.flights
        ]
        if away:
            return f"no worker is connected; {_count(len(away), 'worker')} may still come back"
        return "no worker is connected: start one with `tercel worker` (or run `tercel up`)"
    able = [w for w in online if w.could_run(job.needs)]
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


def _ahead(machine: Machine, job: Job) -> str:
    mine = (job.row.spec.priority, job.id)
    others = [j for j in machine.jobs.values() if (j.row.spec.priority, j.id) < mine]
    tasks = sum(len(j.ready) for j in others)
    if not tasks:
        return "; it is next in line"
    return f"; {_count(tasks, 'task')} of {_count(sum(1 for j in others if j.ready), 'job')} come before it"


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


def size(number: int) -> str:
    """1536 MB as people read it: 1.5 GB (binary units)."""
    value = float(number)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1024 or unit == "TB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _of(some: int, all_: int) -> str:
    return f"{some:,} of {_count(all_, 'worker')}"
