"""2,000 workers, one slot each, 1 s tasks, behind the real link: how busy they are."""

import sqlite3
import sys
import time
from pathlib import Path

from harness import Managed, claim, fake_workers, finished, manager, place, run
from tercel.wire.api import Submission

WORKERS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
TASKS_EACH = 60


def occupied(managed: Managed) -> float:
    """Seconds for which slots had a task, by the workers' own reports (2,000 of them share one process here, so a
    task of 1 s takes a little longer; what is asked is whether they ever wait for the manager)."""
    db = sqlite3.connect(f"file:{Path(managed.access.data) / 'tercel.db'}?mode=ro", uri=True)
    return float(db.execute("SELECT sum(wall_s) FROM outcome").fetchone()[0])


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
            occupied_s = occupied(managed)
    print(
        f"{WORKERS:,} workers, {WORKERS * TASKS_EACH:,} tasks of 1 s in {took:.2f} s (ideal {TASKS_EACH} s); "
        f"manager used {cpu / took:.0%} of a core"
    )
    busy = occupied_s / (took * WORKERS)
    claim("share of time that workers had a task, start and tail included", busy * 100, 98, " %")


run(main())
