"""The link between a worker and the manager is cut, or silently stalls: shorter and longer than the grace time."""

import asyncio
from pathlib import Path

import pytest

from tercel.core.states import TaskState
from tests.acceptance.proxy import Proxy, proxy_to
from tests.lab import HASTY, RECORD, Lab, assert_all_finished, names
from tests.processes import becomes, eventually, is_running

UNTIL_TOLD = f"while [ ! -e go ]; do sleep 0.02; done; {RECORD}"

RECORD_WHERE = 'echo "$TERCEL_JOB_ID.$TERCEL_TASK_ID $TERCEL_SANDBOX" >> where'

BEAT = ("--heartbeat", "1s")
"""A link is lost after three: longer than a busy machine keeps a process waiting."""

BREAK = pytest.mark.parametrize("how", ["cut", "stalled"])


async def broken(proxy: Proxy, how: str) -> None:
    if how == "cut":
        await proxy.cut()
    else:
        proxy.stall()


@pytest.mark.must("c")
@BREAK
async def test_work_goes_on_while_the_link_is_down_and_is_not_redone(lab: Lab, how: str) -> None:
    await lab.manager_up(*BEAT, "--grace", "1h")
    lab.watch_records()
    async with proxy_to(lab.port) as proxy:
        worker = lab.worker("w", 2, proxy.url, *HASTY)
        await lab.workers_online(1)
        id = await lab.submit(lab.shell(UNTIL_TOLD, array="0-5"))
        await lab.running(id, 2)

        await broken(proxy, how)
        await lab.workers_online(0)
        await worker.says("Lost the link" if how == "cut" else "the manager was silent")
        (lab.work / "go").touch()
        await lab.ran(f"{id}.0", f"{id}.1")
        async with lab.client() as client:
            why = (await client.explain(f"{id}.0")).summary
            assert "away" in why, why
            assert (await client.job(id)).counts.finished == 0
        await proxy.heal()
        await lab.done([id])

        assert lab.runs() == dict.fromkeys(names(id, 6), 1)
        async with lab.client() as client:
            await assert_all_finished(client, id, 6)
        assert not lab.replaced_records()
        assert not lab.store("SELECT * FROM history")
        assert worker.alive


@pytest.mark.C(13)
async def test_a_result_is_told_by_another_way_if_the_first_is_cut(lab: Lab) -> None:
    """A manager with two addresses: each is lost in turn, and what ended meanwhile is told by the other."""
    await lab.manager_up(*BEAT, "--grace", "1h")
    async with proxy_to(lab.port) as inside, proxy_to(lab.port) as outside:
        worker = lab.worker("w", 1, inside.url, outside.url, *HASTY)
        await worker.says(f"joining {inside.url}, or {outside.url}")
        await lab.workers_online(1)
        for way in (inside, outside):
            line = f"while [ ! -e go.$TERCEL_JOB_ID ]; do sleep 0.02; done; {RECORD}"
            id = await lab.submit(lab.shell(line))
            await lab.running(id, 1)
            await way.cut()
            (lab.work / f"go.{id}").touch()
            await lab.done([id])
            async with lab.client() as client:
                await assert_all_finished(client, id, 1)
            assert lab.runs()[f"{id}.0"] == 1
            await way.heal()


@pytest.mark.must("c")
@pytest.mark.timeout(240)
async def test_30_seconds_without_a_link_cost_nothing(lab: Lab) -> None:
    """One worker's link is cut, another's stalls, and a third goes on; the grace is a minute."""
    await lab.manager_up("--heartbeat", "2s", "--grace", "60s")
    lab.watch_records()
    async with proxy_to(lab.port) as cut, proxy_to(lab.port) as stalled:
        lab.worker("cut", 2, cut.url, *HASTY)
        lab.worker("stalled", 2, stalled.url, *HASTY)
        lab.worker("steady", 1, "", *HASTY)
        await lab.workers_online(3)
        id = await lab.submit(lab.shell(f"sleep 2; {RECORD}; {RECORD_WHERE}", array="0-39"))
        await lab.running(id, 5)

        await cut.cut()
        stalled.stall()
        await asyncio.sleep(
            30
        )  # the one thing here that is about time: the cut lasts as long as was promised
        async with lab.client() as client:
            assert (await client.pool()).online == 1
        known = await finished_names(lab, id)
        meanwhile = {name: where for name, where in ran_where(lab).items() if name not in known}
        away = {lab.worker_dir("cut"), lab.worker_dir("stalled")}
        assert away <= set(meanwhile.values()), "tasks ended at both while they were away"
        await cut.heal()
        await stalled.heal()
        await lab.done([id])

        async with lab.client() as client:
            await assert_all_finished(client, id, 40)
            for name, where in ran_where(lab).items():
                told = (await client.task(id, int(name.partition(".")[2]))).worker
                assert told == (where / "worker-id").read_text().strip(), "taken from the one that did it"
        assert lab.runs() == dict.fromkeys(names(id, 40), 1)
        assert not lab.replaced_records()
        assert not lab.store("SELECT * FROM history")


def ran_where(lab: Lab) -> dict[str, Path]:
    """The directory of the worker on which each task ran, by what tasks appended (see RECORD_WHERE)."""
    rows = (line.partition(" ") for line in (lab.work / "where").read_text().splitlines())
    return {name: Path(sandbox.partition("/sandboxes/")[0]) for name, _, sandbox in rows}


