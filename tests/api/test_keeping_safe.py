"""Snapshots that the manager takes by itself before something is destroyed, and when it goes on without one."""

from typing import Any

import msgspec
import pytest

from tercel.core.errors import StoreFull
from tercel.core.model import Role
from tercel.stores.snapshot.checking import check
from tercel.wire.api import Cleaned, Counted, RolledBack
from tercel.wire.api_snapshots import Restoration, SnapshotList, SnapshotView
from tests.api.house import House, inline

pytestmark = pytest.mark.C(8)

HAS_THEM = "snapshot @1 has them as they were"


async def cancel(house: House, *select: str) -> Counted:
    return (await house.ask("POST", "/v1/cancel", json={"select": select})).of(Counted)


async def clean(house: House, **fields: Any) -> Cleaned:
    return (await house.ask("POST", "/v1/clean", json={"older_s": 3600.0, **fields})).of(Cleaned)


async def taken(house: House) -> list[SnapshotView]:
    return (await house.get("/v1/snapshots", SnapshotList)).snapshots


def saved(house: House, number: int = 1) -> list[tuple[int, int]]:
    """(job, how many of its tasks had ended)"""
    path = house.data / "snapshots" / f"{number:06}.tercel"
    return [(job.row.id, job.ended) for job in check(path).jobs]


async def old_chain(house: House) -> None:
    """Two jobs, the second after the first, that ended two hours ago."""
    now = house.manager.clock()
    house.manager.clock = lambda: now - 7200
    worker = await house.worker()
    await house.submit(array="0-1")
    await house.submit(after=[{"job": 1}])
    for _ in range(3):
        await worker.report(await worker.offered(), out=inline(b"a result"))
    await house.ended(2)
    house.manager.clock = lambda: now


# -- before many tasks are cancelled ----------------------------------------------------------------------


async def test_many_tasks_are_put_into_a_snapshot_before_they_are_cancelled(house: House) -> None:
    await house.submit(array="0-1999", name="large")
    await house.submit(array="0-9", name="small")
    assert await cancel(house, "2") == Counted(count=10)

    assert await cancel(house, "1") == Counted(count=2000, note=HAS_THEM)

    (view,) = await taken(house)
    assert (view.number, view.jobs, view.numbers, view.tasks, view.ended) == (1, 1, [1], 2000, 0)
    assert "cancelled" in view.why
    again = (await house.ask("POST", "/v1/snapshots/1/restore")).of(Restoration)
    assert again.jobs == [(1, 3)]
    assert (await house.job(3)).counts.ready == 2000
    copied = await house.ask("GET", "/v1/snapshots/1")
    assert copied.body == (house.data / "snapshots" / "000001.tercel").read_bytes()
    eve = (await house.token(Role.USER, "eve")).secret
    assert (await house.get("/v1/snapshots", SnapshotList, token=eve)).snapshots == []
    assert (await house.ask("POST", "/v1/snapshots/1/restore", token=eve)).status == 404


async def test_it_is_the_sum_over_all_that_is_cancelled_that_counts(house: House) -> None:
    for tasks in (1500, 600, 600, 5):
        await house.submit(array=f"0-{tasks - 1}")
    assert (await cancel(house, "1.0-499")).note == ""
    assert (await cancel(house, "1.0-1499")).note == "", "a thousand are left of these"
    assert (await cancel(house, "1-3")).note == HAS_THEM
    assert saved(house) == [(2, 0), (3, 0)]
    assert (await cancel(house, "all")) == Counted(count=5)


async def test_named_tasks_count_as_whole_jobs_do(house: House) -> None:
    await house.submit(array="0-1999")
    await house.submit(array="0-9")
    assert (await cancel(house, "1.0-1000", "2")).note == HAS_THEM
    assert saved(house) == [(1, 0), (2, 0)]


# -- before many tasks are given up ----------------------------------------------------------------------


async def test_many_tasks_are_put_into_a_snapshot_before_what_they_wait_for_is_given_up(house: House) -> None:
    for tester, tasks in (("tcp:licence.lab:27000", 1500), ("tcp:store.lab:443", 1000)):
        rule = {"on": "start", "tester": tester, "policy": "every 1h for 2d"}
        await house.submit(array=f"0-{tasks - 1}", block_on=[rule])
    few = await house.ask("POST", "/v1/conditions/2/fail", json={})
    assert few.of(Counted) == Counted(count=1000), "a thousand are not many"
    assert await taken(house) == []

    many = await house.ask("POST", "/v1/conditions/1/fail", json={"why": "no budget"})

    assert many.of(Counted) == Counted(count=1500, note=HAS_THEM)
    assert saved(house) == [(1, 0)]
    assert "given up" in (await taken(house))[0].why
    again = (await house.ask("POST", "/v1/snapshots/1/restore")).of(Restoration)
    assert (await house.job(again.jobs[0][1])).counts.blocked == 1500


