"""Who gets what, centrally: the core's rounds with very many workers.

1. 1,500 workers, 10,000 tasks, each with a file of its own that two of the workers have: ranked by cached bytes. The first
   round, and then rounds as workers become free one after the other (the overlay paper's central queue congests for ten
   minutes under this).
2. 10,000 workers of 50 shapes, tasks of 50 classes, no rank.

Everything the core does is in it: matching, leases, accounts, reports. No disk, no network.
"""

import gc
import random
import time

from harness import claim, end
from tercel.core.accounts import Settings
from tercel.core.changes import Leased, Loaded
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Needs
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report
from tercel.wiring import GARBAGE_THRESHOLDS

WORKERS, TASKS = 1_500, 10_000
MANY, CLASSES = 10_000, 50


def machine() -> Machine:
    return Machine(Settings(), Loaded(1, 1, [], [], []), 0.0)


def row(id: int, tasks: int, spec: JobSpec) -> JobRow:
    return JobRow(id=id, owner="ada", spec=spec, ranges=((0, tasks - 1),), max_running=0, submitted_at=0.0)


def leased(machine: Machine) -> list[Leased]:
    changes, _ = machine.take()
    return [change for change in changes if isinstance(change, Leased)]


def by_cached_file() -> tuple[float, float]:
    """(seconds of the first round, tasks/s from then on)."""
    chance = random.Random(1)
    pool = machine()
    for number in range(WORKERS):
        pool.on_hello(f"w{number}", "1", WorkerInfo(node=f"n{number}", capacity=Needs(1000, 0)), [], 0.0)
    sizes = [chance.randrange(1, 2**30) for _ in range(TASKS)]
    for task in range(TASKS):
        for number in chance.sample(range(WORKERS), 2):
            pool.on_cached(f"w{number}", [(f"file{task}", sizes[task])], [])
    pool.round()
    pool.take()
    spec = JobSpec(argv=("x",), rank="worker.cached_bytes + 10*worker.speed")
    pool.on_accepted(row(1, TASKS, spec), inputs={task: (f"file{task}",) for task in range(TASKS)})
    began = time.perf_counter()
    pool.round()
    first_s = time.perf_counter() - began
    leases = leased(pool)
    assert len(leases) == WORKERS
    rank = sum(
        sizes[one.lease.first]
        for one in leases
        if f"file{one.lease.first}" in pool.workers[one.lease.worker].cached
    )
    print(
        f"  first round: {first_s * 1e3:.0f} ms; {rank / sum(sorted(sizes)[-WORKERS:]):.3f} of the largest files go where they are"
    )
    running = [(one.lease.worker, one.lease.first, one.lease.id) for one in leases]
    done, local, began = 0, 0, time.perf_counter()
    while done < TASKS - WORKERS:
        some, running = running[:16], running[16:]
        for worker, task, attempt in some:
            report = Report(1, task, attempt, End.EXITED, 0, 0.0, 60.0, 60.0, 0)
            pool.on_reports(worker, [report], 1.0)
        pool.round()
        for one in leased(pool):
            running.append((one.lease.worker, one.lease.first, one.lease.id))
            local += f"file{one.lease.first}" in pool.workers[one.lease.worker].cached
            done += 1
    rate = done / (time.perf_counter() - began)
    print(f"  then {rate:,.0f} tasks/s, {local / done:.2f} of them where their file is")
    return first_s, rate


def by_class() -> float:
    """Seconds of a round that gives every worker a task."""
    pool = machine()
    for number in range(MANY):
        shape = number % CLASSES
        info = WorkerInfo(
            node=f"n{number}",
            capacity=Needs(1000, (shape + 1) * 2**30),
            tags=(f"t{shape}", "all"),
            speed=1.0 + number / MANY,
            os="linux" if shape % 2 else "darwin",
        )
        pool.on_hello(f"w{number}", "1", info, [], 0.0)
    pool.round()
    pool.take()
    first_s = fill(pool, 0)
    for worker in pool.workers.values():
        for flight in list(worker.flights.values()):
            ids = (flight.job.id, flight.task, flight.attempt)
            pool.on_reports(worker.id, [Report(*ids, End.EXITED, 0, 0.0, 60.0, 60.0, 0)], 60.0)
    pool.round()
    pool.take()
    later_s = fill(pool, 1)
    print(
        f"  {MANY:,} tasks of {CLASSES} classes to {MANY:,} workers: {later_s * 1e3:.0f} ms, "
        f"the first time {first_s * 1e3:.0f} ms (the shapes of all workers are drawn)"
    )
    return later_s


def fill(pool: Machine, time_number: int) -> float:
    """Seconds of a round that gives every worker a task."""
    for kind in range(CLASSES):
        where = 'worker.os == "linux" && worker.mem >= 2*GB' if kind % 2 else 'worker.os == "darwin"'
        spec = JobSpec(argv=("x",), requires=(f"t{kind}",), where=where, mem_bytes=(kind + 1) * 2**30)
        pool.on_accepted(row(kind + 1 + CLASSES * time_number, MANY // CLASSES, spec))
    gc.collect()
    began = time.perf_counter()
    pool.round()
    took_s = time.perf_counter() - began
    assert sum(one.lease.last - one.lease.first + 1 for one in leased(pool)) == MANY
    return took_s


def main() -> None:
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)  # as a manager has them
    rounds = [by_cached_file() for _ in range(3)]
    plain = [by_class() for _ in range(3)]
    claim(
        "first round, 1,500 workers x 10,000 ranked tasks", min(s for s, _ in rounds), 1.0, " s", at_most=True
    )
    claim("steady dispatch by such ranks", max(rate for _, rate in rounds), 5_000, " tasks/s")
    claim("a round of 10,000 workers and 50 classes", min(plain) * 1e3, 100, " ms", at_most=True)


if __name__ == "__main__":
    main()
    end()
