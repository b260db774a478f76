"""A manager that was restarted knows what was tried before, by whom, and what is new."""

from pathlib import Path

import pytest

from tercel.core.books import EPOCH_BITS
from tercel.core.presence import Held
from tests.api.house import House, Scripted, done, open_house


async def next_of(worker: Scripted, count: int) -> dict[int, int]:
    """So many tasks that it is given, and which attempts of them these are."""
    offered = [await worker.offered() for _ in range(count)]
    return {report.task: report.attempt for report in offered}


async def attempts(house: House, task: int) -> list[tuple[int, int]]:
    """Of a task that ended: in which life of the manager they were begun, and their exit code."""
    return [(one.attempt >> EPOCH_BITS, one.code) for one in (await house.task(1, task)).attempts]


@pytest.mark.T(1)
async def test_what_was_tried_before_a_restart_is_told_from_what_is_new(home: Path) -> None:
    async with open_house(home / "data") as house:
        before = house.manager.machine.epoch
        worker = await house.worker("w", cpus=2)
        await house.submit(array="0-3", retries=1, backoff_s=3600.0)
        begun = await next_of(worker, 2)
        assert set(begun) == {0, 1}
        await worker.report(done(1, 0, begun[0]), code=3)
        begun |= await next_of(worker, 1)
        assert set(begun) == {0, 1, 2}
        assert {attempt >> EPOCH_BITS for attempt in begun.values()} == {before}

    async with open_house(home / "data") as house:
        after = house.manager.machine.epoch
        assert after > before
        assert [await attempts(house, task) for task in range(4)] == [[(before, 3)], [], [], []]
        for task in (1, 2):
            assert (await house.task(1, task)).why.startswith("was offered to w, which is away"), "it is its"
        assert (await house.explain("1.3")).startswith("no worker is connected"), "nobody has had it"
        worker = await house.worker("w", cpus=9, held=[Held(1, 1, begun[1], True, False)])
        anew = await next_of(worker, 3)
        assert set(anew) == {0, 2, 3}, "what it still has is not given out again"
        assert {attempt >> EPOCH_BITS for attempt in anew.values()} == {after}
        for task in (0, 3):
            await worker.report(done(1, task, anew[task]), code=4)
        assert ((await house.task(1, 0)).state, await attempts(house, 0)) == (
            "failed",
            [(before, 3), (after, 4)],
        )
        assert ((await house.task(1, 3)).state, await attempts(house, 3)) == ("waiting", [(after, 4)])
