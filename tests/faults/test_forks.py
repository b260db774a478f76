"""`kill -9` of the manager at every step of a fork: afterwards all copies are there, or none is, and all goes on."""

import sys
from pathlib import Path

import pytest

from tercel.core.model import After
from tercel.sdk import AsyncClient
from tercel.wire.api import Submission
from tests.lab import HASTY, Lab, all_tasks
from tests.processes import Process

DYING = Path(__file__).with_name("dying_fork.py")
MOST_STEPS = 40


async def manager(lab: Lab, when: str, count: int) -> Process:
    process = lab.start(sys.executable, str(DYING), str(lab.port), str(lab.data), when, str(count))
    await lab.listening(process)
    return process


async def fork(client: AsyncClient) -> list[int]:
    told = await client.fork(["1"], settings={"fit:env.SEED": "7"}, at=None, only_affected=True)
    return [job.id for job in told.jobs]


@pytest.mark.must("a")
@pytest.mark.C(8)
@pytest.mark.timeout(300)
async def test_a_fork_is_there_wholly_or_not_at_all_wherever_the_manager_dies(lab: Lab) -> None:
    first = await manager(lab, "never", 0)
    lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    jobs = [
        Submission(name="read", lines=["echo a; head -c 40000 /dev/zero", "echo b"], cwd=str(lab.work)),
        Submission(name="fit", line='echo "$SEED"', array="0-1", after=(After(job=-1, each=True),)),
    ]
    async with lab.client() as client:
        await client.submit_flow(jobs)
        await lab.done([1, 2])
    first.kill()
    known = {1, 2}
    whole = nothing = 0
    survived: list[int] | None = None
    for step in range(1, MOST_STEPS):
        for when in ("before", "after"):
            process = await manager(lab, when, step)
            survived = await lab.ask(fork)
            process.kill()
            there = {id for (id,) in lab.store("SELECT id FROM job")}
            new = there - known
            assert len(new) in (0, 2), (step, when, new)
            nothing, whole = nothing + (not new), whole + bool(new)
            known = there
        if survived is not None:
            break
    assert survived is not None
    assert nothing >= 6, "it should take some steps"
    assert whole == 1 + 2, "died after the last of them; and never, twice"
    await manager(lab, "never", 0)
    await lab.done(known)
    async with lab.client() as client:
        for fit in sorted(known)[3::2]:
            tasks = [await client.task(fit, task.task) for task in await all_tasks(client, fit)]
            assert [len(task.attempts) for task in tasks] == [1, 1]
            read = await client.task(fit - 1, 0)
            assert read.attempts[0].out_bytes == 40_002
            assert len([piece async for piece in client.logs(fit - 1, 0)]) >= 1
            assert b"".join([piece async for piece in client.logs(fit, 1)]) == b"7\n"
    assert not lab.store("SELECT * FROM restoring")
