"""Removing what is old beside all else that goes on."""

import asyncio
import hashlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tercel.manager.cleaning import _sweep_by_age
from tercel.wire.api import Cleaned
from tests.api.house import House, open_house

DAY_S = 86_400.0
LICENCE = {"on": "exit:75", "tester": "tcp:licence.lab:27000", "policy": "every 1h for 2d"}
"""So seldom that it is tested only when somebody asks for it."""


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


async def test_what_was_uploaded_for_a_job_that_never_came_goes_after_a_day(home: Path) -> None:
    now, keys = time.time(), [f"b{hashlib.sha256(data).hexdigest()}" for data in (b"one", b"two")]

    async def there(house: House, after_s: float) -> list[bool]:
        """After a clean at that time."""
        house.manager.clock = lambda: now + after_s
        assert (await house.ask("POST", "/v1/clean", json={"older_s": 3600.0})).status == 200
        return [(await house.ask("GET", f"/v1/values/{key}")).status == 200 for key in keys]

    async with open_house(home / "data") as house:
        for key, data in zip(keys, (b"one", b"two"), strict=True):
            assert (await house.ask("PUT", f"/v1/values/{key}", body=data)).status == 201
        assert await there(house, 0.0) == [True, True]
        assert await there(house, 80_000.0) == [True, True]
    async with open_house(home / "data") as house:
        house.manager.clock = lambda: now + 80_000.0
        assert (await house.ask("PUT", f"/v1/values/{keys[1]}", body=b"two")).status == 200
    async with open_house(home / "data") as house:
        assert not house.manager.uploads.named_lately(now), "it has forgotten who was told what is there"
        assert await there(house, 86_500.0) == [False, True], "one was wanted again, hours ago"
        assert await there(house, 80_000.0 + 86_500.0) == [False, False]


async def test_the_manager_looks_for_such_by_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tercel.manager.cleaning.QUIET_S", 0.0)
    monkeypatch.setattr("tercel.manager.cleaning.EVERY_S", 0.01)
    key = f"b{hashlib.sha256(b'one').hexdigest()}"
    async with open_house(home / "data") as house:
        assert (await house.ask("PUT", f"/v1/values/{key}", body=b"one")).status == 201
        store = house.manager.store
        await house.until(lambda: not store.unnamed_values(), "it is put down")
        assert store.value_piece_count(key)
        house.manager.clock = lambda: time.time() + 90_000.0
        await house.until(lambda: not store.value_piece_count(key), "it is gone")


@pytest.mark.parametrize("history_s", [0.0, 90 * DAY_S])
async def test_histories_go_by_age_without_anybodys_hand_and_jobs_stay(
    home: Path, monkeypatch: pytest.MonkeyPatch, history_s: float
) -> None:
    monkeypatch.setattr("tercel.manager.cleaning.KEPT_ATTEMPTS", 2)
    async with open_house(home / "data", history_s=history_s) as house:
        worker = await house.worker()
        await house.submit(block_on=[LICENCE])
        for _ in range(7):
            await worker.report(await worker.offered(1), code=75)
            assert (await house.ask("POST", "/v1/conditions/1/release", json={})).status == 200
        await worker.report(await worker.offered(1))
        await house.ended(1)
        store, now = house.manager.store, time.time()

        def left() -> tuple[int, int, int]:
            conditions = store.conditions(open_only=False, before=None, limit=9)
            return len(store.history(1, 0)), len(store.notes(1, 0)), len(conditions)

        async def swept(days: int) -> tuple[int, int, int]:
            house.manager.clock = lambda: now + days * DAY_S
            await _sweep_by_age(house.manager)
            return left()

        whole = left()
        assert whole == (7, 14, 1)
        assert await swept(89) == whole
        assert await swept(91) == ((4, 1, 0) if history_s else whole)
        assert await swept(92) == ((4, 1, 0) if history_s else whole), "what was left out is still told"
        view = await house.task(1, 0)
        assert (len(view.attempts), view.left_out) == ((5, 3) if history_s else (8, 0))
        assert (await house.job(1)).counts.finished == 1
        assert (await house.task(1, 0)).state == "finished"


async def test_the_manager_forgets_old_histories_by_itself(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tercel.manager.cleaning.QUIET_S", 0.0)
    monkeypatch.setattr("tercel.manager.cleaning.EVERY_S", 0.01)
    async with open_house(home / "data", history_s=90 * DAY_S) as house:
        await house.submit(hold=True)
        assert (await house.ask("POST", "/v1/release", json={"select": ["1"]})).status == 200
        store, now = house.manager.store, time.time()
        assert store.notes(1, 0)
        house.manager.clock = lambda: now + 91 * DAY_S
        await house.until(lambda: not store.notes(1, 0), "what was noted is gone")


async def test_beforehand_all_is_counted_that_then_goes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tercel.manager.cleaning.KEPT_ATTEMPTS", 2)
    worker = await house.worker()
    for job in (1, 2):
        await house.submit(block_on=[LICENCE])
        for _ in range(7):
            await worker.report(await worker.offered(job), code=75)
            assert (await house.ask("POST", f"/v1/conditions/{job}/release", json={})).status == 200
        if job == 1:
            await worker.report(await worker.offered(1))
            await house.ended(1)
    house.manager.clock = lambda: 1e10
    body = {"older_s": 3600.0, "snapshot": False}
    told = (await house.ask("POST", "/v1/clean", json={**body, "dry_run": True})).of(Cleaned)
    assert (told.jobs, told.attempts) == (1, 3), "of the other"
    assert (told.conditions, told.notes) == (2, 28), "blocked and released"
    gone = (await house.ask("POST", "/v1/clean", json=body)).of(Cleaned)
    assert msgspec.structs.replace(gone, dry_run=True) == told
