"""Cost follows change, not size: per-task cost of 1,000,000 tasks against 10,000; submit and memory of huge arrays."""

import sys
import time

from harness import Managed, claim, fake_workers, finished, manager, place, run
from tercel.sdk import AsyncClient
from tercel.wire.api import Submission

LARGE = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
SMALL = 10_000


async def cost_us(managed: Managed, client: AsyncClient, tasks: int, jobs: int) -> float:
    """Manager cpu per task, for `jobs` arrays of `tasks` one after the other."""
    cpu = managed.cpu_s()
    for _ in range(jobs):
        submitted = await client.submit(Submission(argv=("true",), array=f"0-{tasks - 1}"))
        await finished(client, submitted.id)
    return (managed.cpu_s() - cpu) / (tasks * jobs) * 1e6


async def main() -> None:
    with place() as at, manager(at) as managed:
        async with managed.client() as client:
            await client.submit(Submission(argv=("true",), array="0-9"))  # first use of everything
            before = managed.rss_mb()
            began = time.perf_counter()
            million = await client.submit(Submission(argv=("true",), array="0-999999"))
            took = time.perf_counter() - began
            claim("submit of a 1,000,000-task array", took, 0.2, " s", at_most=True)
            await client.submit(Submission(argv=("true",), array="0-9999999"))
            grown = managed.rss_mb() - before
            claim("manager memory for 10,000,000 queued tasks", grown, 20, " MB", at_most=True)
            await client.cancel(["all"])
            assert million.tasks == 1_000_000
            with fake_workers(managed, 4, 16):
                await cost_us(managed, client, SMALL, 2)
                small = await cost_us(managed, client, SMALL, 20)
                large = await cost_us(managed, client, LARGE, 1)
                again = await cost_us(managed, client, SMALL, 20)
    reference = (small + again) / 2
    print(f"cpu a task: {SMALL:,} tasks {small:.1f} and {again:.1f} µs; {LARGE:,} tasks {large:.1f} µs")
    claim(f"per-task cost of {LARGE:,} tasks / of {SMALL:,}", large / reference, 1.15, " x", at_most=True)


run(main())