async def test_what_clears_while_the_snapshot_is_taken_is_not_given_up(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"on": "start", "tester": "tcp:licence.lab:27000", "policy": "every 1h for 2d"}
    await house.submit(array="0-1999", block_on=[rule])
    save = house.manager.snapshots.save

    async def slowly(*args: Any) -> Any:
        assert (await house.ask("POST", "/v1/conditions/1/release", json={})).status == 200
        return await save(*args)

    monkeypatch.setattr(house.manager.snapshots, "save", slowly)
    refused = await house.ask("POST", "/v1/conditions/1/fail", json={})
    assert refused.status == 400
    assert "nothing waits for C1 any more" in refused.problem.detail
    assert (await house.job(1)).counts.ready == 2000


# -- before a rollback ------------------------------------------------------------------------------------


async def test_all_that_a_rollback_touches_is_put_into_a_snapshot_before(house: House) -> None:
    worker = await house.worker()
    await house.submit(name="first")
    await house.submit(name="under way", after=[{"job": 1}])
    await house.submit(name="behind that", after=[{"job": 2}])
    await house.submit(name="bystander", hold=True)
    await worker.report(await worker.offered(1))
    await worker.offered(2)

    asked = {"select": ["1.0"], "force": True}
    done = (await house.ask("POST", "/v1/rollback", json=asked)).of(RolledBack)

    assert done.under_way == ["2.0"]
    assert done.note == HAS_THEM
    assert saved(house) == [(1, 1), (2, 0), (3, 0)]
    assert "rolled back" in (await taken(house))[0].why


# -- before jobs are removed ------------------------------------------------------------------------------


async def test_what_is_removed_is_put_into_a_snapshot_before(house: House) -> None:
    await old_chain(house)
    await house.submit(hold=True)
    assert (await clean(house, dry_run=True)).note == ""
    assert await taken(house) == []

    gone = await clean(house)

    assert (gone.jobs, gone.note) == (2, HAS_THEM)
    assert saved(house) == [(1, 2), (2, 1)]
    assert "removed" in (await taken(house))[0].why
    again = (await house.ask("POST", "/v1/snapshots/1/restore")).of(Restoration)
    assert again.jobs == [(1, 4), (2, 5)]
    assert (await house.ask("GET", "/v1/jobs/4/tasks/1/logs")).body == b"a result"


async def test_cleaning_takes_no_snapshot_of_nothing_or_if_none_is_wanted(house: House) -> None:
    assert (await clean(house)).note == ""
    await old_chain(house)
    gone = await clean(house, snapshot=False)
    assert (gone.jobs, gone.note) == (2, "")
    assert await taken(house) == []


# -- without ----------------------------------------------------------------------------------------------


async def test_what_would_take_too_long_to_save_is_done_without_a_snapshot_and_that_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tercel.manager.snapshots.SAFETY_TASKS", 2)
    await old_chain(house)
    await house.submit(array="0-1999", after=[{"job": 2}], hold=True)
    without = "no snapshot was taken before: 3 tasks have ended, which would take too long"
    done = await cancel(house, "3")
    assert done == Counted(count=2000, note=without), "what is needed comes along"
    back = (await house.ask("POST", "/v1/rollback", json={"select": ["1.0"]})).of(RolledBack)
    assert back.note.startswith("no snapshot was taken before: ")
    assert await taken(house) == []


async def test_a_million_tasks_that_have_ended_are_not_too_many(house: House) -> None:
    await house.submit(array="0-1499999")
    assert (await cancel(house, "1.0-999999")).note == HAS_THEM
    assert (await cancel(house, "1.1000000-1099999")).note == "snapshot @2 has them as they were"
    assert saved(house, 2) == [(1, 1_000_000)]
    too_many = "no snapshot was taken before: 1,100,000 tasks have ended, which would take too long"
    assert (await cancel(house, "1")).note == too_many


async def test_outputs_larger_than_all_snapshots_may_be_are_removed_without_one(house: House) -> None:
    house.manager.options = msgspec.structs.replace(house.manager.options, snapshots_bytes=10)
    await old_chain(house)
    gone = await clean(house)
    assert gone.jobs == 2
    assert gone.note == (
        "no snapshot was taken before: the outputs of its tasks are larger than all snapshots together may be"
    )
    assert await taken(house) == []


async def test_a_snapshot_that_fails_keeps_nobody_from_anything(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> None:
        raise StoreFull("no room on the manager's disk")

    monkeypatch.setattr(house.manager.snapshots, "save", full)
    await old_chain(house)
    await house.submit(array="0-1999")
    note = "no snapshot was taken before: no room on the manager's disk"
    assert await cancel(house, "3") == Counted(count=2000, note=note)
    back = (await house.ask("POST", "/v1/rollback", json={"select": ["2.0"]})).of(RolledBack)
    assert (back.count, back.note) == (1, note)
    await cancel(house, "2")
    house.manager.clock = (lambda now: lambda: now + 7200)(house.manager.clock())
    gone = await clean(house)
    assert (gone.jobs, gone.note) == (3, note)
    await house.sound()
