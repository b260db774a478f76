"""A chain of the overlay paper: 1,000 files are made, each is read by a task of a second step, on 4 workers with caches of their own.

Told is the share of second-step tasks that ran where their file had been made, and so read it from that worker's own cache; beside it, the
same without a rank that asks about data, which is what chance makes of it.
"""

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness import Managed, claim, finished, manager, place, run
from tercel.core.files import Input, Output
from tercel.core.model import After
from tercel.sdk import AsyncClient
from tercel.wire.api import Submission

TASKS = 1000
WORKERS = 4


@contextmanager
def workers(managed: Managed) -> Iterator[None]:
    at = managed.place
    env = {**at.env, "TERCEL_TOKEN": managed.access.worker_token}
    started = []
    for number in range(WORKERS):
        where = ("--dir", str(at.root / f"w{number}"), "--cache-dir", str(at.root / f"cache{number}"))
        command = at.command("worker", managed.access.url, "--cpus", "2", *where)
        started.append(subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL))
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(30)


async def share(client: AsyncClient, rank: str) -> tuple[float, float]:
    """Of second-step tasks that ran where their file was made; and how many tasks of both steps ended in a second."""
    began = time.perf_counter()
    name = f"lfn:chain/{rank or 'any'}/{{task}}"
    first = Submission(
        line="echo $TERCEL_TASK_ID > made; head -c 65536 /dev/urandom >> made",
        array=f"0-{TASKS - 1}",
        outputs=(Output(name="made", to=(name,)),),
    )
    second = Submission(
        line='test "$(head -n 1 read)" = $TERCEL_TASK_ID',
        array=f"0-{TASKS - 1}",
        inputs=(Input(source=name, name="read"),),
        after=(After(job=-1, each=True),),
        rank=rank,
    )
    one, two = (job.id for job in (await client.submit_flow([first, second])).jobs)
    for id in (one, two):
        await finished(client, id)
        assert (await client.job(id)).counts.finished == TASKS, await client.job(id)
    took_s = time.perf_counter() - began
    made, read = [await _where(client, id) for id in (one, two)]
    return sum(made[task] == read[task] for task in made) / TASKS, 2 * TASKS / took_s


async def _where(client: AsyncClient, job: int) -> dict[int, str]:
    return {task.task: task.worker for task in (await client.tasks(job, limit=TASKS)).tasks}


async def main() -> None:
    with place() as at, manager(at) as managed, workers(managed):
        async with managed.client() as client:
            while (await client.pool()).online < WORKERS:
                await asyncio.sleep(0.05)
            anywhere, rate = await share(client, "")
            print(f"without a rank: {anywhere:.3f} read from their own cache, {rate:,.0f} tasks/s")
            near, rate = await share(client, "worker.cached_bytes")
    claim("second-step tasks that read from their own cache", near, 0.95)
    print(f"with the rank worker.cached_bytes: {rate:,.0f} tasks/s")


run(main())
