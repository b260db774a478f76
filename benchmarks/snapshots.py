"""A snapshot of 1,000,000 tasks, saved and restored through the API; and how long the managers kept others waiting meanwhile.

mix      several jobs in the middle of a campaign: most tasks are finished, half of those with a line of output, some at the second
         attempt; some failed, some are blocked on a condition, some ready, some held. Restored into an empty manager each job
         must stand as it stood, and workers that join must get what is ready, and nothing else
plain    one job, all finished, no output
outputs  the same with a line of output each

All three, or those that are named.
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from harness import Managed, claim, fake_workers, finished, manager, place, run
from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Change,
    Concluded,
    ConditionSet,
    JobAdded,
    JobEnded,
    TasksBlocked,
)
from tercel.core.conditions import ConditionRow
from tercel.core.model import BlockRule, JobRow, JobSpec
from tercel.core.reports import Blame, End, Outcome, Output, Report
from tercel.core.states import Stage, TaskState
from tercel.sdk import AsyncClient
from tercel.stores.sqlite import SqliteStore
from tercel.wire.api import Counts
from tercel.wire.api_snapshots import Restoration

TASKS = 1_000_000
BATCH = 10_000
PERIOD_S = 0.01
RULE = BlockRule(on="exit:75", tester="tcp:licence.lab:27000", at="site", policy="every 1h for 7d")

T = TypeVar("T")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and how its tasks stand. `every` so manieth task is such a one; 0: none."""

    tasks: int
    lines_every: int = 0
    """Wrote a line."""
    retried_every: int = 0
    """Failed at first."""
    failed_every: int = 0
    blocked_every: int = 0
    ready: int = 0
    """The last so many: not begun yet ..."""
    held: bool = False
    """... and held."""


MIX = (
    Part(tasks=500_000, lines_every=2),
    Part(tasks=200_000, lines_every=2, retried_every=4),
    Part(tasks=150_000, lines_every=2, blocked_every=3),
    Part(tasks=100_000, lines_every=2, failed_every=100, ready=50_000),
    Part(tasks=50_000, lines_every=2, ready=40_000, held=True),
)
LOADS = {"mix": MIX, "plain": (Part(tasks=TASKS),), "outputs": (Part(tasks=TASKS, lines_every=1),)}


# -- a store as a manager leaves it -----------------------------------------------------------------------


class Filler:
    def __init__(self, path: Path) -> None:
        self._store = SqliteStore(path)
        self._attempt = self._store.load().epoch << 32
        self._rng = random.Random(1)
        now = time.time()
        self._condition = ConditionRow(
            id=1,
            owner="ada",
            tester=RULE.tester,
            policy=RULE.policy,
            opened_at=now,
            arose_at=now,
            next_test_at=now + 3600,
        )

    def fill(self, parts: tuple[Part, ...]) -> None:
        for number, part in enumerate(parts, 1):
            self._write([JobAdded(self._row(number, part))])
            if part.blocked_every:
                self._write([ConditionSet(self._condition)])
            begun = part.tasks - part.ready
            for start in range(0, begun, BATCH):
                changes: list[Change] = []
                for task in range(start, min(start + BATCH, begun)):
                    changes += self._history(number, task, part)
                self._write(changes)
            if not part.ready and not part.blocked_every:
                self._write([JobEnded(number, 2e9, part.tasks, 0, 0)])
        self._store.close()

    def _row(self, number: int, part: Part) -> JobRow:
        last = part.tasks - 1
        retries, rules = (1 if part.retried_every else 0), (RULE,) if part.blocked_every else ()
        spec = JobSpec(argv=("true",), array=f"0-{last}", retries=retries, block_on=rules)
        held = ((part.tasks - part.ready, last),) if part.held else ()
        return JobRow(
            id=number,
            owner="ada",
            spec=spec,
            ranges=((0, last),),
            max_running=0,
            submitted_at=1e9,
            held=held,
        )

    def _history(self, job: int, task: int, part: Part) -> Iterator[Change]:
        """Of a task that was begun."""
        if _is_one(task, part.blocked_every):
            yield AttemptLost(self._outcome(job, task, TaskState.BLOCKED, 75))
            yield TasksBlocked(job, ((task, task),), self._condition.id, 1e9 + task, Stage.RUN)
            return
        if _is_one(task, part.retried_every):
            yield AttemptSpent(self._outcome(job, task, TaskState.FAILED, 1))
        if _is_one(task, part.failed_every):
            yield Concluded(self._outcome(job, task, TaskState.FAILED, 1))
            return
        out = None
        if _is_one(task, part.lines_every):
            out = Output(20, 20, b"result of task %06d\n" % task)
        yield Concluded(self._outcome(job, task, TaskState.FINISHED, 0, out))

    def _outcome(
        self, job: int, task: int, state: TaskState, code: int, out: Output | None = None
    ) -> Outcome:
        self._attempt += 1
        rng, began = self._rng, 1e9 + task * 0.01
        usage = (rng.random(), rng.random() / 2, rng.randrange(2**24))
        report = Report(job, task, self._attempt, End.EXITED, code, began, *usage, out=out)
        blame = Blame.OUTSIDE if state is TaskState.BLOCKED else None
        return Outcome(state, f"worker-{task % 16}", began + 2 * rng.random(), report, blame)

    def _write(self, changes: list[Change]) -> None:
        self._store.write(changes)
        self._store.commit()


