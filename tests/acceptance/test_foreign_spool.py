"""A worker's directory outlives its manager's: what it still owes the old one must mean nothing to a new one."""

import shutil

import pytest

from tests.lab import HASTY, RECORD, Lab
from tests.processes import becomes

OPTIONS = ("--heartbeat", "1s", "--grace", "1h")


@pytest.mark.must("c")
async def test_results_of_another_managers_tasks_are_not_taken_for_ours(lab: Lab) -> None:
    """The manager's directory is removed, the worker's stays, as when somebody starts afresh."""
    manager = await lab.manager_up(*OPTIONS)
    worker = lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    old = await lab.submit(
        lab.shell(f"while [ ! -e go ]; do sleep 0.02; done; {RECORD}; echo old", array="0-1")
    )
    await lab.running(old, 2)
    manager.kill()
    (lab.work / "go").touch()
    await becomes(lambda: lab.reports_owed() == 2, "both results wait in the spool")
    worker.kill()
    shutil.rmtree(lab.data)
    (lab.work / "ran").unlink()

    await lab.manager_up(*OPTIONS)
    new = await lab.submit(lab.shell(f"{RECORD}; echo new", array="0-1"))
    lab.worker("w", 2, "", *HASTY)
    await lab.done([new])

    async with lab.client() as client:
        outputs = [task.stdout for task in (await client.tasks(new, outputs=True)).tasks]
    assert outputs == ["new\n", "new\n"]
    assert lab.runs() == {f"{new}.0": 1, f"{new}.1": 1}
