"""One task on an idle hot pool: from submit to the result known to the client."""

import statistics
import subprocess
import time

from harness import claim, finished, manager, place, run
from tercel.wire.api import Submission


async def main() -> None:
    with place() as at, manager(at, "up", "--cpus", "2") as managed:
        async with managed.client() as client:
            times = []
            for _ in range(200):
                began = time.perf_counter()
                submitted = await client.submit(Submission(argv=("true",)))
                await finished(client, submitted.id)
                times.append((time.perf_counter() - began) * 1000)
    bare = []
    for _ in range(200):
        began = time.perf_counter()
        subprocess.run(["true"])
        bare.append((time.perf_counter() - began) * 1000)
    times = times[20:]
    print(
        f"median {statistics.median(times):.2f} ms, 95 % below {sorted(times)[int(len(times) * 0.95)]:.2f} ms; "
        f"subprocess.run(['true']) alone {statistics.median(bare):.2f} ms"
    )
    claim("submit -> result known to the client, median", statistics.median(times), 10, " ms", at_most=True)


run(main())
