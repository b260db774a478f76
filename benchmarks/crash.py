"""kill -9 of the manager with 8,000 jobs in flight: from starting it again to the first result of what it gives out anew.

Capone recovered 8,000 jobs in less than 7 minutes.

80 workers outlive their manager with 100 attempts each. While it is away one attempt of each ends, so there is a place for new work
at those that come back, and nowhere else: 100 more jobs wait for it. Workers dial again after the pauses that real ones make. While the
first of the waiting jobs is dispatched, run and reported, the others are still coming back with all that they hold.
Afterwards everything must finish, and nothing may have been run twice.
"""

import asyncio
import os
import signal
import sys
import time

from harness import Fakes, Managed, claim, fake_workers, finished, manager, place, run
from tercel.sdk import AsyncClient
from tercel.wire.api import Submission

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000
MORE = 100
WORKERS = JOBS // 100


async def submit_all(client: AsyncClient) -> list[int]:
    few = asyncio.Semaphore(64)

    async def submit(number: int) -> int:
        async with few:
            return (await client.submit(Submission(argv=("true",), name=f"job {number}"))).id

    return sorted(await asyncio.gather(*(submit(number) for number in range(JOBS + MORE))))


async def fill(managed: Managed) -> int:
    """All workers are full. Returns the first of the jobs that wait."""
    async with managed.client() as client:
        ids = await submit_all(client)
        while (counts := (await client.status()).counts).offered + counts.running < JOBS:
            await asyncio.sleep(0.1)
        assert counts.ready == MORE, counts
        assert (await client.job(ids[JOBS])).counts.ready == 1
        return ids[JOBS]


async def recover(managed: Managed, workers: Fakes, waiting: int, began: float) -> tuple[float, ...]:
    """Seconds until it answers, until that job is finished (and what it computed by then), and until all workers are back."""

    async def seconds_until_all_are_back() -> float:
        await asyncio.to_thread(workers.wait_joined)
        return time.perf_counter() - began

    back = asyncio.create_task(seconds_until_all_are_back())
    async with managed.client() as client:
        counts = (await client.status()).counts
        answers_s = time.perf_counter() - began
        unfinished = counts.ready + counts.offered + counts.running
        assert unfinished >= JOBS + MORE - 2 * WORKERS, counts
        await finished(client, waiting)
        first_s, cpu_s = time.perf_counter() - began, managed.cpu_s()
        return answers_s, first_s, cpu_s, await back


async def all_finished(client: AsyncClient) -> None:
    while (await client.status()).jobs:
        await asyncio.sleep(0.05)
    done, before = 0, None
    while (page := await client.jobs(before=before, limit=1000, all=True)).jobs:
        done += sum(job.counts.finished for job in page.jobs)
        before = page.jobs[-1].id
    assert done == JOBS + MORE, done


async def main() -> None:
    with place() as at, manager(at) as managed:
        port = int(managed.access.url.rpartition(":")[2])
        with fake_workers(managed, WORKERS, JOBS // WORKERS, float("inf")) as workers:
            waiting = await fill(managed)
            os.kill(managed.process.pid, signal.SIGKILL)
            managed.process.wait()
            workers.end(1)
            began = time.perf_counter()
            with manager(at, port=port) as managed:
                answers_s, first_s, cpu_s, back_s = await recover(managed, workers, waiting, began)
                workers.end(JOBS)
                async with managed.client() as client:
                    await all_finished(client)
                tasks, runs = workers.runs()
    assert (tasks, runs) == (JOBS + MORE, JOBS + MORE), (tasks, runs)
    print(
        f"{JOBS:,} jobs in flight at {WORKERS} workers: answers after {answers_s:.2f} s, first result of new work after {first_s:.2f} s "
        f"({cpu_s:.2f} s of them computing), all workers back after {back_s:.2f} s; all {tasks:,} finished, each run once"
    )
    claim(f"dispatching again after kill -9 with {JOBS:,} jobs in flight", first_s, 1.0, " s", at_most=True)


run(main())