def _is_one(task: int, every: int) -> bool:
    return every > 0 and task % every == every - 1


# -- saving and restoring ---------------------------------------------------------------------------------


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


class Taken(msgspec.Struct, frozen=True):
    took_s: float
    cpu_s: float
    """Of it the manager computed for so long."""
    waited_s: float
    """And others waited so long, at most."""


async def timed(managed: Managed, work: "asyncio.Task[T]") -> tuple[T, Taken]:
    """What comes of it, and what it took."""
    began, cpu_s = time.perf_counter(), managed.cpu_s()
    waited_s = await longest_wait(managed, work)
    return await work, Taken(time.perf_counter() - began, managed.cpu_s() - cpu_s, waited_s)


async def standing(client: AsyncClient, jobs: list[int]) -> list[Counts]:
    return [(await client.job(job)).counts for job in jobs]


async def goes_on(managed: Managed, client: AsyncClient, jobs: list[int], parts: tuple[Part, ...]) -> None:
    """What is ready gets to workers that join; what is blocked or held stays as it is."""
    before = await standing(client, jobs)
    with fake_workers(managed, 4, 64):
        for job, part in zip(jobs, parts, strict=True):
            if part.ready and not part.held:
                await finished(client, job)
    for was, now in zip(before, await standing(client, jobs), strict=True):
        assert now == msgspec.structs.replace(was, ready=0, finished=was.finished + was.ready), (was, now)


async def measure(name: str, parts: tuple[Part, ...]) -> None:
    with place() as at, place() as other:
        data = Path(at.env["XDG_DATA_HOME"]) / "tercel"
        data.mkdir(mode=0o700)
        Filler(data / "tercel.db").fill(parts)
        file = at.root / "campaign.tercel"
        with manager(at) as managed:
            async with managed.client() as client:
                stood = await standing(client, list(range(1, len(parts) + 1)))
                saving = asyncio.create_task(client.save_snapshot(file))
                size, save = await timed(managed, saving)
                save_mb = managed.rss_mb()
        with manager(other) as managed:
            before_mb = managed.rss_mb()
            async with managed.client() as client:
                restoring: asyncio.Task[Restoration] = asyncio.create_task(client.restore_snapshot(file))
                restored, restore = await timed(managed, restoring)
                grown_mb = managed.rss_mb() - before_mb
                jobs = [number for _, number in restored.jobs]
                assert await standing(client, jobs) == stood, (stood, await standing(client, jobs))
                await goes_on(managed, client, jobs, parts)
    print(
        f"{name}: {told(stood)}\n"
        f"{size / 2**20:.1f} MiB; managers computed for {save.cpu_s:.1f} s and {restore.cpu_s:.1f} s, others waited at most "
        f"{save.waited_s * 1000:.0f} ms and {restore.waited_s * 1000:.0f} ms; "
        f"{save_mb:.0f} MB after saving, {grown_mb:.0f} MB more by restoring"
    )
    claim(f"snapshot of {TASKS:,} tasks saved, {name}", save.took_s, 5.0, " s", at_most=True)
    claim(f"snapshot of {TASKS:,} tasks restored, {name}", restore.took_s, 10.0, " s", at_most=True)


def told(stood: list[Counts]) -> str:
    states = msgspec.structs.asdict(stood[0])
    sums = {state: sum(getattr(counts, state) for counts in stood) for state in states}
    assert sum(sums.values()) == TASKS
    return ", ".join(f"{count:,} {state}" for state, count in sums.items() if count)


async def main() -> None:
    for name in sys.argv[1:] or LOADS:
        await measure(name, LOADS[name])


run(main())
