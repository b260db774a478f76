"""A graph of 100,000 no-op functions with 100,000 edges on 2 slots, and a flow of 2,000 single-task steps: how fast they
drain, against as many independent tasks in the same run.

Half of the graph's edges make chains of ten, the others join any two tasks (from a later to an earlier one). It is
handed in as one job; that takes part in the time.
"""

import random
import statistics
import sys
import time

import cloudpickle
import msgspec

from harness import claim, manager, place, run
from tercel.core.model import After, Call, Function
from tercel.sdk import AsyncClient
from tercel.wire.api import Submission

TASKS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
EDGES = TASKS
STEPS = TASKS // 50
ROUNDS = 3


def nothing() -> None:
    pass


def graph(rng: random.Random) -> list[tuple[int, int, int, int]]:
    """[task, 0 for the job itself, first, last]: each edge once."""
    chosen: set[tuple[int, int]] = {(task, task - 1) for task in range(1, TASKS) if task % 10 >= 5}
    while len(chosen) < EDGES:
        first, second = rng.sample(range(TASKS), 2)
        chosen.add((max(first, second), min(first, second)))
    return [(task, 0, needed, needed) for task, needed in sorted(chosen)]


def job(tasks: int, edges: list[tuple[int, int, int, int]] | None = None) -> Submission:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    function = Function(code=cloudpickle.dumps(nothing), name="nothing", python=python)
    empty = cloudpickle.dumps(((), {}))
    return Submission(function=function, calls=[Call(empty)] * tasks, edges=edges)


async def drained(client: AsyncClient, *jobs: Submission) -> float:
    """Tasks per second, from the submission to the last result."""
    began = time.perf_counter()
    if len(jobs) == 1:
        ids = [(await client.submit(jobs[0])).id]
    else:
        ids = [one.id for one in (await client.submit_flow(jobs)).jobs]
    ended = 0
    async for event in client.watch(ids):
        if event.done:
            assert event.counts.finished and not event.counts.failed, event
            ended += event.counts.finished
    return ended / (time.perf_counter() - began)


def flow() -> list[Submission]:
    """Chains of twenty steps, side by side, each step a job of one task."""
    step = job(1)
    return [
        msgspec.structs.replace(step, after=(After(job=-number),) if number % 20 else ())
        for number in range(STEPS)
    ]


async def main() -> None:
    rng = random.Random(3)
    edges = graph(rng)
    graphs, flows, alone = [], [], []
    with place() as at, manager(at, "up", "--cpus", "2") as managed:
        async with managed.client() as client:
            await drained(client, job(1000))
            for _ in range(ROUNDS):
                alone.append(await drained(client, job(TASKS)))
                graphs.append(await drained(client, job(TASKS, edges)))
                flows.append(await drained(client, *flow()))
                print(
                    f"independent {alone[-1]:,.0f}/s   graph {graphs[-1]:,.0f}/s   "
                    f"flow of single-task steps {flows[-1]:,.0f}/s   manager and worker {managed.rss_mb():.0f} MB"
                )
    claim(
        f"{TASKS:,} tasks with {EDGES:,} edges / as many independent ones",
        statistics.median(g / a for g, a in zip(graphs, alone, strict=True)),
        0.7,
        " x",
    )
    print(f"     a flow of {STEPS:,} steps, each a job of its own: {statistics.median(flows):,.0f} steps/s")


if __name__ == "__main__":
    run(main())
