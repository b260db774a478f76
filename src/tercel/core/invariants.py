"""What must be true of a machine at every moment (DESIGN.md section 3). Tests and simulation call `violations`."""

from tercel.core.books import EPOCH_BITS
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.machine import Machine


def violations(machine: Machine) -> list[str]:
    """Empty, or what is wrong."""
    found: list[str] = []
    for job in machine.jobs.values():
        found += _job(machine, job)
    for worker in machine.workers.values():
        heavy = [flight for flight in worker.flights.values() if not flight.light]
        millicpus = sum(f.lease.needs.millicpus for f in heavy)
        mem = sum(f.lease.needs.mem_bytes for f in heavy)
        if (millicpus, mem) != (worker.used_millicpus, worker.used_mem_bytes):
            found.append(f"worker {worker.id}: booked resources differ from its flights")
        if worker.row != machine.row_of(worker.id):
            found.append(f"worker {worker.id}: is not what is kept of it")
        if worker.tags != {*worker.info.tags, *worker.row.tags} - {*worker.row.lost_tags}:
            found.append(f"worker {worker.id}: has other tags than it should")
        if (
            worker.reservation is not None
            and machine.reservations.get(worker.reservation.id) != worker.reservation
        ):
            found.append(f"worker {worker.id}: is under a reservation that is over")
        if worker.conduct.probing and not (worker.row.quarantined and worker.row.pause_s):
            found.append(f"worker {worker.id}: is tried although it is not in quarantine for its faults")
        for attempt, flight in worker.flights.items():
            if flight.attempt != attempt or flight.worker is not worker:
                found.append(f"worker {worker.id}: flight {attempt} is misfiled")
            if not flight.ending and flight.job.flights.get(flight.task) is not flight:
                found.append(f"worker {worker.id}: holds {flight.job.id}.{flight.task}, unknown to its job")
    return found + _queues(machine) + _conditions(machine)


def _conditions(machine: Machine) -> list[str]:
    """Who waits for what, against what the jobs say."""
    found = []
    for id, condition in machine.conditions.items():
        waiting = sum(len(job.blocks.get(condition, ())) for job in condition.jobs.values())
        if condition.id != id or condition.count != waiting or not waiting:
            found.append(f"condition {id}: miscounts what waits for it, or nothing does")
        if condition.row.closed_at is not None:
            found.append(f"condition {id}: is closed, and open")
        if not condition.probe and not condition.row.paused and not machine.will_test(condition):
            found.append(f"condition {id}: is never tested again")
    for job in machine.jobs.values():
        for condition in job.blocks:
            if machine.conditions.get(condition.id) is not condition or condition.jobs.get(job.id) is not job:
                found.append(f"job {job.id}: waits for condition {condition.id}, which does not know it")
        for condition, out in job.out.items():
            if condition.out.get(job.id) is not job or not out:
                found.append(f"job {job.id}: condition {condition.id} does not know what it let go")
        if any(tasks.intersection(job.held) != tasks for _, tasks in job.postponed.values()):
            found.append(f"job {job.id}: what is to be blocked when it is released is not held")
        waiting_all = IntervalSet()
        for tasks in job.blocks.values():
            waiting_all.update(tasks)
        if waiting_all != job.blocked or sum(map(len, job.blocks.values())) != len(job.blocked):
            found.append(f"job {job.id}: some blocked task waits for no condition, or for two")
        met_all = IntervalSet()
        for tasks in job.stages.values():
            met_all.update(tasks)
        counts = [len(tasks) for tasks in job.stages.values()]
        if met_all != job.blocked or sum(counts) != len(job.blocked) or 0 in counts:
            found.append(f"job {job.id}: some blocked task met its fault in no stage, or in two")
    return found


