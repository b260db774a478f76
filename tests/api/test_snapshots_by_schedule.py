"""Snapshots that the manager takes by schedule."""

from pathlib import Path

import msgspec
import pytest

from tercel.manager.snapshots import SCHEDULED
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
