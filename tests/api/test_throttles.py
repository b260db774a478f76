"""Throttles that a manager was started with bound what it gives out and lets go; its clock goes by only when a test says so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tercel.cli.listening import manager_options
from tercel.core.conditions import Verdict
from tercel.core.model import Needs
from tercel.core.presence import WorkerInfo
from tercel.core.throttles import Rate, Rates
from tercel.manager.clock import WatchedClock
from tercel.wire.messages import Offer, Probe, Probed
from tests.api.house import GIB, House, Scripted, open_house

pytestmark = pytest.mark.T(10, 11)


class Throttled:
    def __init__(self, house: House) -> None:
        self.house = house
        clock = house.manager.clock
        assert isinstance(clock, WatchedClock)
        stopped_at = clock()
        self._gone_s = 0.0
        # Both: else it would be a clock that was set.
        clock._wall = lambda: stopped_at + self._gone_s
        clock._steady = lambda: self._gone_s
        clock._looked = clock._wall(), clock._steady()

    def passes(self, seconds: float) -> None:
        self._gone_s += seconds
        self.house.manager.wake()

    async def worker(self, node: str, cpus: int) -> Scripted:
        info = WorkerInfo(node=node, capacity=Needs(cpus * 1000, GIB), version="test", python="3.11.7")
        return await self.house.worker(node, info=info)

    async def given(self, count: int, *workers: Scripted) -> list[int]:
        """How many tasks each has been given, once it is so many in all: not one more is, for who waits is told why."""
        await self.house.until(lambda: sum(map(offered, workers)) >= count, f"{count} tasks are given out")
        await self.house.explain("1")
        return [offered(worker) for worker in workers]


def offered(worker: Scripted) -> int:
    return sum(offer.last - offer.first + 1 for offer in worker.all(Offer))


@asynccontextmanager
async def throttled(home: Path, *throttle: str) -> AsyncIterator[Throttled]:
    """A manager as the command line would start it with `--throttle`."""
    options = manager_options(
        host="127.0.0.1",
        port=0,
        data=home / "data",
        grace="60s",
        heartbeat="10s",
        snapshot_every="off",
        keep_snapshots=10,
        keep_snapshot_bytes="4G",
        keep_history="off",
        throttle=throttle,
    )
    async with open_house(options.data, rates=options.rates) as house:
        yield Throttled(house)


async def test_so_many_start_and_the_others_say_until_when_they_wait(home: Path) -> None:
    async with throttled(home, "starts=2/10s") as pool:
        worker = await pool.worker("n1", cpus=20)
        await pool.house.submit(array="0-9")
        assert await pool.given(2, worker) == [2]
        told = "starts are throttled: 2 per 10 s in all, no limit on one node; the next goes in"
        assert await pool.house.explain("1.9") == f"{told} 10 s"
        pool.passes(4.0)
        assert await pool.house.explain("1.9") == f"{told} 6 s"
        assert await pool.given(2, worker) == [2]
        for total in (4, 6, 8, 10):
            pool.passes(10.0)
            assert await pool.given(total, worker) == [total]


async def test_so_many_start_on_each_node(home: Path) -> None:
    async with throttled(home, "launches=3/10s") as pool:
        workers = [await pool.worker(node, cpus=20) for node in ("n1", "n2")]
        await pool.house.submit(array="0-9")
        assert await pool.given(6, *workers) == [3, 3]
        assert await pool.house.explain("1.9") == (
            "starts are throttled: no limit in all, 3 per 10 s on one node; the next goes in 10 s"
        )
        pool.passes(10.0)
        assert sum(await pool.given(10, *workers)) == 10


async def test_one_condition_lets_so_many_go(home: Path) -> None:
    async with throttled(home, "releases=3/10m") as pool:
        house, worker = pool.house, await pool.worker("n1", cpus=20)
        rule = {"on": "exit:75", "tester": "tcp:licence.lab:27000", "policy": "every 1m for 2d"}
        await house.submit(array="0-7", block_on=[rule])
        for _ in range(8):
            await worker.report(await worker.offered(), code=75)
        pool.passes(60.0)
        for number, left in enumerate((5, 5, 2, 2, 0)):
            await worker.say(Probed((await worker.next(Probe, number)).number, Verdict(True)))
            await worker.settled()
            assert (await house.job(1)).counts.blocked == left
            if number % 2:  # the next wave has no room before the first is old enough
                assert "; tested again in 9 min" in await house.explain("1.7")
            pool.passes(540.0 if number % 2 else 60.0)
        assert await pool.given(16, worker) == [16]


async def test_the_profile_has_the_papers_settings(home: Path) -> None:
    async with throttled(home, "tapis") as pool:
        machine = pool.house.manager.machine
        assert machine.settings.rates == Rates(
            starts=Rate(10, 2.0), launches=Rate(8, 2.0), releases=Rate(10, 1.0)
        )
        workers = [await pool.worker(node, cpus=20) for node in ("n1", "n2")]
        await pool.house.submit(array="0-39")
        for total in (10, 20, 30, 40):
            assert sum(await pool.given(total, *workers)) == total
            pool.passes(2.0)
        alone = await pool.worker("n3", cpus=20)
        for worker in workers:
            await worker.close()
        await pool.house.submit(array="0-39", priority=0)
        assert await pool.given(8, alone) == [8]
