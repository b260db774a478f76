"""Restart with 1,000,000 tasks of which half are done: from starting the process to the first offer."""

import asyncio
import os
import signal
import sqlite3
import time
from pathlib import Path

from harness import claim, fake_workers, manager, place, run
from tercel.wire.api import Submission

TASKS = 1_000_000


async def main() -> None:
    with place() as at:
        with manager(at) as managed, fake_workers(managed, 4, 16):
            async with managed.client() as client:
                job = (await client.submit(Submission(argv=("true",), array=f"0-{TASKS - 1}"))).id
                while (await client.job(job)).counts.finished < TASKS // 2:
                    await asyncio.sleep(0.2)
                os.kill(managed.process.pid, signal.SIGKILL)
                data = Path(managed.access.data)
        began = time.perf_counter()
        with manager(at) as managed:
            up = time.perf_counter() - began
            async with managed.client() as client:
                done = (await client.job(job)).counts.finished
                ready = time.perf_counter() - began
                with fake_workers(managed, 1, 16):
                    while (await client.job(job)).counts.finished <= done:
                        await asyncio.sleep(0.01)
                    first = time.perf_counter() - began
        rows = sqlite3.connect(data / "tercel.db").execute("SELECT count(*) FROM outcome").fetchone()[0]
    print(
        f"{done:,} of {TASKS:,} were done; listening after {up:.2f} s, first results after {first:.2f} s; {rows:,} rows"
    )
    claim("ready to dispatch after kill -9 with 1,000,000 tasks, half done", ready, 3.0, " s", at_most=True)


run(main())
