"""`kill -9` of the manager just before and just after every commit of a campaign that makes every kind of change.

The campaign is played again and again; the n-th time the manager dies at its n-th commit, and another one takes
over. The worker lives through all of it, so whatever ran before the kill must not run again.
"""

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from tercel.core.errors import UsageError
from tercel.core.model import BlockRule
from tercel.core.states import TaskState
from tercel.links.access import read_access
from tercel.sdk import AsyncClient
from tercel.stores.codes import STATE_CODES
from tercel.wire.api import TaskView
from tests.lab import HASTY, RECORD, Lab, all_tasks, names
from tests.processes import becomes, eventually

T = TypeVar("T")

DYING = Path(__file__).with_name("dying_manager.py")
MOST_COMMITS = 300
TASKS = 6
LARGE_BYTES = 40_000
"""More than travels inside a report."""

FAIL_ONCE = f'{RECORD}; mkdir "$TERCEL_JOB_ID.$TERCEL_TASK_ID.failed" 2>/dev/null && exit 3; exit 0'
BLOCK_ONCE = f'{RECORD}; mkdir "$TERCEL_JOB_ID.$TERCEL_TASK_ID.blocked" 2>/dev/null && exit 75; exit 0'
LARGE = f"{RECORD}; head -c {LARGE_BYTES} /dev/zero | tr '\\0' x"
CLEARED = BlockRule(on="exit:75", tester="dir:/", policy="every 1h for 2d")
LASTING = f"{RECORD}; while [ ! -e never ]; do sleep 0.02; done"


class Nursery:
    """See dying_manager."""

    def __init__(self, lab: Lab, process: asyncio.subprocess.Process) -> None:
        self.lab = lab
        self.alive = False
        self._process = process
        self._pid = 0
        self._gone: asyncio.Task[None] | None = None

    async def gone(self) -> None:
        """Until the manager has died."""
        assert self._gone is not None
        await asyncio.shield(self._gone)

    async def manager(self, when: str, commit: int) -> None:
        """A new one, once the last is gone; when this returns it listens, or has died already."""
        if self._gone is not None:
            await self._gone
        assert self._process.stdin is not None
        self._process.stdin.write(f"{when} {commit}\n".encode())
        self._pid = int(await self._line())
        self.alive = True
        self._gone = asyncio.create_task(self._watch())

        def listens() -> bool:
            access = read_access(self.lab.access_file)
            return not self.alive or (access is not None and access.pid == self._pid)

        await becomes(listens, "the manager listens or dies")

    async def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has died at its commit meanwhile
            os.kill(self._pid, signal.SIGKILL)
        await self.gone()

    async def _watch(self) -> None:
        assert await self._line() == "gone"
        self.alive = False

    async def _line(self) -> str:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the nursery is dead"
        return line.decode().strip()


@asynccontextmanager
async def nursery_of(lab: Lab) -> AsyncIterator[Nursery]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DYING),
        str(lab.port),
        str(lab.data),
        env=lab.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    nursery = Nursery(lab, process)
    try:
        yield nursery
    finally:
        if nursery.alive:
            await nursery.kill()
        await process.communicate(b"")  # closes its stdin, which ends it


class Campaign:
    """A client that wants all this done, whatever happens to the manager."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name
        self.expected: dict[str, int] = {}
        """How often each of its tasks must have run."""

    async def play(self) -> None:
        plain = await self._submit("plain", RECORD)
        self._expect(plain, 1)
        retried = await self._submit("retried", FAIL_ONCE, retries=1)
        self._expect(retried, 2)
        large = await self._submit("large", LARGE)
        self._expect(large, 1)
        lasting = await self._submit("lasting", LASTING, kill_grace_s=0.2, priority=2000)
        await self.lab.done([plain, retried, large])
        # Both run by now, and must not run again after having been cancelled.
        await self.lab.ran(f"{lasting}.0", f"{lasting}.1")
        await self._until(lambda client: client.cancel([str(lasting)], reason="enough"))
        self.expected |= {f"{lasting}.0": 1, f"{lasting}.1": 1}
        failing = await self._submit("failing", FAIL_ONCE)
        await self.lab.done([failing, lasting])
        await self._until(lambda client: client.retry([str(failing)]))
        self._expect(failing, 2)
        await self.lab.done([failing])
        blocked = await self._submit("blocked", BLOCK_ONCE, block_on=[CLEARED])
        self._expect(blocked, 2)
        await eventually(lambda: self.lab.ask(lambda client: hurried(client, blocked)), "all have gone on")
        self.jobs = {
            plain: (TaskState.FINISHED, 0),
            retried: (TaskState.FINISHED, 1),
            large: (TaskState.FINISHED, 0),
            lasting: (TaskState.CANCELLED, 0),
            failing: (TaskState.FINISHED, 1),
            blocked: (TaskState.FINISHED, 1),
        }
        self.large = large

    async def check(self) -> None:
        async with self.lab.client() as client:
            for job, (state, earlier) in self.jobs.items():
                tasks = await all_tasks(client, job)
                assert [task.task for task in tasks] == list(range(TASKS)), job
                assert {task.state for task in tasks} == {state}, job
                first = await client.task(job, 0)
                assert len(first.attempts) == earlier + (state is TaskState.FINISHED), first
            assert await self._output(client, await client.task(self.large, 0)) == b"x" * LARGE_BYTES
        await becomes(lambda: not self.lab.store("SELECT * FROM lease"), "every lease is closed in the end")
        assert not self.lab.store("SELECT * FROM blocked"), "nothing waits that has ended"
        assert not self.lab.replaced_records()

    async def _output(self, client: AsyncClient, task: TaskView) -> bytes:
        return b"".join([piece async for piece in client.logs(task.job, task.task)])

    async def _submit(self, what: str, line: str, **more: object) -> int:
        key = f"{self.name}-{what}"
        return await self.lab.submit(self.lab.shell(line, array=f"0-{TASKS - 1}", key=key, **more))

    def _expect(self, job: int, times: int) -> None:
        self.expected |= dict.fromkeys(names(job, TASKS), times)

    async def _until(self, question: Callable[[AsyncClient], Awaitable[T]]) -> None:
        """Say it until it is acknowledged."""
        await eventually(lambda: self.lab.ask(question), "a manager answers")


async def hurried(client: AsyncClient, job: int) -> bool:
    """Whether it has ended. What it is blocked on is tested at once."""
    for one in (await client.conditions()).conditions:
        try:
            await client.test_condition(one.id)
        except UsageError:
            pass  # it has cleared meanwhile
    return (await client.job(job)).ended_at is not None


ENDED_AND_BLOCKED = """
    SELECT blocked.job, blocked.first FROM blocked JOIN outcome
        ON outcome.job = blocked.job AND outcome.task BETWEEN blocked.first AND blocked.last
    UNION ALL SELECT blocked.job, blocked.first FROM blocked JOIN span
        ON span.job = blocked.job AND span.first <= blocked.last AND span.last >= blocked.first
    UNION ALL SELECT blocked.job, blocked.first FROM blocked JOIN job
        ON job.id = blocked.job WHERE job.ended_at IS NOT NULL
