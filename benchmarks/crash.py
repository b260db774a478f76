"""kill -9 of the manager with 8,000 jobs in flight: from starting it again to the first result of what it gives out.

Capone recovered 8,000 jobs in less than 7 minutes.
"""

import asyncio
import os
import signal
import time

from harness import claim, fake_workers, manager, place, run
from tercel.wire.api import Submission

JOBS, MORE = 8_000, 100


async def main() -> None:
    with place() as at:
        with manager(at) as managed, fake_workers(managed, 80, JOBS // 80, 300.0):
            async with managed.client() as client:
                few = asyncio.Semaphore(64)

                async def submit(number: int) -> None:
                    async with few:
                        await client.submit(Submission(argv=("true",), name=f"job {number}"))

                await asyncio.gather(*(submit(number) for number in range(JOBS + MORE)))
                while (counts := (await client.status()).counts).offered + counts.running < JOBS:
                    await asyncio.sleep(0.1)
                os.kill(managed.process.pid, signal.SIGKILL)
        began = time.perf_counter()
        with manager(at) as managed:
            async with managed.client() as client:
                counts = (await client.status()).counts
                answers_s = time.perf_counter() - began
                assert counts.offered + counts.running == JOBS, counts
                with fake_workers(managed, 1, 16):
                    while (await client.status()).jobs == JOBS + MORE:
                        await asyncio.sleep(0.005)
                    first_s = time.perf_counter() - began
    print(
        f"{JOBS:,} jobs in flight: answers after {answers_s:.2f} s, a new worker's first result after {first_s:.2f} s"
    )
    claim("dispatching again after kill -9 with 8,000 jobs in flight", first_s, 1.0, " s", at_most=True)


run(main())