def _queues(machine: Machine) -> list[str]:
    """The accounts against the jobs, counted anew."""
    found = []
    for queue in machine.queues.values():
        jobs = [job for job in machine.jobs.values() if job.queue is queue]
        under_way = sum(len(job.flights) for job in jobs)
        if queue.account.under_way != under_way:
            found.append(f"queue {queue.name}: miscounts what is under way")
        if queue.backlog != sum(len(job.ready) + len(job.flights) for job in jobs if job.admitted):
            found.append(f"queue {queue.name}: miscounts its queued tasks")
        if queue.admits and any((job.ready or job.flights) and not job.admitted for job in jobs):
            found.append(f"queue {queue.name}: holds jobs back although it has room")
        for name, user in queue.users.items():
            if user.under_way != sum(len(job.flights) for job in jobs if job.row.owner == name):
                found.append(f"queue {queue.name}: miscounts what is under way of {name}")
        timed = sum(
            flight.lease.needs.millicpus / 1000
            for job in jobs
            for flight in job.flights.values()
            if flight.lease.timed_from is not None
        )
        if abs(timed - queue.account.open_cpus) > 1e-6:
            found.append(f"queue {queue.name}: times what has ended, or not what has not")
    return found


def _job(machine: Machine, job: Job) -> list[str]:
    found = []
    sets = (*job.resting, job.finished, job.failed, job.cancelled)
    flying = IntervalSet((task, task) for task in job.flights)
    whole = IntervalSet()
    for members in (*sets, flying):
        whole.update(members)
    if whole != IntervalSet(job.row.ranges):
        found.append(f"job {job.id}: some task is in no state, or does not belong to it")
    if sum(len(s) for s in sets) + len(job.flights) != job.task_count:
        found.append(f"job {job.id}: some task is in two states")
    if job.running != sum(1 for f in job.flights.values() if f.running_since is not None):
        found.append(f"job {job.id}: miscounts what runs")
    # After a restart more may seem under way than is: what was given back before is still in its lease.
    issued_now = any(flight.attempt >> EPOCH_BITS == machine.epoch for flight in job.flights.values())
    if issued_now and 0 < job.row.max_running < len(job.flights):
        found.append(f"job {job.id}: more under way than its limit")
    if job.ended_count == job.task_count:
        found.append(f"job {job.id}: has ended but is not forgotten")
    if (len(job.ready) > 0 and job.cap_room > 0 and job.admitted) != (job.id in machine.ready):
        found.append(f"job {job.id}: is not in the ready queue as it should be")
    if job.saver is not None and (job.saver.saving_for is not job or job.id not in machine.ready):
        found.append(f"job {job.id}: a worker is saved for it that does not know, or for nothing")
    found += _needs(machine, job)
    for task, flight in job.flights.items():
        if flight.task != task or flight.worker.flights.get(flight.attempt) is not flight:
            found.append(f"task {job.id}.{task}: its flight is unknown to the worker")
        if flight.lease.open < 1:
            found.append(f"task {job.id}.{task}: its lease is closed")
    for task, strays in job.strays.items():
        if task in job.finished or task in job.failed or task in job.cancelled:
            found.append(f"task {job.id}.{task}: has ended but keeps strays")
        if not strays or any(stray.lease.open < 1 for stray in strays):
            found.append(f"task {job.id}.{task}: a stray's lease is closed")
    return found


def _needs(machine: Machine, job: Job) -> list[str]:
    """No task waits for what has ended, and none is ready before its time."""
    found = []
    if job.skipped.intersection(job.cancelled) != job.skipped:
        found.append(f"job {job.id}: something is skipped and not cancelled")
    for need in job.after:
        if need not in need.needed.watchers or machine.find(need.needed.id) is not need.needed:
            found.append(f"job {job.id}: waits for job {need.needed.id}, which does not know it")
    for task in job.waiting:
        due = job.delayed.get(task)
        if due is None and task not in job.unmet and not any(need.waits(task) for need in job.after):
            if task in job.outgrown:
                continue
            found.append(f"task {job.id}.{task}: waits for nothing")
    for task in job.outgrown:
        if task not in job.waiting and task not in job.paused:
            found.append(f"task {job.id}.{task}: waits for more memory and does not wait")
    for task in job.unmet:
        if task in job.ready:
            found.append(f"task {job.id}.{task}: is ready before what it needs")
    return found
