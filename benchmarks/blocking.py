"""100,000 tasks are blocked on one condition and let go again: how long that takes in all, and what it costs in memory.

A real manager with its disk; four workers of 64 cores that start nothing. An outage turns every task away; when it ends, they are let go in
waves and run to their end.
"""

import asyncio
import sys
import time

from harness import claim, fake_workers, finished, manager, place, run
from tercel.core.model import BlockRule
from tercel.wire.api import Submission

TASKS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
RULE = BlockRule(on="exit:75", tester="tcp:127.0.0.1:9", policy="every 1s for 1h")


async def main() -> None:
    with place() as at, manager(at) as managed:
        outage = at.root / "outage"
        outage.touch()
        with fake_workers(managed, 4, 64, 0.0, outage):
            async with managed.client() as client:
                await client.submit(Submission(argv=("true",), array="0-999"))
                await asyncio.sleep(1.0)
                before_mb = managed.rss_mb()
                began = time.perf_counter()
                submitted = await client.submit(
                    Submission(argv=("true",), array=f"0-{TASKS - 1}", block_on=(RULE,))
                )
                while (await client.job(submitted.id)).counts.blocked < TASKS:
                    await asyncio.sleep(0.05)
                blocked_s = time.perf_counter() - began
                (condition,) = (await client.conditions()).conditions
                outage.unlink()
                began = time.perf_counter()
                await finished(client, submitted.id)
                released_s = time.perf_counter() - began
                counts = (await client.job(submitted.id)).counts
                most_mb = managed.most_mb()
    assert counts.finished == TASKS, counts
    print(
        f"{TASKS:,} tasks: blocked on C{condition.id} in {blocked_s:.2f} s, let go and finished in {released_s:.2f} s"
    )
    claim(
        "blocking and releasing 100,000 tasks on one condition",
        blocked_s + released_s,
        10.0,
        " s",
        at_most=True,
    )
    claim("memory that it takes", most_mb - before_mb, 50.0, " MB", at_most=True)


run(main())
