"""10,000 x `true` on 2 slots, from submit to last result, outputs captured, durable: against `xargs -P2 -n1 true`."""

import subprocess
import sys
import time

from harness import claim, finished, manager, place, run
from tercel.wire.api import Submission

TASKS = 10_000
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3


def xargs() -> float:
    numbers = "\n".join(map(str, range(TASKS)))
    began = time.perf_counter()
    subprocess.run(["xargs", "-P2", "-n1", "true"], input=numbers, text=True, check=True)
    return TASKS / (time.perf_counter() - began)


async def server() -> float:
    """Through `tercel up`: manager, link, worker, store."""
    with place() as at, manager(at, "up", "--cpus", "2") as managed:
        async with managed.client() as client:
            began = time.perf_counter()
            submitted = await client.submit(Submission(argv=("true",), array=f"0-{TASKS - 1}"))
            await finished(client, submitted.id)
            took = time.perf_counter() - began
            view = await client.job(submitted.id)
            assert view.counts.finished == TASKS, view.counts
    return TASKS / took


def embedded() -> float:
    """`tercel run` from an empty directory, start-up of Python and of the manager included."""
    with place() as at:
        began = time.perf_counter()
        done = at.run("run", "--array", f"0-{TASKS - 1}", "--", "true", cwd=at.root)
        took = time.perf_counter() - began
        assert done.returncode == 0, done.stderr
    return TASKS / took


async def main() -> None:
    ratios, whole = [], []
    for _ in range(ROUNDS):
        reference = xargs()
        up, alone = await server(), embedded()
        ratios.append(up / reference)
        whole.append(alone / reference)
        print(
            f"xargs -P2 {reference:,.0f}/s   tercel up {up:,.0f}/s   tercel run (whole command) {alone:,.0f}/s"
        )
    claim("10,000 x true, submit to last result / xargs -P2", sorted(ratios)[len(ratios) // 2], 1.2, " x")
    claim(
        "the same as one `tercel run`, start-up included / xargs -P2",
        sorted(whole)[len(whole) // 2],
        1.1,
        " x",
    )


run(main())