async def finished_names(lab: Lab, id: int) -> set[str]:
    async with lab.client() as client:
        listed = await client.tasks(id, state=TaskState.FINISHED)
    return {task.id for task in listed.tasks}


@pytest.mark.must("c")
@BREAK
async def test_an_attempt_that_was_given_up_and_not_redone_is_taken_up_again(lab: Lab, how: str) -> None:
    """Task 0 ended during the cut, task 1 still runs when the link is back; nobody else could have done them."""
    await lab.manager_up(*BEAT, "--grace", "0.5s")
    lab.watch_records()
    async with proxy_to(lab.port) as proxy:
        lab.worker("w", 2, proxy.url, *HASTY)
        await lab.workers_online(1)
        line = f"while [ ! -e go.$TERCEL_TASK_ID ]; do sleep 0.02; done; {RECORD}; echo done"
        id = await lab.submit(lab.shell(line, array="0-1"))
        await lab.running(id, 2)
        processes = lab.worker_processes("w")

        await broken(proxy, how)
        await all_ready(lab, id, 2)
        (lab.work / "go.0").touch()
        await lab.ran(f"{id}.0")
        await proxy.heal()
        await lab.workers_online(1)
        await lab.running(id, 1)
        (lab.work / "go.1").touch()
        await lab.done([id])

        assert lab.runs() == dict.fromkeys(names(id, 2), 1)
        assert not [pid for pid in processes if is_running(pid)]
        async with lab.client() as client:
            await assert_all_finished(client, id, 2)
            tasks = [await client.task(id, number) for number in range(2)]
        assert [len(task.attempts) for task in tasks] == [1, 1], "given up, and what counts after all"
        assert not lab.replaced_records()
        assert not lab.store("SELECT * FROM history WHERE spent")


async def all_ready(lab: Lab, id: int, count: int) -> None:
    """Until the grace is over and the tasks were given up."""

    async def ask() -> bool:
        async with lab.client() as client:
            return (await client.job(id)).counts.ready == count

    await eventually(ask, f"{count} tasks of job {id} are ready again")


PARTED = f"""{RECORD}
case $TERCEL_SANDBOX in
*/worker-away/*) while [ ! -e go ]; do sleep 0.02; done; echo away ;;
*) if [ $TERCEL_TASK_ID = 1 ]; then echo $$ > second; while :; do sleep 0.02; done; fi; echo here ;;
esac
"""
"""Ends on the worker that is cut off when told to; on the other at once, except for task 1, which lasts."""


@pytest.mark.must("c")
@BREAK
async def test_late_results_of_a_worker_whose_tasks_went_elsewhere_are_recognised(lab: Lab, how: str) -> None:
    """All three tasks end on the worker that is away. When it comes back,

    redone 0   has been run again elsewhere and has ended: its late result is dropped
    redone 1   is being run again: the late result counts, and the second attempt is ended
    kept 0     has not been run again, for no other worker has the memory: the late result counts
    """
    await lab.manager_up(*BEAT, "--grace", "0.5s")
    lab.watch_records()
    async with proxy_to(lab.port) as proxy:
        here = lab.worker("here", 1, "", *HASTY, "--mem", "100M")
        await lab.workers_online(1)
        blocker = await lab.submit(lab.shell("while [ ! -e unblock ]; do sleep 0.02; done", priority=0))
        await lab.running(blocker, 1)
        away = lab.worker("away", 3, proxy.url, *HASTY, "--mem", "200M")
        await lab.workers_online(2)
        redone = await lab.submit(lab.shell(PARTED, array="0-1", kill_grace_s=0.2))
        kept = await lab.submit(lab.shell(PARTED, mem_bytes=150 * 2**20))
        await lab.running(redone, 2)
        await lab.running(kept, 1)

        await broken(proxy, how)
        await all_ready(lab, redone, 2)
        await all_ready(lab, kept, 1)
        (lab.work / "go").touch()
        await becomes(lambda: lab.reports_owed("away") == 3, "all three have ended over there")
        (lab.work / "unblock").touch()
        second = int(await becomes(lambda: read(lab, "second"), "task 1 runs for the second time"))
        assert await finished_names(lab, redone) == {f"{redone}.0"}
        await proxy.heal()
        await lab.done([redone, kept])

        async with lab.client() as client:
            await assert_all_finished(client, redone, 2)
            await assert_all_finished(client, kept, 1)
            outputs = [task.stdout for task in (await client.tasks(redone, outputs=True)).tasks]
            outputs += [task.stdout for task in (await client.tasks(kept, outputs=True)).tasks]
            tasks = [await client.task(*name) for name in ((redone, 0), (redone, 1), (kept, 0))]
        assert outputs == ["here\n", "away\n", "away\n"]
        assert [len(task.attempts) for task in tasks] == [2, 1, 1], "one of them was lost"
        assert lab.runs() == {f"{redone}.0": 2, f"{redone}.1": 2, f"{kept}.0": 1}
        assert not lab.replaced_records()
        await becomes(lambda: not is_running(second), "the attempt that is not wanted any more is ended")
        await becomes(lambda: lab.reports_owed("away") == 0, "every report was acknowledged")
        assert here.alive
        assert away.alive


def read(lab: Lab, name: str) -> str:
    path = lab.work / name
    return path.read_text().strip() if path.exists() else ""