"""
BLOCKED_WITHOUT_RECORD = f"""
    SELECT job, first, last FROM blocked WHERE last - first + 1 > (
        SELECT count(DISTINCT task) FROM history
        WHERE history.job = blocked.job AND history.task BETWEEN blocked.first AND blocked.last
            AND history.state = {STATE_CODES[TaskState.BLOCKED]}
    )
"""


def look_at_what_waits(lab: Lab, when: str) -> int:
    """What a dead manager left on its disk: the next one would mend it as it loads. Returns how many tasks are blocked.

    On a copy: whoever opens the file itself does what is left to do there.
    """
    copy = lab.root / "left"
    for suffix in ("", "-wal"):
        if (path := lab.data / f"tercel.db{suffix}").exists():
            shutil.copyfile(path, f"{copy}{suffix}")
    with closing(sqlite3.connect(copy)) as left:
        waited_for = left.execute("SELECT DISTINCT condition FROM blocked ORDER BY condition").fetchall()
        are_open = left.execute("SELECT id FROM condition WHERE closed_at IS NULL ORDER BY id").fetchall()
        assert waited_for == are_open, f"{when}: who waits, and what for, are two"
        ended = left.execute(ENDED_AND_BLOCKED).fetchall()
        assert not ended, f"{when}: tasks wait that have ended"
        unheard = left.execute(BLOCKED_WITHOUT_RECORD).fetchall()
        assert not unheard, f"{when}: tasks wait, and no attempt of theirs says why"
        (count,) = left.execute("SELECT coalesce(sum(last - first + 1), 0) FROM blocked").fetchone()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)
    return int(count)


@pytest.mark.must("a", "b")
@pytest.mark.T(1, 13)
@pytest.mark.C(1, 6, 7)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_nothing_is_lost_or_repeated_whichever_commit_the_manager_dies_at(lab: Lab, when: str) -> None:
    async with nursery_of(lab) as nursery:
        await nursery.manager("never", 0)
        lab.watch_records()
        worker = lab.worker("w", 2, "", *HASTY)
        await lab.workers_online(1)
        await nursery.kill()
        deaths = await play_until_one_survives(lab, nursery, when)
    assert deaths >= 10, "the campaign should take many commits"
    assert worker.alive


async def play_until_one_survives(lab: Lab, nursery: Nursery, when: str) -> int:
    """Returns how many managers died."""
    expected: dict[str, int] = {}
    found: list[int] = []
    """How many tasks were blocked when a manager was gone."""
    for commit in range(1, MOST_COMMITS):
        campaign = Campaign(lab, f"{when}-{commit}")
        await nursery.manager(when, commit)
        play, death = asyncio.create_task(campaign.play()), asyncio.create_task(nursery.gone())
        await asyncio.wait([play, death], return_when=asyncio.FIRST_COMPLETED)
        survived = nursery.alive
        # One that survived might still die at its commit, while it is asked how all went.
        await nursery.kill()
        found.append(look_at_what_waits(lab, f"died {when} commit {commit}"))
        await nursery.manager("never", 0)
        await play
        await campaign.check()
        expected |= campaign.expected
        ran = {name: times for name, times in lab.runs().items() if name in expected}
        assert ran == expected, f"died {when} commit {commit}"
        await nursery.kill()
        if survived:
            assert max(found) > 0, "some died while tasks were blocked"
            return commit - 1
    pytest.fail("the campaign never got through")
