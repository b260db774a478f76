"""A campaign is saved in the middle and goes on at another manager: its results are those of one that was never stopped."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tercel.core.model import After, BlockRule
from tercel.core.states import TaskState
from tercel.sdk import AsyncClient
from tercel.wire.api import QueueSettings, Submission
from tests.lab import Lab
from tests.processes import eventually

GATE = BlockRule(on="exit:75", tester="enabled:queue=gate", at="here", policy="every 1s for 1d")
Results = dict[tuple[int, int], tuple[TaskState, list[TaskState], bytes]]


@pytest.fixture
def labs(tmp_path: Path) -> Iterator[list[Lab]]:
    """One that is never stopped; one that is; and one that takes over."""
    found = []
    for name in ("steady", "stopped", "next"):
        (tmp_path / name).mkdir()
        found.append(Lab(tmp_path / name))
    try:
        yield found
    finally:
        for lab in found:
            lab.close()


def campaign(lab: Lab) -> list[Submission]:
    def shell(line: str, **more: Any) -> Submission:
        return lab.shell(line, **more)

    return [
        shell(
            'mkdir "m.$TERCEL_TASK_ID" 2>/dev/null && exit 3; echo "fit $TERCEL_TASK_ID"',
            array="0-19",
            retries=2,
        ),
        shell('test -e open || exit 75; echo "gated $TERCEL_TASK_ID"', array="0-2", block_on=(GATE,)),
        shell('while [ ! -e open ]; do sleep 0.02; done; echo "slow $TERCEL_TASK_ID"', array="0-1"),
        shell('echo "after $TERCEL_TASK_ID"', array="0-3", after=(After(job=1), After(job=3))),
        shell("echo held", hold=True),
        shell('echo "failing"; exit 4', retries=1),
        lab.lines([f"echo line {number}; head -c 40000 /dev/zero | tr '\\0' x" for number in range(5)]),
    ]


async def to_the_middle(lab: Lab) -> None:
    """Some has ended, some was retried, some waits, is blocked, is held, and some runs."""
    await lab.up("--cpus", "4")
    async with lab.client() as client:
        await client.set_queue("gate", QueueSettings(paused=True, reason="closed"))
        for number, submission in enumerate(campaign(lab), 1):
            assert await lab.submit(submission) == number
    await lab.done([1, 6, 7])
    await lab.running(3, 2)

    async def blocked() -> bool:
        return lab.store("SELECT sum(last - first + 1) FROM blocked") == [(3,)]

    await eventually(blocked, "the gated ones are blocked")


async def to_the_end(lab: Lab, work: Path) -> Results:
    (work / "open").touch()
    async with lab.client() as client:
        if any(queue.name == "gate" for queue in (await client.queues()).queues):
            await client.set_queue("gate", QueueSettings(paused=False))
        await client.release(["5"])
        await lab.done(range(1, 8))
        return await results(client)


async def results(client: AsyncClient) -> Results:
    found: Results = {}
    for job in range(1, 8):
        for task in (await client.tasks(job)).tasks:
            whole = await client.task(job, task.task)
            out = b"".join([piece async for piece in client.logs(job, task.task)])
            found[job, task.task] = (whole.state, [attempt.state for attempt in whole.attempts], out)
    return found


@pytest.mark.C(8)
@pytest.mark.must("c")
@pytest.mark.timeout(300)
async def test_a_campaign_restored_elsewhere_ends_as_one_that_was_never_stopped(
    labs: list[Lab], tmp_path: Path
) -> None:
    steady, stopped, taking_over = labs
    await to_the_middle(steady)
    expected = await to_the_end(steady, steady.work)

    await to_the_middle(stopped)
    file = tmp_path / "campaign.tercel"
    stopped.ok("snapshot", "save", str(file))
    stopped.close()
    assert taking_over.json("snapshot", "inspect", str(file))["tasks"] == len(expected)
    await taking_over.up("--cpus", "4")
    told = taking_over.json("snapshot", "restore", str(file))

    assert told["jobs"] == [[job, job] for job in range(1, 8)], "in an empty manager they keep their numbers"
    assert await to_the_end(taking_over, stopped.work) == expected
    assert {state for state, _, _ in expected.values()} == {TaskState.FINISHED, TaskState.FAILED}
    assert expected[1, 7][1] == [TaskState.FAILED, TaskState.FINISHED], "a retry was spent before, none after"
    assert expected[2, 0][1] == [TaskState.BLOCKED, TaskState.FINISHED]
    done = taking_over.run("snapshot", "restore", str(file))
    assert done.returncode == 2
    assert "--again" in done.stderr


@pytest.mark.C(8)
async def test_some_jobs_are_moved_into_a_manager_with_others_and_the_numbers_are_told(
    labs: list[Lab], tmp_path: Path
) -> None:
    here, there, _ = labs
    await here.up()
    await there.up()
    here.ok("submit", "--array", "0-3", "--hold", "--", "echo", "moved")
    here.ok("submit", "--hold", "--", "echo", "stays")
    there.ok("run", "--", "echo", "was here")
    file = tmp_path / "some.tercel"
    here.ok("snapshot", "save", str(file), "1")
    token = {"TERCEL_TOKEN": there.access().token}

    said = here.ok("snapshot", "restore", str(file), "--into", there.url, env=token)

    assert "1 job restored: 4 tasks, 0 of them ended, 4 to do" in said
    assert said.splitlines()[-1].split() == ["1", "2"]
    there.ok("release", "2")
    assert "finished" in there.ok("wait", "2")
    assert there.ok("logs", "2.3") == "moved\n"
    assert file.stat().st_mode & 0o077 == 0, "it may have secrets of the jobs"
    assert not any(os.scandir(there.data / "snapshots"))
    refused = here.run("snapshot", "save", str(file))
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    here.ok("snapshot", "save", "--force", str(file))
    assert here.run("snapshot", "inspect", "absent").returncode == 2
    assert "no snapshots yet" in here.run("snapshot", "list").stderr
