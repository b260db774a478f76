"""The manager alone: 100,000 no-op tasks through the real link, durable, with workers that answer at once."""

import time

from harness import claim, fake_workers, finished, manager, place, run
from tercel.wire.api import Submission

TASKS = 100_000


async def main() -> None:
    with place() as at, manager(at) as managed, fake_workers(managed, 4, 16):
        async with managed.client() as client:
            for _ in range(3):
                cpu = managed.cpu_s()
                began = time.perf_counter()
                submitted = await client.submit(Submission(argv=("true",), array=f"0-{TASKS - 1}"))
                await finished(client, submitted.id)
                took = time.perf_counter() - began
                cpu = managed.cpu_s() - cpu
                print(f"{TASKS / took:,.0f} tasks/s; manager cpu {cpu / TASKS * 1e6:.1f} µs a task")
            claim("100,000 no-op tasks through the manager", TASKS / took, 20_000, " tasks/s")


run(main())
