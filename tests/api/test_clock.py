"""The machine's clock is set, and nothing comes too late or too early for it."""

import logging
import time

import pytest

from tercel.manager.clock import WatchedClock
from tests.api.house import House

HOUR = 3600.0


class Computer:
    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.up = 500.0
        self.clock = WatchedClock(lambda: self.wall, lambda: self.up)
        self.told: list[float] = []
        self.clock.on_set = self.told.append

    def passes(self, seconds: float) -> float:
        self.wall += seconds
        self.up += seconds
        return self.clock()


@pytest.mark.parametrize("set_by", [-24 * HOUR, -HOUR, HOUR, 365 * 24 * HOUR])
def test_who_goes_by_a_clock_hears_by_how_much_it_was_set(
    set_by: float, caplog: pytest.LogCaptureFixture
) -> None:
    computer = Computer()
    computer.passes(10.0)
    computer.wall += set_by
    with caplog.at_level(logging.WARNING):
        assert computer.passes(7.0) == computer.wall
        computer.passes(HOUR)
    assert computer.told == [pytest.approx(set_by)]
    assert len(caplog.records) == 1
    assert ("back" in caplog.text) is (set_by < 0)


def test_a_clock_that_drifts_is_simply_followed(caplog: pytest.LogCaptureFixture) -> None:
    computer = Computer()
    for _ in range(1000):
        computer.wall += 0.01
        assert computer.passes(60.0) == computer.wall
    assert not computer.told
    assert not caplog.records


def test_the_time_since_boot_does_not_follow_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    clock = WatchedClock(lambda: time.time())
    told: list[float] = []
    clock.on_set = told.append
    monkeypatch.setattr(time, "time", lambda: real() + HOUR)
    clock()
    assert told == [pytest.approx(HOUR, abs=60.0)]


async def test_a_manager_whose_clock_is_set_tests_when_it_was_to(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await house.worker()
    rule = {"on": "exit:75", "tester": "tcp:127.0.0.1:9", "policy": "every 1h for 2h"}
    await house.submit(block_on=[rule])
    await worker.report(await worker.offered(), code=75)
    machine = house.manager.machine
    (condition,) = machine.conditions.values()
    left_s = condition.row.next_test_at - house.manager.clock()
    real = time.time
    for set_by in (30 * 24 * HOUR, -30 * 24 * HOUR):
        monkeypatch.setattr(time, "time", lambda set_by=set_by: real() + set_by)
        monkeypatch.setattr(house.manager.clock, "_wall", time.time)
        now = house.manager.clock()
        assert condition.row.next_test_at - now == pytest.approx(left_s, abs=60.0)
        assert (await house.task(1, 0)).state == "blocked"
    await house.sound()
