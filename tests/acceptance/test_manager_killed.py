"""`kill -9` of the manager at random moments, while thousands of tasks run and clients hand in more."""

import asyncio
import random

import pytest

from tests.lab import HASTY, RECORD, Lab, assert_all_finished, names
from tests.processes import becomes, eventually

SEED = 20260
KILLS = 55
JOBS = 50
TASKS = 100
"""5,000 in all."""

OPTIONS = ("--heartbeat", "1s", "--grace", "120s")


async def submit_through_all(lab: Lab, rng: random.Random, kills: list[float], client: int) -> list[int]:
    """A client with a share of the jobs: each is handed in under its key until some manager acknowledges it.

    It spreads its jobs over the kills, so that there is work at every one of them.
    """
    ids = []
    share = JOBS // 2
    for number in range(share):
        await becomes(lambda n=number: len(kills) >= n * KILLS // share, "the next kill", 300)  # type: ignore[misc]
        lines = [RECORD if rng.random() < 0.9 else f"sleep 0.1; {RECORD}" for _ in range(TASKS)]
        ids.append(await lab.submit(lab.lines(lines, key=f"{client}-{number}")))
    return ids


async def kill_again_and_again(lab: Lab, rng: random.Random, kills: list[float]) -> None:
    """Any moment will do, also while it starts and reads what the one before has left."""
    while len(kills) < KILLS:
        manager = lab.manager(*OPTIONS)
        delay_s = rng.uniform(0.2, 1.6)
        await asyncio.sleep(delay_s)
        assert manager.alive, manager.said
        manager.kill()
        kills.append(delay_s)


@pytest.mark.must("a")
@pytest.mark.timeout(600)
async def test_5000_tasks_survive_55_kills_of_the_manager_at_random_moments(lab: Lab) -> None:
    rng = random.Random(SEED)
    first = await lab.manager_up(*OPTIONS)
    lab.watch_records()
    workers = [lab.worker(name, 2, "", *HASTY) for name in ("one", "two")]
    await lab.workers_online(2)
    first.kill()

    kills: list[float] = []
    clients = [asyncio.create_task(submit_through_all(lab, rng, kills, client)) for client in range(2)]
    await kill_again_and_again(lab, rng, kills)
    await lab.manager_up(*OPTIONS)
    ids = [id for client in clients for id in await client]
    await lab.done(ids, 300)

    assert len(set(ids)) == JOBS
    assert all(worker.alive for worker in workers)
    async with lab.client() as client:
        for id in ids:
            await assert_all_finished(client, id, TASKS)
        assert len((await client.jobs(all=True, limit=1000)).jobs) == JOBS, "no key made a second job"
    assert lab.runs() == dict.fromkeys(set().union(*(names(id, TASKS) for id in ids)), 1)
    assert lab.store("SELECT count(*) FROM outcome") == [(JOBS * TASKS,)]
    assert not lab.replaced_records()
    assert not lab.store("SELECT * FROM history")

    async def no_lease_left() -> bool:
        return not lab.store("SELECT * FROM lease")

    await eventually(no_lease_left, "every lease is closed")
