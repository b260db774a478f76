"""A campaign of real commands is replayed with a changed first step: what is affected runs again, and nothing else."""

import os
import re
from pathlib import Path

import pytest

from tercel import Executor
from tercel.core.grids import Axis, Grid
from tercel.core.model import After
from tercel.core.states import TaskState
from tercel.sdk import AsyncClient, Client
from tercel.wire.api import Submission
from tests.lab import RECORD, Lab, all_tasks
from tests.sdk import work

ROOT = Path(__file__).parents[2]
POINTS = Grid(
    axes=(Axis(name="a", values=("1", "2", "3", "4")), Axis(name="b", values=("1", "2", "30", "40"))),
    zipped=True,
)
FIT = RECORD + "; echo {%s} | tee fit.{task}"
PLOT = f'{RECORD}; echo "plot of $(cat fit.$TERCEL_TASK_ID)"'


async def said(client: AsyncClient, job: int) -> list[str]:
    """What each task of a job wrote."""
    tasks = [task.task for task in await all_tasks(client, job)]
    return [b"".join([piece async for piece in client.logs(job, task)]).decode() for task in tasks]


async def campaign(lab: Lab) -> None:
    """Jobs 1 and 2, which have ended."""
    await lab.up("--cpus", "4")
    where = str(lab.work)
    jobs = [
        Submission(name="fit", line=FIT % "a", grid=POINTS, cwd=where),
        Submission(name="plot", line=PLOT, array="0-3", cwd=where, after=(After(job=-1, each=True),)),
    ]
    async with lab.client() as client:
        await client.submit_flow(jobs)
    await lab.done([1, 2])


@pytest.mark.C(8)
async def test_exactly_what_a_changed_command_affects_runs_again(lab: Lab) -> None:
    await campaign(lab)
    ran = lab.runs()
    async with lab.client() as client:
        before = [
            (await client.job(job), await all_tasks(client, job), await said(client, job)) for job in (1, 2)
        ]

    words = ("fork", "1", "--set", f"fit:command={FIT % 'b'}", "--only-affected")
    preview = lab.json(*words, "--dry-run")
    assert [(job["id"], job["kept"], job["changed"], job["needy"]) for job in preview["jobs"]] == [
        (0, 2, 2, 0),
        (0, 2, 0, 2),
    ]
    told = lab.json(*words)

    assert [(job["job"], job["id"]) for job in told["jobs"]] == [(1, 3), (2, 4)]
    await lab.done([3, 4])
    assert lab.runs() == {**ran, "3.2": 1, "3.3": 1, "4.2": 1, "4.3": 1}
    async with lab.client() as client:
        assert await said(client, 3) == ["1\n", "2\n", "30\n", "40\n"]
        assert await said(client, 4) == ["plot of 1\n", "plot of 2\n", "plot of 30\n", "plot of 40\n"]
        after = [
            (await client.job(job), await all_tasks(client, job), await said(client, job)) for job in (1, 2)
        ]
    assert after == before, "what was forked is as it was"
    shown = lab.ok("show", "3")
    assert "from job 1 as of" in shown
    assert "only what is affected" in shown
    assert "from job 1 as of" in lab.ok("history", "3.2")
    assert "from job 1 as of" in lab.ok("history", "3")


@pytest.mark.C(8)
async def test_a_fork_from_before_a_rollback_has_what_was_rolled_back(lab: Lab) -> None:
    await campaign(lab)
    async with lab.client() as client:
        ended = max([task.attempts[0].ended_at for job in (1, 2) for task in await all_tasks(client, job)])
        started = (await client.task(1, 0)).attempts[0].started_at
        lab.ok("rollback", "1", "--finished", "--yes")
        await lab.done([1, 2])
        assert len((await client.task(1, 0)).attempts) == 2
        told = await client.fork(["1"], at=ended)
        assert [job.kept for job in told.jobs] == [4, 4]
        (attempt,) = (await client.task(told.jobs[0].id, 0)).attempts
        assert attempt.started_at == started
        assert await said(client, told.jobs[1].id) == [f"plot of {number}\n" for number in (1, 2, 3, 4)]


@pytest.mark.C(8)
async def test_a_campaign_is_replayed_from_a_moment_and_waits_if_it_is_held(lab: Lab) -> None:
    await campaign(lab)
    said_of_it = lab.ok("fork", "1", "--at", "1d", "--hold")
    assert re.match(
        r"2 jobs forked as of [0-9-]+ [0-9:]+: 0 tasks keep their results, 8 will run again\n", said_of_it
    )
    async with lab.client() as client:
        assert (await client.job(3)).counts.paused == 4
    assert lab.ok("release", "3", "4")
    await lab.done([3, 4])
    again = lab.json("fork", "4")
    assert {job["kept"] for job in again["jobs"]} == {4}
    async with lab.client() as client:
        assert await said(client, 6) == await said(client, 2)
        assert {task.state for task in await all_tasks(client, 6)} == {TaskState.FINISHED}


@pytest.mark.C(8)
@pytest.mark.must("e")
async def test_what_makes_no_sense_is_refused_and_changes_nothing(lab: Lab) -> None:
    await campaign(lab)
    (lab.work / "short.txt").write_text("echo a\n")
    for words, text in [
        (["--set", "comand=x"], "did you mean 'command'?"),
        (["--set", "absent:command=x"], "no job 'absent' is forked: there is fit, plot"),
        (["--set", "command=x"], "say whose this is"),
        (["--set", "fit:command=echo {c}"], "{c}"),
        (["--set", "mem=lots"], "not a size"),
        (["--set", "array=0-9"], "tercel clone"),
        (["--set", "plot:lines_file=short.txt"], "not one of lines"),
        (["--at", "2099-01-01T00:00"], "yet to come"),
        (["--at", "soon"], "is no time"),
        (["--queue", "absent"], "no queue"),
    ]:
        done = lab.run("fork", "1", *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert text in done.stderr, (words, done.stderr)
    assert lab.run("fork", "all").returncode == 2
    assert lab.run("fork", "1.2").returncode == 2
    assert lab.store("SELECT count(*) FROM job") == [(2,)]


@pytest.mark.C(8)
async def test_functions_and_the_values_that_they_take_are_copied(lab: Lab) -> None:
    lab.env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    await lab.up("--cpus", "4")
    access = lab.access()
    with Executor(access.url, token=access.token) as pool:
        first = pool.submit(work.add, 1, 2)
        assert first.result(60) == 3
        assert pool.submit(work.add, first, 10).result(60) == 13
    with Client(access.url, access.token) as client:
        jobs = sorted(job.id for job in client.jobs(all=True).jobs)
        kept = client.fork([str(job) for job in jobs])
        changed = client.fork(
            [str(job) for job in jobs], settings={f"{jobs[0]}:env.SEED": "7"}, only_affected=True
        )
        assert [job.kept for job in kept.jobs] == [1, 1]
        assert [(job.changed, job.needy) for job in changed.jobs] == [(1, 0), (0, 1)]
        await lab.done(job.id for job in changed.jobs)
        for old, copies in zip(jobs, zip(kept.jobs, changed.jobs, strict=True), strict=True):
            value = b"".join(client.value(f"t{old}.0"))
            assert [b"".join(client.value(f"t{copy.id}.0")) for copy in copies] == [value, value]
