"""A worker that is honest, and one in the hands of a test that is not."""

import asyncio

import msgspec

from tercel.core.invariants import violations
from tercel.core.reports import Report
from tercel.wire.api import JobView
from tests.api.house import House, Scripted

pack = msgspec.msgpack.encode


async def does_the_rest(house: House, worker: Scripted) -> JobView:
    """The worker does whatever it is offered until job 1 has ended."""
    ended = asyncio.create_task(house.ended(1))
    while not ended.done():
        offered = asyncio.create_task(worker.offered())
        await asyncio.wait([offered, ended], return_when=asyncio.FIRST_COMPLETED)
        if offered.done():
            await worker.report(offered.result())
        else:
            offered.cancel()
    return await ended


class Scene:
    """Job 1 has five tasks. Two are at `good`, one is at `bad`, two wait."""

    def __init__(self, house: House, good: Scripted, bad: Scripted) -> None:
        self.house = house
        self.good = good
        self.bad = bad
        self.goods: list[Report] = []
        self.bads: list[Report] = []

    @property
    def mine(self) -> Report:
        """The report that `bad` could honestly make."""
        return self.bads[0]

    @property
    def theirs(self) -> Report:
        return self.goods[0]

    async def set(self) -> None:
        await self.house.submit(array="0-4")
        for worker, reports, count in ((self.good, self.goods, 2), (self.bad, self.bads, 1)):
            await worker.join(cpus=count)
            for _ in range(count):
                reports.append(await worker.offered())

    def number(self) -> int:
        """Of the next frame that `bad` sends."""
        return self.bad.end._session._number()

    async def throw(self, messages: object, number: int | None = None) -> None:
        """A frame of anything."""
        await self.bad.throw(pack([self.number() if number is None else number, messages]))

    async def cut_off(self) -> str:
        """Why, as the pool tells it."""
        await self.bad.hung_up()
        await self.house.until(lambda: not self.house.manager.machine.workers["bad"].online, "it is gone")
        return (await self.house.pool()).workers[-1].note

    async def sound(self) -> None:
        assert violations(self.house.manager.machine) == []
        await self.house.sound()

    async def end(self) -> None:
        """`bad` goes; `good` does all that is left: every task has ended well, and once."""
        await self.sound()
        await self.bad.close()
        for report in self.goods:
            await self.good.report(report)
        assert (await does_the_rest(self.house, self.good)).counts.finished == 5
        tasks = (await self.house.tasks(1)).tasks
        assert [task.task for task in tasks] == [0, 1, 2, 3, 4]
        assert all(len(task.attempts) == 1 for task in tasks)
        await self.house.sound()

    async def unmoved(self) -> None:
        """Nothing has ended, and what was said is acknowledged: the worker need not say it again."""
        await self.sound()
        counts = (await self.house.job(1)).counts
        assert counts.finished + counts.failed + counts.cancelled == 0
        assert (await self.house.task(1, self.theirs.task)).worker == "good"
