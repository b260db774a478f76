"""2,000 workers, one slot each, 1 s tasks, behind the real link: how busy they are."""

import sys
import time

from harness import claim, fake_workers, finished, manager, place, run
from tercel.wire.api import Submission

WORKERS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
TASKS_EACH = 30


async def main() -> None:
    with place() as at, manager(at) as managed, fake_workers(managed, WORKERS, 1, 1.0):
        async with managed.client() as client:
            pool = await client.pool()
            assert pool.online == WORKERS, pool.online
            cpu = managed.cpu_s()
            began = time.perf_counter()
            submitted = await client.submit(Submission(argv=("true",), array=f"0-{WORKERS * TASKS_EACH - 1}"))
            await finished(client, submitted.id)
            took = time.perf_counter() - began
            cpu = managed.cpu_s() - cpu
    print(
        f"{WORKERS:,} workers, {WORKERS * TASKS_EACH:,} tasks of 1 s in {took:.2f} s (ideal {TASKS_EACH} s); "
        f"manager used {cpu / took:.0%} of a core"
    )
    claim(
        "busy: the time the work takes if nobody ever waits / the time it took",
        TASKS_EACH / took * 100,
        98,
        " %",
    )


run(main())
