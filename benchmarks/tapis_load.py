"""Tapis' load test: 10,000 jobs at once, 50 slots, sleeps of 15 to 90 s divided by 60. Tapis reached 0.29 of the ideal.

Real processes. Then the same with 29 % of the jobs blocked once: they end with exit code 75 the first time, and wait for a
file that a probe finds.
"""

import asyncio
import random
import sys
import time
from pathlib import Path

from harness import claim, manager, place, run
from tercel.core.model import BlockRule
from tercel.sdk import AsyncClient
from tercel.wire.api import Submission

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
SLOTS = 50
BLOCKED = 0.29


def submissions(root: Path, share: float) -> tuple[list[Submission], float]:
    """The jobs, and how long they take if no slot is ever idle."""
    chance = random.Random(1)
    sleeps = [chance.uniform(15, 90) / 60 for _ in range(JOBS)]
    flag = root / "there"
    flag.touch()
    rule = BlockRule(on="exit:75", tester=f"file:{flag}", policy="every 1s for 1h")
    found = []
    for number, sleep_s in enumerate(sleeps):
        if chance.random() < share:
            line = f"mkdir {root}/{number} 2>/dev/null && exit 75; exec sleep {sleep_s:.3f}"
            found.append(Submission(line=line, block_on=(rule,)))
        else:
            found.append(Submission(argv=("sleep", f"{sleep_s:.3f}")))
    return found, sum(sleeps) / SLOTS


async def all_ended(client: AsyncClient) -> None:
    while (await client.status()).jobs:
        await asyncio.sleep(0.05)


async def finished_count(client: AsyncClient) -> int:
    count, before = 0, None
    while True:
        page = await client.jobs(before=before, limit=1000, all=True)
        count += sum(job.counts.finished for job in page.jobs)
        if not page.more:
            return count
        before = page.jobs[-1].id


async def measure(share: float) -> float:
    """How near to the ideal."""
    with place() as at, manager(at, "up", "--cpus", str(SLOTS)) as managed:
        jobs, ideal_s = submissions(at.root, share)
        async with managed.client() as client:
            few = asyncio.Semaphore(64)

            async def submit(job: Submission) -> None:
                async with few:
                    await client.submit(job)

            began = time.perf_counter()
            await asyncio.gather(*(submit(job) for job in jobs))
            await all_ended(client)
            took_s = time.perf_counter() - began
            assert await finished_count(client) == JOBS
    print(f"{JOBS:,} jobs, {share:.0%} blocked once: {took_s:.1f} s, ideal {ideal_s:.1f} s, none failed")
    return ideal_s / took_s


async def main() -> None:
    claim("10,000 jobs at once on 50 slots / ideal", await measure(0.0), 0.95, " x")
    claim("the same with 29 % blocked once / ideal", await measure(BLOCKED), 0.90, " x")


run(main())
