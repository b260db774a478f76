"""The machine's clock is set, and nothing comes too late or too early for it."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.manager.clock import SteadyClock
from tests.api.house import House

HOUR = 3600.0
DAY = 24 * HOUR


class Machine:
    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.up = 500.0
        self.clock = SteadyClock(lambda: self.wall, lambda: self.up)

    def passes(self, seconds: float) -> float:
        self.wall += seconds
        self.up += seconds
        return self.clock()


@pytest.mark.parametrize("set_by", [-DAY, -HOUR, HOUR, DAY])
def test_a_clock_that_is_set_neither_jumps_nor_stays_wrong(
    set_by: float, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    before = machine.passes(10.0)
    machine.wall += set_by
    with caplog.at_level(logging.WARNING):
        assert machine.clock() == before
        assert 0.5 <= machine.passes(1.0) - before <= 1.5
    assert [record.levelname for record in caplog.records] == ["WARNING"], "told, and once"
    assert ("back" in caplog.text) is (set_by < 0)
    for _ in range(200):
        machine.passes(abs(set_by) / 50)
    assert machine.clock() == pytest.approx(machine.wall)


def test_a_clock_that_drifts_is_followed_and_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    for _ in range(100):
        machine.wall += 0.01
        machine.passes(60.0)
    assert machine.clock() == pytest.approx(machine.wall)
    assert not caplog.records


@given(st.lists(st.tuples(st.floats(0.0, DAY), st.floats(-DAY, DAY)), max_size=50))
def test_time_never_goes_back_and_passes_at_half_to_half_as_fast_again(
    steps: list[tuple[float, float]],
) -> None:
    machine = Machine()
    now = machine.clock()
    for passed, set_by in steps:
        machine.wall += set_by
        then = machine.passes(passed)
        assert 0.5 * passed - 1e-3 <= then - now <= 1.5 * passed + 1e-3
        now = then


async def test_the_manager_goes_by_such_a_clock(house: House) -> None:
    assert isinstance(house.manager.clock, SteadyClock)
