"""Commits under a steady stream are spaced, so that more shares each; but not while workers wait for what comes after one."""

import asyncio

import pytest

from tercel.manager import service
from tercel.wire.messages import Reports
from tests.api.house import House, Scripted

WORKERS, CPUS, TASKS = 3, 8, 240


async def test_no_worker_is_idle_so_that_more_can_gather(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PACE_S", 3600.0)
    machine = house.manager.machine

    async def work(worker: Scripted) -> None:
        while True:
            reports = [await worker.offered()]
            while len(reports) < len(machine.workers[worker.name].flights):
                reports.append(await worker.offered())
            await worker.say(Reports(reports))

    workers = [await house.worker(f"w{number}", cpus=CPUS) for number in range(WORKERS)]
    await house.submit(array=f"0-{TASKS - 1}")
    doing = [asyncio.create_task(work(worker)) for worker in workers]
    try:  # by the machine's word: who asks over HTTP makes the manager hurry
        await house.until(lambda: 1 not in machine.jobs, "all is done")
    finally:
        for task in doing:
            task.cancel()
    assert (await house.job(1)).counts.finished == TASKS
    await house.sound()


async def test_more_gathers_while_few_workers_are_idle(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PACE_S", 3600.0)
    workers = [await house.worker(f"w{number}", cpus=8) for number in range(8)]
    await house.submit(array="0-63")
    offered = [[await worker.offered() for _ in range(8)] for worker in workers]
    manager = house.manager
    begun = manager._written

    async def heard(count: int) -> None:
        await house.until(lambda: len(manager.machine.jobs[1].finished) == count, "they are heard")

    await workers[0].say(Reports(offered[0]))  # the commit of what they were offered was the last
    await heard(8)
    await workers[1].say(Reports(offered[1][:7]))
    await workers[1].say(Reports([]))
    await heard(15)
    assert manager._written == begun, "one worker in eight is idle"
    await workers[1].say(Reports(offered[1][7:]))
    await house.until(lambda: manager._written > begun, "now one in four is")
    await house.sound()
