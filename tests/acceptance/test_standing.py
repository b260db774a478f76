"""A bad worker among good ones, and workers set aside: with real processes, over a manager's death."""

import signal

import pytest

from tercel.wire.api import Pool, WorkerView
from tests.lab import Lab, all_tasks
from tests.processes import eventually

UNLESS_BAD = 'case "$TERCEL_SANDBOX" in */worker-bad/*) exit 7;; esac; sleep 0.05'


async def view(lab: Lab, name: str) -> WorkerView:
    async def ask() -> WorkerView | None:
        pool: Pool | None = await lab.ask(lambda client: client.pool())
        found = [w for w in pool.workers if w.id == lab.worker_id(name)] if pool is not None else []
        return found[0] if found else None

    shown = await eventually(ask, f"worker {name} is in the pool")
    assert shown is not None
    return shown


@pytest.mark.must("b")
async def test_a_bad_worker_is_found_and_no_task_fails_because_of_it(lab: Lab) -> None:
    manager = await lab.manager_up()
    for name in ("good", "better", "bad"):
        lab.worker(name, 1)
    await lab.workers_online(3)
    lab.ok("submit", "--cwd", "sandbox", "--array", "0-199", UNLESS_BAD)
    assert lab.run("wait", "1").returncode == 0
    assert lab.json("show", "1")["counts"]["finished"] == 200
    bad = await view(lab, "bad")
    assert bad.quarantined.startswith("failed ")
    assert " of job 1, which failed 0 of " in bad.quarantined
    assert bad.faults["failed"] >= 3
    assert (await view(lab, "good")).quarantined == ""
    assert "quarantined: failed" in lab.ok("pool", "--why")
    manager.signal(signal.SIGKILL)
    await manager.ended()
    await lab.manager_up()
    await lab.workers_online(3)
    assert (await view(lab, "bad")).quarantined == bad.quarantined
    lab.ok("worker", "release", lab.worker_id("bad"))
    assert (await view(lab, "bad")).quarantined == ""


async def test_tags_and_reservations_decide_who_runs_what(lab: Lab) -> None:
    await lab.manager_up()
    lab.worker("a", 1, "", "--site", "lab1")
    lab.worker("b", 1)
    await lab.workers_online(2)
    where = 'worker.site == "lab1"'
    told = lab.ok("reserve", "--where", where, "--queue", "vision", "--for", "1h")
    assert lab.worker_id("a") in told
    lab.ok("submit", "--array", "0-9", "true")
    assert lab.run("wait", "1").returncode == 0
    async with lab.client() as client:
        assert {task.worker for task in await all_tasks(client, 1)} == {lab.worker_id("b")}
    lab.ok("queue", "create", "vision")
    lab.ok("worker", "tag", lab.worker_id("a"), "+gpu")
    lab.ok("submit", "--queue", "vision", "--requires", "gpu", "true")
    assert lab.run("wait", "2").returncode == 0
    assert lab.json("show", "2.0")["worker"] == lab.worker_id("a")
    assert "1 reservation ended" in lab.ok("reserve", "end", "1")
    assert "reserved" not in lab.ok("pool", "--why")
