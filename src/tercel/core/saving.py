"""A large task is not passed over for ever by small ones: a worker is emptied for it.

Where the next task in line does not fit into the room that is left, others that do may go before it: that is what keeps
workers busy. After PATIENCE_S of that, a worker that is large enough is saved for it: what comes after it in line is not
given to that worker any more, until the large one runs there; unless it does not delay it (backfill):

    it will be over before there could be room for the large one, or
    it takes nothing that the large one waits for, and leaves all else that that needs

One worker at a time for one job, one job at a time for one worker. Should another be empty sooner, that one is saved
instead; one that takes nothing any more (it left, drains, is ill) is saved for nobody.
"""

from tercel.core.flights import Flight
from tercel.core.ledger import Job
from tercel.core.workers import Worker

PATIENCE_S = 5.0
NEVER = float("inf")


def save(worker: Worker, job: Job) -> None:
    worker.saving_for, job.saver = job, worker


def stop_saving(job: Job) -> Worker | None:
    """It is under way, or not there any more, or the worker is of no use to it. Returns who is free for others again."""
    worker = job.saver
    if worker is not None:
        worker.saving_for = job.saver = None
    return worker


def passed_over(worker: Worker, job: Job, now: float) -> Worker | None:
    """It would fit this worker, but not beside what runs there. Returns who is not saved for it any more, if anybody."""
    if job.passed_at is None:
        job.passed_at = now
    if now - job.passed_at < PATIENCE_S or worker.saving_for is not None or worker.slots(job.needs) < 1:
        return None
    freed = None
    if job.saver is not None:
        if _is_of_use(job.saver, job, now) and _free_at(job.saver, job, now) <= _free_at(worker, job, now):
            return None
        freed = stop_saving(job)
    save(worker, job)
    return freed


def still_saves(worker: Worker, now: float) -> bool:
    """Whether the worker is (still) of use to the one that it is saved for."""
    job = worker.saving_for
    if job is None:
        return False
    if not _is_of_use(worker, job, now):
        stop_saving(job)
        return False
    return True


def _is_of_use(worker: Worker, job: Job, now: float) -> bool:
    return (
        worker.takes_more
        and bool(job.ready)
        and job.admitted
        and job.cap_room > 0
        and job.queue.room(job.user) > 0
        and worker.id not in job.refused_by
        and worker.slots(job.needs) > 0  # people may have taken some of it for themselves
        and not job.kind.outlasts(worker, now)
    )


def may_go_before(worker: Worker, job: Job, other: Job, now: float) -> bool:
    """Whether a task of `other` does not delay `job`, for which the worker is saved."""
    if _is_beside(worker, job, other):
        return True
    free_at = _free_at(worker, job, now) if other.span_s > 0 else NEVER
    return free_at < NEVER and now + other.span_s <= free_at


def _is_beside(worker: Worker, job: Job, other: Job) -> bool:
    """Whether `other` takes nothing that `job` waits for, and leaves all else that it needs."""
    millicpus = worker.capacity.millicpus - worker.used_millicpus
    mem_bytes = worker.capacity.mem_bytes - worker.used_mem_bytes
    if millicpus - other.needs.millicpus < job.needs.millicpus:
        return False
    if other.needs.mem_bytes and mem_bytes - other.needs.mem_bytes < job.needs.mem_bytes:
        return False
    wanted = {name for name, _ in job.needs.resources}
    return not any(name in wanted for name, _ in other.needs.resources)


def _free_at(worker: Worker, job: Job, now: float) -> float:
    """The earliest that `job` could begin on this worker, as far as is known of what is in its way."""
    millicpus = worker.capacity.millicpus - worker.used_millicpus
    mem_bytes = worker.capacity.mem_bytes - worker.used_mem_bytes
    short = dict(job.needs.resources) if worker.stock.room(job.needs.resources) < 1 else {}
    at = now
    for ends_at, flight in sorted(
        ((_ends_at(flight, now), flight) for flight in worker.flights.values()), key=lambda pair: pair[0]
    ):
        if millicpus >= job.needs.millicpus and mem_bytes >= job.needs.mem_bytes and not short:
            break
        at = ends_at
        needs = flight.lease.needs
        millicpus += needs.millicpus
        mem_bytes += needs.mem_bytes
        for name, amount in needs.resources:
            if name in short:
                short[name] -= amount
                if short[name] <= 0:
                    del short[name]
    return at


def _ends_at(flight: Flight, now: float) -> float:
    """When it will be over at the latest, as far as is known."""
    span_s = flight.job.span_s
    return max(now, (flight.running_since or now) + span_s) if span_s else NEVER
