"""A manager on the store of an earlier version, whose testers wrote the same otherwise."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.house import House, Scripted, open_house

DISK = {"on": "exit:75", "tester": "disk:/scratch>=20G", "at": "site", "policy": "every 1h for 2h"}
OLD, NEW = "disk:/scratch>=21474836480B", "disk:/scratch>=20G"


@pytest.fixture
async def kept(home: Path) -> Path:
    """Of job 1 one task is blocked and one held; job 2 has failed. A tester that nobody would take any more is in job 3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tercel.testers.files._exact", lambda size_bytes: f"{size_bytes}B")
        patch.setattr("tercel.testers.files.MOST_BYTES", 2**70)
        async with open_house(home / "data") as house:
            worker = await house.worker()
            await house.submit(array="0-1", block_on=[DISK])
            for _ in range(2):
                await met(worker)
            await house.ask("POST", "/v1/hold", json={"select": ["1.0"]})
            await house.submit(block_on=[DISK])
            await worker.report(await worker.offered(), code=1)
            await house.submit(hold=True, block_on=[{**DISK, "tester": "disk:/scratch>=9000P"}])
            assert waited_for(house) == {OLD: 1}
    return home / "data"


async def met(worker: Scripted) -> None:
    await worker.report(await worker.offered(), code=75)


def waited_for(house: House) -> dict[str, int]:
    """What is waited for, and by how many."""
    conditions = house.manager.machine.conditions.values()
    assert len({one.row.tester for one in conditions}) == len(conditions)
    return {one.row.tester: one.count for one in conditions}


async def test_jobs_from_before_and_after_an_upgrade_wait_for_the_same(kept: Path) -> None:
    async with open_house(kept) as house:
        assert waited_for(house) == {NEW: 1}
        worker = await house.worker()
        await house.submit(block_on=[DISK])
        await met(worker)
        assert waited_for(house) == {NEW: 2}, "a new job joins"
        await house.ask("POST", "/v1/release", json={"select": ["1.0"]})
        assert waited_for(house) == {NEW: 3}, "so does a task that was held"
        await house.ask("POST", "/v1/retry", json={"select": ["2"]})
        await met(worker)
        assert waited_for(house) == {NEW: 4}, "and a job that had ended"
        await house.sound()


async def test_what_testers_would_not_take_any_more_is_kept_as_it_was(kept: Path) -> None:
    async with open_house(kept) as house:
        assert rule(await house.ask("GET", "/v1/jobs/3"))["tester"] == f"disk:/scratch>={9000 * 2**50}B"
        assert rule(await house.ask("GET", "/v1/jobs/1"))["tester"] == NEW


def rule(answer: Any) -> Any:
    return answer.json["block_on"][0]
