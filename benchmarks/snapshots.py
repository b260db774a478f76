"""A snapshot of 1,000,000 tasks, saved and restored through the API; and how long the managers kept others waiting meanwhile."""

import asyncio
import random
import sys
import time
from pathlib import Path
from typing import TypeVar

from harness import Managed, claim, manager, place, run
from tercel.core.changes import Concluded, JobAdded, JobEnded
from tercel.core.model import JobRow, JobSpec
from tercel.core.reports import End, Outcome, Output, Report
from tercel.core.states import TaskState
from tercel.stores.sqlite import SqliteStore

TASKS = 1_000_000
OUTPUTS = "--outputs" in sys.argv
"""Each task wrote a line."""
PERIOD_S = 0.01

T = TypeVar("T")


def fill(path: Path) -> None:
    """A store as a manager leaves it: one job, all its tasks finished."""
    rng = random.Random(1)
    store = SqliteStore(path)
    first = store.load().epoch << 32
    spec = JobSpec(argv=("true",), array=f"0-{TASKS - 1}")
    row = JobRow(id=1, owner="ada", spec=spec, ranges=((0, TASKS - 1),), max_running=0, submitted_at=1e9)
    store.write([JobAdded(row)])
    for start in range(0, TASKS, 10_000):
        ends = [
            Outcome(
                TaskState.FINISHED,
                f"worker-{task % 16}",
                1e9 + task * 0.01 + rng.random(),
                Report(
                    1,
                    task,
                    first + task,
                    End.EXITED,
                    0,
                    1e9 + task * 0.01,
                    rng.random(),
                    rng.random() / 2,
                    rng.randrange(2**24),
                    out=Output(20, 20, b"result of task %06d\n" % task) if OUTPUTS else None,
                ),
            )
            for task in range(start, start + 10_000)
        ]
        store.write([Concluded(end) for end in ends])
        store.commit()
    store.write([JobEnded(1, 2e9, TASKS, 0, 0)])
    store.commit()
    store.close()


async def longest_wait(managed: Managed, work: "asyncio.Task[T]") -> float:
    """Of a client that asks again and again meanwhile."""
    longest = 0.0
    async with managed.client() as client:
        while not work.done():
            began = time.perf_counter()
            await client.health()
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(PERIOD_S)
    return longest


async def main() -> None:
    with place() as at, place() as other:
        data = Path(at.env["XDG_DATA_HOME"]) / "tercel"
        data.mkdir(mode=0o700)
        fill(data / "tercel.db")
        file = at.root / "campaign.tercel"
        with manager(at) as managed:
            async with managed.client() as client:
                began = time.perf_counter()
                saving = asyncio.create_task(client.save_snapshot(file))
                waited_saving = await longest_wait(managed, saving)
                size = await saving
                save_s = time.perf_counter() - began
                save_mb = managed.rss_mb()
        with manager(other) as managed:
            before_mb = managed.rss_mb()
            async with managed.client() as client:
                began = time.perf_counter()
                restoring = asyncio.create_task(client.restore_snapshot(file))
                waited_restoring = await longest_wait(managed, restoring)
                restored = await restoring
                restore_s = time.perf_counter() - began
                assert (await client.job(restored.jobs[0][1])).counts.finished == TASKS
                grown_mb = managed.rss_mb() - before_mb
    print(
        f"{size / 2**20:.1f} MiB; others waited at most {waited_saving * 1000:.0f} ms and {waited_restoring * 1000:.0f} ms; "
        f"manager {save_mb:.0f} MB after saving, {grown_mb:.0f} MB more by restoring"
    )
    claim(f"snapshot of {TASKS:,} tasks saved", save_s, 5.0, " s", at_most=True)
    claim(f"snapshot of {TASKS:,} tasks restored", restore_s, 10.0, " s", at_most=True)


run(main())
