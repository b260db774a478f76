"""A large task is not passed over for ever by small ones: a worker is emptied for it.

Where the next task in line does not fit into the room that is left, others that do may go before it: that is what keeps
workers busy. After PATIENCE_S of that, the next worker that is large enough is saved for it: nothing that comes after it
in line is given to that worker any more, until the large one runs there. What is sure to be over before there could be
room for it may still go (backfill).

One worker at a time for one job, one job at a time for one worker.
"""

from tercel.core.ledger import Flight, Job
from tercel.core.workers import Worker

PATIENCE_S = 5.0


def save(worker: Worker, job: Job) -> None:
    worker.saving_for, job.saver = job, worker


def stop_saving(job: Job) -> Worker | None:
    """It is under way, or not there any more, or the worker is of no use to it. Returns who is free for others again."""
    worker = job.saver
    if worker is not None:
        worker.saving_for = job.saver = None
    return worker


def passed_over(worker: Worker, job: Job, now: float) -> None:
    """It would fit this worker, but not beside what runs there."""
    if job.passed_at is None:
        job.passed_at = now
    elif (
        now - job.passed_at >= PATIENCE_S
        and job.saver is None
        and worker.saving_for is None
        and worker.slots(job.needs) > 0  # people may have taken some of it for themselves
    ):
        save(worker, job)


def still_saves(worker: Worker, now: float) -> bool:
    """Whether the worker is (still) of use to the one that it is saved for."""
    job = worker.saving_for
    if job is None:
        return False
    if (
        not worker.takes_more
        or not job.ready
        or not job.admitted
        or job.cap_room <= 0
        or job.queue.room(job.user) <= 0
        or worker.id in job.refused_by
        or worker.slots(job.needs) < 1
        or job.kind.outlasts(worker, now)
    ):
        stop_saving(job)
        return False
    return True


def may_go_before(worker: Worker, job: Job, other: Job, now: float) -> bool:
    """Whether a task of `other` will be over before there is room for `job`."""
    return other.span_s > 0 and now + other.span_s <= _free_at(worker, job, now)


def _free_at(worker: Worker, job: Job, now: float) -> float:
    """The earliest that `job` could begin on this worker; 0 if nothing is known of something in its way."""
    millicpus = worker.capacity.millicpus - worker.used_millicpus
    mem_bytes = worker.capacity.mem_bytes - worker.used_mem_bytes
    at = now
    for ends_at, flight in sorted(
        ((_ends_at(flight, now), flight) for flight in worker.flights.values()), key=lambda pair: pair[0]
    ):
        if millicpus >= job.needs.millicpus and mem_bytes >= job.needs.mem_bytes:
            break
        millicpus += flight.lease.needs.millicpus
        mem_bytes += flight.lease.needs.mem_bytes
        at = ends_at
    return at if at < float("inf") else 0.0


def _ends_at(flight: Flight, now: float) -> float:
    """When it will be over at the latest, as far as is known."""
    span_s = flight.job.span_s
    if not span_s:
        return float("inf")
    return max(now, (flight.running_since or now) + span_s)
