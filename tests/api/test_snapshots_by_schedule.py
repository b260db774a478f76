"""Snapshots that the manager takes by schedule, and how long those that it takes by itself are kept."""

from pathlib import Path

import msgspec
import pytest

from tercel.manager.snapshots import SCHEDULED, outdated
from tercel.stores.snapshot.checking import check
from tercel.wire.api_snapshots import SnapshotList
from tests.api.house import House, open_house

pytestmark = pytest.mark.C(8)


async def test_a_manager_that_serves_takes_them_by_itself(home: Path) -> None:
    async with open_house(home / "data", snapshot_every_s=0.01) as house:
        await house.submit(hold=True)
        snapshots = house.manager.snapshots
        first = await house.until(lambda: snapshots._numbers(), "one was taken")
        await house.until(lambda: snapshots._numbers()[-1] > first[-1], "and another")
        found = (await house.get("/v1/snapshots", SnapshotList)).snapshots
        assert {(view.why, view.jobs) for view in found} == {(SCHEDULED, 1)}


async def test_unfinished_jobs_are_saved_by_schedule_and_old_snapshots_go(house: House) -> None:
    await house.submit(hold=True)
    snapshots, now = house.manager.snapshots, [house.manager.clock()]
    house.manager.clock = lambda: now[0]
    house.manager.options = msgspec.structs.replace(house.manager.options, snapshots_kept=3)
    assert 3590 < await snapshots.take_if_due(3600.0) <= 3600
    assert (await house.get("/v1/snapshots", SnapshotList)).snapshots == []
    for _ in range(5):
        now[0] += 3601
        await snapshots.take_if_due(3600.0)
        assert await snapshots.take_if_due(3600.0) > 3000, "it is not due again"
    found = (await house.get("/v1/snapshots", SnapshotList)).snapshots
    assert [view.number for view in found] == [5, 4, 3]
    assert {view.why for view in found} == {SCHEDULED}
    assert len(check(house.data / "snapshots" / "000005.tercel").jobs) == 1


async def test_a_clock_that_is_set_back_makes_none_late(house: House) -> None:
    await house.submit(hold=True)
    snapshots, now = house.manager.snapshots, [house.manager.clock()]
    house.manager.clock = lambda: now[0]
    now[0] += 3601
    await snapshots.take_if_due(3600.0)
    now[0] -= 30 * 86_400
    await snapshots.take_if_due(3600.0)
    found = (await house.get("/v1/snapshots", SnapshotList)).snapshots
    assert [view.number for view in found] == [2, 1]
    assert await snapshots.take_if_due(3600.0) > 3000, "and not again at once"


async def test_rollbacks_in_a_row_leave_what_was_saved_by_schedule(house: House) -> None:
    house.manager.options = msgspec.structs.replace(house.manager.options, snapshots_kept=2)
    worker = await house.worker()
    await house.submit(hold=True)
    snapshots, now = house.manager.snapshots, [house.manager.clock()]
    house.manager.clock = lambda: now[0]
    for _ in range(2):
        now[0] += 3601
        await snapshots.take_if_due(3600.0)
    await house.submit(name="again and again")
    for _ in range(4):
        await worker.report(await worker.offered(2), code=1)
        await house.ended(2)
        assert (await house.ask("POST", "/v1/rollback", json={"select": ["2"]})).status == 200
    found = (await house.get("/v1/snapshots", SnapshotList)).snapshots
    assert [(view.number, view.why == SCHEDULED) for view in found] == [
        (6, False),
        (5, False),
        (2, True),
        (1, True),
    ]


@pytest.mark.parametrize(
    ("scheduled", "before", "most", "most_bytes", "gone"),
    [
        ({}, {}, 2, 10, set()),
        ({1: 1, 3: 1, 5: 1}, {2: 1, 4: 1, 6: 1, 7: 1}, 2, 10, {1, 2, 4}),
        ({1: 3, 2: 3}, {3: 1, 4: 1, 5: 1}, 9, 8, {1}),
        ({1: 1, 2: 1}, {3: 3, 4: 3, 5: 3}, 9, 6, {3, 4}),
        ({1: 5}, {2: 1, 3: 1}, 9, 6, {2}),
        ({1: 9}, {2: 1, 3: 1}, 9, 6, {1, 2}),
        ({1: 1, 2: 1}, {3: 9}, 9, 6, {1, 2}),
        ({7: 9}, {}, 1, 6, set()),
    ],
)
def test_which_go_is_decided_by_kind_number_and_size(
    scheduled: dict[int, int], before: dict[int, int], most: int, most_bytes: int, gone: set[int]
) -> None:
    found = outdated((before, scheduled), most, most_bytes)
    assert (set(found), len(found)) == (gone, len(gone))
