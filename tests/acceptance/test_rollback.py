"""Rollback and history with real processes: also with the manager killed in the middle."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from tercel.core.errors import TercelError
from tercel.core.model import After
from tests.lab import HASTY, Lab

TASKS = 500
DELAYS_S = (0.0, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05)
"""After the request is under way: reading, planning, writing, committing, answering."""
OPTIONS = ("--heartbeat", "1s", "--grace", "120s")


async def two_jobs(lab: Lab) -> tuple[int, int]:
    """The second used what the first gave; of the first one task failed."""
    line = 'test "$TERCEL_TASK_ID" != 7 || test -e mended'
    first = await lab.submit(lab.shell(line, array=f"0-{TASKS - 1}"))
    second = await lab.submit(lab.shell("true", array="0-6", after=(After(job=first, each=True),)))
    await lab.done([first, second], 120)
    return first, second


def records(lab: Lab) -> dict[int, int]:
    """How many tasks of each job have ended, as the disk says."""
    return dict(lab.store("SELECT job, count(*) FROM outcome GROUP BY job"))


def told(lab: Lab, what: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lab.ok("--json", "history", what).splitlines()]


@pytest.mark.C(6)
@pytest.mark.C(9)
@pytest.mark.must("a")
@pytest.mark.timeout(300)
async def test_a_rollback_during_which_the_manager_is_killed_is_done_wholly_or_not_at_all(lab: Lab) -> None:
    manager = await lab.manager_up(*OPTIONS)
    worker = lab.worker("one", 2, "", *HASTY)
    await lab.workers_online(1)
    first, second = await two_jobs(lab)
    worker.kill()
    before = {first: TASKS, second: 7}
    assert records(lab) == before
    done = 0
    for delay_s in DELAYS_S:
        async with lab.client() as client:
            asked = asyncio.create_task(client.rollback([f"{first}.0-{TASKS - 1}"]))
            await asyncio.sleep(delay_s)
            manager.kill()
            with contextlib.suppress(TercelError):
                answered = await asked
                assert answered.count == TASKS + 7
                assert not records(lab), "what was answered is done"
        left = records(lab)
        assert left in (before, {}), left
        notes = lab.store("SELECT job, first, last FROM note WHERE what = 'rolled back' ORDER BY job")
        assert notes == ([] if left else [(first, 0, TASKS - 1), (second, 0, 6)])
        manager = await lab.manager_up(*OPTIONS)
        if not left:
            done += 1
            break
    if not done:
        async with lab.client() as client:
            assert (await client.rollback([f"{first}.0-{TASKS - 1}"])).count == TASKS + 7
    lab.worker("two", 2, "", *HASTY)
    jobs = await lab.done([first, second], 120)
    assert [(job.counts.finished, job.counts.failed) for job in jobs] == [(TASKS - 1, 1), (7, 0)]


@pytest.mark.C(15)
@pytest.mark.must("a")
@pytest.mark.timeout(200)
async def test_what_befell_a_task_is_told_after_the_manager_was_killed(lab: Lab) -> None:
    manager = await lab.manager_up(*OPTIONS)
    lab.worker("one", 2, "", *HASTY)
    await lab.workers_online(1)
    first = await lab.submit(lab.shell("exit 3", array="0-2", retries=1))
    await lab.done([first])
    lab.ok("rollback", str(first), "--yes", "--reason", "new data")
    await lab.done([first])

    before = told(lab, f"{first}.1")
    words = [event["what"] for event in before if event["what"] != "started"]
    assert words == ["accepted", "failed", "failed", "rolled back", "failed", "failed"]
    assert {event["blame"] for event in before if event["what"] == "failed"} == {"task"}
    assert any("new data" in event.get("text", "") for event in before)
    manager.kill()
    await lab.manager_up(*OPTIONS)
    assert told(lab, f"{first}.1") == before
    assert [event["what"] for event in told(lab, str(first))] == [
        "accepted",
        "rolled back",
        "ended",
    ]


@pytest.mark.C(6)
@pytest.mark.timeout(200)
async def test_what_is_undone_is_listed_first_and_scripts_must_agree_to_it(lab: Lab) -> None:
    await lab.manager_up(*OPTIONS)
    lab.worker("one", 2, "", *HASTY)
    await lab.workers_online(1)
    first, second = await two_jobs(lab)
    listed = lab.ok("rollback", str(first), "--all", "--dry-run")
    assert f"{TASKS + 7} tasks would go back to accepted" in listed
    assert "7 finished using what is undone" in listed
    refused = lab.run("rollback", str(first), "--all")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert lab.ok("rollback", str(first), "--to", "staged", "--yes").startswith(
        "1 task went back to accepted"
    )
    assert second
    await lab.done([first])
    assert "would remove 0 jobs" in lab.ok("clean", "--older", "1d", "--dry-run")
