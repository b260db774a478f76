"""Removing what is old beside all else that goes on."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tercel.wire.api import Cleaned
from tests.api.house import House


async def test_who_brings_a_job_back_waits_for_some_that_are_removed_not_for_all(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await house.worker()
    for job in (1, 2, 3):
        await house.submit()
        await worker.report(await worker.offered(job))
        await house.ended(job)
    house.manager.clock = lambda: 1e10
    monkeypatch.setattr("tercel.manager.cleaning.JOBS_AT_ONCE", 1)
    order: list[str] = []
    store, loop = house.manager.store, asyncio.get_running_loop()
    remove_jobs, tasks = store.remove_jobs, set()

    async def turn() -> None:
        async with house.manager.reopening:
            order.append("turn")

    def watched(jobs: Sequence[int], *, ended_before: float) -> list[int]:
        if not order:
            loop.call_soon_threadsafe(lambda: tasks.add(loop.create_task(turn())))
        order.append("removed")
        return remove_jobs(jobs, ended_before=ended_before)

    monkeypatch.setattr(store, "remove_jobs", watched)
    asked_by: set[int] = set()
    row_of = store.job
    monkeypatch.setattr(store, "job", lambda job: (asked_by.add(threading.get_ident()), row_of(job))[1])
    gone = (await house.ask("POST", "/v1/clean", json={"older_s": 3600.0})).of(Cleaned)
    assert gone.jobs == 3
    assert order == ["removed", "turn", "removed", "removed", "removed"]
    assert threading.get_ident() not in asked_by, "the loop does not wait for the store"
