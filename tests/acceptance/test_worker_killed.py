"""`kill -9` of a worker: its tasks run elsewhere, at nobody's expense, and nothing of it lives on."""

import os
import signal

import pytest

from tercel.core.states import TaskState
from tests.lab import HASTY, RECORD, Lab, assert_all_finished, names
from tests.processes import Process, becomes, children, is_running

UNTIL_TOLD = f"{RECORD}; while [ ! -e go ]; do sleep 0.02; done"
"""Runs until the test makes the file `go`."""

DAEMON = """
setsid sh -c 'echo $$ >> daemons; exec sleep 1000' < /dev/null > /dev/null 2>&1 &
(env -i setsid sh -c 'echo $$ >> daemons; exec sleep 1000' < /dev/null > /dev/null 2>&1 &)
"""
"""Leaves two behind: one in another session, one that also has lost its parent and its environment."""


def go(lab: Lab) -> None:
    (lab.work / "go").touch()


def daemons(lab: Lab) -> list[int]:
    path = lab.work / "daemons"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def kill_with_its_spawners(worker: Process) -> None:
    """All at once: neither has the time to end what the other leaves. Only what tasks have started is left."""
    worker.signal(signal.SIGSTOP)
    for pid in children(worker.pid):
        os.kill(pid, signal.SIGKILL)
    worker.kill()


@pytest.mark.must("b")
@pytest.mark.parametrize("with_spawners", [False, True], ids=["the worker", "the worker and its spawners"])
async def test_tasks_of_a_killed_worker_run_elsewhere_and_spend_no_retries(
    lab: Lab, with_spawners: bool
) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "1s")
    lab.watch_records()
    victim = lab.worker("victim", 2, "", *HASTY)
    await lab.workers_online(1)
    # Four at a time: two at the victim at once, the rest where there is room.
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-3", retries=0))
    await lab.running(id, 2)
    lab.worker("other", 2, "", *HASTY)
    await lab.running(id, 4)

    if with_spawners:
        kill_with_its_spawners(victim)
    else:
        victim.kill()
    # Those of the other are still running: it takes the victim's tasks when it has room, not before the grace is over.
    go(lab)
    [view] = await lab.done([id])

    assert view.counts.finished == 4
    async with lab.client() as client:
        tasks = [await client.task(id, number) for number in range(4)]
    assert {task.state for task in tasks} == {TaskState.FINISHED}
    assert {task.worker for task in tasks} == {lab.worker_id("other")}
    lost = [task for task in tasks if len(task.attempts) == 2]
    assert len(lost) == 2
    assert {task.attempts[0].worker for task in lost} == {lab.worker_id("victim")}
    assert {task.attempts[0].end for task in lost} == {"interrupted"}
    assert sorted(lab.runs().values()) == [1, 1, 2, 2], "only what was unfinished ran again"
    assert not lab.store("SELECT * FROM history WHERE spent"), "no retry was spent"
    assert not lab.replaced_records()


@pytest.mark.must("b")
async def test_nothing_of_a_killed_worker_lives_on(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "1s")
    victim = lab.worker("victim", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(f"{DAEMON}\n{UNTIL_TOLD}", array="0-1"))
    await lab.running(id, 2)
    await becomes(lambda: len(daemons(lab)) == 4, "all daemons run")
    spawners = children(victim.pid)
    family = [*spawners, *lab.worker_processes("victim"), *daemons(lab)]
    assert len(family) >= 8
    assert all(is_running(pid) for pid in [*spawners, *daemons(lab)])

    victim.kill()

    await becomes(
        lambda: not [pid for pid in family if is_running(pid)],
        "the victim's spawners, tasks and daemons are gone",
    )


@pytest.mark.must("b")
async def test_a_worker_restarted_in_its_directory_goes_on_at_once(lab: Lab) -> None:
    """The grace is far longer than this test may take: only the worker's own word can return its tasks."""
    await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    lab.watch_records()
    victim = lab.worker("victim", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-5", retries=0))
    await lab.running(id, 2)
    orphans = list(lab.worker_processes("victim"))

    kill_with_its_spawners(victim)
    await lab.workers_online(0)
    assert [pid for pid in orphans if is_running(pid)], "nobody was left to end them"
    lab.worker("victim", 2, "", *HASTY)
    await becomes(lambda: not [pid for pid in orphans if is_running(pid)], "what the first one left is ended")
    await lab.running(id, 2)
    go(lab)
    await lab.done([id])

    async with lab.client() as client:
        await assert_all_finished(client, id, 6)
    assert sorted(lab.runs().values()) == [1, 1, 1, 1, 2, 2]
    assert not lab.store("SELECT * FROM history WHERE spent"), "no retry was spent"
    assert not lab.replaced_records()


@pytest.mark.must("b")
async def test_results_that_a_killed_worker_could_not_deliver_are_delivered_by_its_successor(
    lab: Lab,
) -> None:
    """The tasks end while the manager is away, then the worker is killed: its spool is all there is."""
    manager = await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    worker = lab.worker("w", 4, "", *HASTY)
    await lab.workers_online(1)
    line = f"while [ ! -e go ]; do sleep 0.02; done; {RECORD}; seq 10000"
    id = await lab.submit(lab.shell(line, array="0-3"))
    await lab.running(id, 4)
    manager.kill()
    go(lab)
    await lab.ran(*names(id, 4))
    await becomes(lambda: lab.reports_owed() == 4, "all results are in the spool")
    worker.kill()

    await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    lab.worker("w", 4, "", *HASTY)
    await lab.done([id])

    assert lab.runs() == dict.fromkeys(names(id, 4), 1)
    async with lab.client() as client:
        await assert_all_finished(client, id, 4)
        large = b"".join([piece async for piece in client.logs(id, 0)])
    assert large == b"".join(b"%d\n" % n for n in range(1, 10_001)), (
        "the output was in the worker's directory"
    )


@pytest.mark.must("b")
async def test_a_spawner_that_is_killed_costs_its_task_nothing(lab: Lab) -> None:
    await lab.manager_up("--heartbeat", "1s", "--grace", "1h")
    worker = lab.worker("w", 2, "", *HASTY)
    await lab.workers_online(1)
    id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-1", retries=0))
    await lab.running(id, 2)
    tasks = list(lab.worker_processes("w"))

    os.kill(children(worker.pid)[0], signal.SIGKILL)
    await becomes(lambda: sum(lab.runs().values()) == 3, "the task that lost its spawner runs again")
    go(lab)
    [view] = await lab.done([id])

    assert view.counts.finished == 2
    assert not [pid for pid in tasks if is_running(pid)]
    assert not lab.store("SELECT * FROM history WHERE spent"), "no retry was spent"
    assert worker.alive
