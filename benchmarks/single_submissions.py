"""Single submissions, each its own request and its own durable acknowledgement, from 16 clients."""

import asyncio
import os
import sqlite3
import time

from harness import claim, manager, place, run
from tercel.wire.api import Submission

CLIENTS, EACH = 16, 500


def fsyncs_per_second(directory: str) -> float:
    """The reference: single-row durable commits of this disk."""
    db = sqlite3.connect(os.path.join(directory, "reference.db"), isolation_level=None)
    db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (a);")
    began = time.perf_counter()
    for number in range(2000):
        db.execute("INSERT INTO t VALUES (?)", (number,))
    return 2000 / (time.perf_counter() - began)


async def main() -> None:
    with place() as at, manager(at) as managed:
        reference = fsyncs_per_second(str(at.root))

        async def one_client() -> None:
            async with managed.client() as client:
                for _ in range(EACH):
                    await client.submit(Submission(argv=("true",)))

        began = time.perf_counter()
        await asyncio.gather(*(one_client() for _ in range(CLIENTS)))
        rate = CLIENTS * EACH / (time.perf_counter() - began)
        print(f"{rate:,.0f} submissions/s; single-row commits of this disk {reference:,.0f}/s")
        claim("single durable submissions, 16 clients in one process", rate, 1000, "/s")
        claim("the same as a share of the disk's single commits", rate / reference, 0.1, " x")


run(main())
