"""Tasks that print without end, will not die, leave daemons or write what no terminal shows, beside ordinary ones."""

import asyncio
import subprocess
import sys

import pytest

from tercel.core.model import DEFAULT_OUTPUT_LIMIT_BYTES
from tercel.core.states import TaskState
from tests.lab import HASTY, RECORD, Lab, assert_all_finished, names
from tests.processes import becomes, is_running, marked, rss_bytes

ORDINARY = 200
GIB = 2**30
MANAGER_GROWTH_BYTES = 150 * 2**20
"""Generous, and far below what any of the floods would take if it were held in memory."""

FLOOD = f"head -c {GIB} /dev/zero | tr '\\0' x; echo the end; echo on stderr >&2"
STUBBORN = "trap '' TERM INT HUP; echo $$ > stubborn; while :; do sleep 0.05; done"
DAEMONS = """
setsid sh -c 'echo $$ >> daemons; exec sleep 1000' < /dev/null > /dev/null 2>&1 &
(setsid sh -c 'trap "" TERM; echo $$ >> daemons; while :; do sleep 0.05; done' &)
env -i setsid nohup sleep 1000 > /dev/null 2>&1 &
echo $! >> daemons
while [ $(wc -l < daemons) -lt 3 ]; do sleep 0.01; done
echo left
"""
MUTE = f"exec 1>&- 2>&-; sleep 0.2; {RECORD}"
BINARY = "head -c 300000 /dev/urandom | tee binary; printf '\\377\\0\\n' >&2"


@pytest.mark.must("g")
@pytest.mark.C(5)
@pytest.mark.timeout(240)
async def test_tasks_that_misbehave_harm_nobody_else(lab: Lab) -> None:
    manager = await lab.manager_up("--heartbeat", "1s", "--grace", "60s")
    workers = [lab.worker(name, 2, "", *HASTY) for name in ("one", "two")]
    await lab.workers_online(2)
    before = rss_bytes(manager.pid)

    flood = await lab.submit(lab.shell(FLOOD, priority=1))
    stubborn = await lab.submit(lab.shell(STUBBORN, priority=1, kill_grace_s=0.5))
    daemons = await lab.submit(lab.shell(DAEMONS, priority=1))
    mute = await lab.submit(lab.shell(MUTE, priority=1))
    binary = await lab.submit(lab.shell(BINARY, priority=1))
    ordinary = await lab.submit(lab.shell(f"{RECORD}; echo $TERCEL_TASK_ID", array=f"0-{ORDINARY - 1}"))
    await becomes((lab.work / "stubborn").exists, "the stubborn one runs")
    async with lab.client() as client:
        assert (await client.cancel([str(stubborn)])).count == 1
    await lab.done([ordinary, flood, daemons, mute, binary, stubborn])

    # The others are unharmed.
    async with lab.client() as client:
        await assert_all_finished(client, ordinary, ORDINARY)
        outputs = [task.stdout for task in (await client.tasks(ordinary, outputs=True)).tasks]
        assert outputs == [f"{task}\n" for task in range(ORDINARY)]
        ran = {name: times for name, times in lab.runs().items() if name in names(ordinary, ORDINARY)}
        assert ran == dict.fromkeys(names(ordinary, ORDINARY), 1)

        # The flood finished; its end is kept, and its reader is told that the rest is not.
        task = await client.task(flood, 0)
        assert task.state is TaskState.FINISHED
        assert task.attempts[-1].out_bytes == GIB + len("the end\n")
        assert task.attempts[-1].out_cut
        assert not task.attempts[-1].err_cut
        # Cancelled, and dead although it would not.
        assert (await client.task(stubborn, 0)).state is TaskState.CANCELLED
        for id in (daemons, mute, binary):
            assert (await client.task(id, 0)).state is TaskState.FINISHED, id
        assert (
            b"".join([piece async for piece in client.logs(binary, 0)]) == (lab.work / "binary").read_bytes()
        )
        errors = [piece async for piece in client.logs(binary, 0, stream="err")]
        assert b"".join(errors) == b"\xff\0\n"
    shown = raw_logs(lab, f"{flood}.0")
    assert len(shown.stdout) == DEFAULT_OUTPUT_LIMIT_BYTES
    assert shown.stdout.endswith(b"xxx" + b"the end\n")
    assert b"only the end was kept" in shown.stderr
    assert lab.ok("logs", f"{flood}.0", "--stderr") == "on stderr\n"
    assert lab.runs()[f"{mute}.0"] == 1

    left = [int(line) for line in (lab.work / "daemons").read_text().split()]
    assert len(left) == 3
    await becomes(lambda: not [pid for pid in left if is_running(pid)], "the daemons are ended")
    pid = int((lab.work / "stubborn").read_text())
    await becomes(lambda: not is_running(pid), "the stubborn one is ended")
    await becomes(lambda: not marked(f"TERCEL_SANDBOX={lab.root}/"), "no process of any task is left")
    assert all(worker.alive for worker in workers)

    assert rss_bytes(manager.pid) < before + MANAGER_GROWTH_BYTES


def raw_logs(lab: Lab, name: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "tercel", "logs", name]
    return subprocess.run(command, env=lab.env, cwd=lab.work, capture_output=True, check=True)


@pytest.mark.must("g")
async def test_a_fork_storm_is_ended_with_its_task(lab: Lab) -> None:
    """Processes that fork without end, each in a session of its own, while they are being killed."""
    await lab.manager_up("--heartbeat", "1s", "--grace", "60s")
    worker = lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    storm = "trap '' TERM; while :; do setsid sh -c 'sleep 5 & sleep 5' & sleep 0.01; done"
    id = await lab.submit(lab.shell(storm, kill_grace_s=0.2))
    await lab.running(id, 1)
    await becomes(lambda: len(lab.worker_processes("w")) > 30, "the storm rages")
    async with lab.client() as client:
        await client.cancel([str(id)])
    await becomes(lambda: not lab.worker_processes("w"), "the storm is over")
    after = await lab.submit(lab.shell(RECORD))
    await lab.done([id, after])
    assert lab.runs() == {f"{after}.0": 1}
    assert worker.alive


@pytest.mark.must("g")
async def test_floods_at_every_slot_leave_the_manager_answering(lab: Lab) -> None:
    manager = await lab.manager_up("--heartbeat", "1s", "--grace", "60s")
    before = rss_bytes(manager.pid)
    lab.worker("w", 4, "", *HASTY)
    await lab.workers_online(1)
    # Incompressible, and as much as is kept of each: the worst that outputs can be for the manager's disk and memory.
    id = await lab.submit(lab.shell("head -c 10485760 /dev/urandom", array="0-15"))
    done = asyncio.create_task(lab.done([id]))
    answers = 0
    while not done.done():
        async with lab.client() as client:
            assert (await client.health()).ok
            await client.status()
        answers += 1
        await asyncio.sleep(0.01)
    await done
    assert answers > 0
    async with lab.client() as client:
        await assert_all_finished(client, id, 16)
        sizes = [sum([len(piece) async for piece in client.logs(id, task)]) for task in range(16)]
    assert sizes == [DEFAULT_OUTPUT_LIMIT_BYTES] * 16
    assert rss_bytes(manager.pid) < before + MANAGER_GROWTH_BYTES
