"""A worker that floods or dozes, and one that is sent very much."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tercel.core.filling import HELD_MOST
from tercel.core.model import Needs
from tercel.core.presence import WorkerState
from tercel.manager import conversation
from tercel.wire.messages import (
    Ack,
    Offer,
    Ping,
    Presence,
    Reports,
    Returned,
    Started,
)
from tests.api.house import GIB, House, Scripted, done, open_house
from tests.api.scene import Scene, pack
from tests.api.test_clients import growth

pytestmark = pytest.mark.must("f")


# -- floods and silence -----------------------------------------------------------------------------------


async def test_a_flood_of_nonsense_is_heard_and_forgotten(scene: Scene) -> None:
    strange = list(range(100_000))
    grown = growth()
    for _ in range(5):
        await scene.bad.say(Started(strange), Returned(strange))
        await scene.bad.say(*[Presence(WorkerState.BUSY, Needs(1000, GIB))] * 1000)
        await scene.bad.say(Reports([done(1, 99, attempt) for attempt in strange[:10_000]]))
    await scene.bad.settled()
    assert grown() < 100
    await scene.unmoved()


async def test_a_worker_that_reports_without_end_and_reads_nothing_is_soon_not_heard(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is owed in acknowledgements is bounded: then it is not read from until it reads."""
    bound, batch = 5000, 1000
    monkeypatch.setattr(conversation, "OWED_MOST", bound)
    async with open_house(home / "data", heartbeat_s=0.5) as house:
        deaf = await house.worker("deaf")
        deaf._listening.cancel()
        transport: Any = deaf.end._transport()
        transport.pause_reading()
        reports = Reports([done(99, 0, 10**15 + attempt) for attempt in range(batch)])

        async def flood() -> None:
            while True:
                await deaf.say(reports)

        flooding = asyncio.create_task(flood())
        link = house.manager.telling._conversations["deaf"]
        most = 0

        def gone() -> bool:
            nonlocal most
            most = max(most, link._owed)
            return not house.manager.telling._conversations

        await house.until(gone, "the manager has had enough")
        assert bound < most <= bound + batch
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        await house.still_works()


async def test_a_worker_that_reads_nothing_loses_its_tasks_to_the_others(home: Path) -> None:
    async with open_house(home / "data", heartbeat_s=0.5, grace_s=0.1) as house:
        await house.submit(array="0-1")
        deaf = await house.worker("deaf")
        await deaf.offered()
        deaf._listening.cancel()
        transport: Any = deaf.end._transport()
        transport.pause_reading()
        await house.until(lambda: not house.manager.machine.workers["deaf"].online, "its silence is noticed")
        other = await house.worker("other", cpus=2)
        ended = asyncio.create_task(house.ended(1))
        for _ in range(2):
            await other.say(Presence(WorkerState.BUSY, Needs(2000, GIB)))
            await other.report(await other.offered())
        assert (await ended).counts.finished == 2
        await house.sound()


async def test_a_worker_that_says_hello_and_nothing_more_is_given_up(home: Path) -> None:
    async with open_house(home / "data", heartbeat_s=0.5, grace_s=0.1) as house:
        await house.submit()
        silent = await house.worker("silent")
        await silent.offered()
        assert await silent.hung_up()
        assert silent.all(Ping), "it was asked whether it lives"
        other = await house.worker("other")
        await other.report(await other.offered())
        assert (await house.ended(1)).counts.finished == 1
        await house.sound()


async def test_empty_frames_are_not_a_sign_of_life(home: Path) -> None:
    async with open_house(home / "data", heartbeat_s=0.3) as house:
        bad = await house.worker("bad")

        async def babble() -> None:
            while True:
                await bad.throw(pack([bad.end._session._number(), []]))
                await asyncio.sleep(0)

        babbling = asyncio.create_task(babble())
        assert await bad.hung_up()
        babbling.cancel()
        await asyncio.gather(babbling, return_exceptions=True)
        await house.sound()


async def test_a_thousand_names_from_one_token_are_forgotten_in_time(house: House) -> None:
    for number in range(200):
        worker = Scripted(await house.dial(), f"w{number}")
        await worker.join()
        await worker.close()
    await house.until(lambda: not house.manager.telling._conversations, "all are gone")
    pool = await house.pool()
    assert pool.online == 0
    house.manager.machine.tick(house.manager.clock() + 4000)
    house.manager.machine.tick(house.manager.clock() + 8000)
    assert house.manager.machine.workers == {}


async def test_a_worker_that_claims_a_million_cpus_is_given_what_the_manager_can_bear(house: House) -> None:
    await house.submit(array="0-9999999", cpus=0.001)
    grown = growth()
    boaster = await house.worker(cpus=1_000_000)
    first = await boaster.offered()
    await boaster.until(lambda: sum(_sizes(boaster)) >= HELD_MOST, "all that it may hold")
    await boaster.settled()
    assert sum(_sizes(boaster)) == HELD_MOST
    assert grown() < 50
    await boaster.report(first)
    await boaster.until(lambda: sum(_sizes(boaster)) == HELD_MOST + 1, "one more for one done")
    await house.sound()


# -- what it is sent --------------------------------------------------------------------------------------


async def test_lines_that_are_long_and_many_are_offered_in_frames_that_a_link_takes(house: House) -> None:
    """Else the link would close at the first of them, and at the first of the next link, for ever."""
    lines = [f"{number} " + "x" * 60_000 for number in range(400)]
    await house.submit(lines=lines)
    worker = await house.worker(cpus=400)
    offers = await worker.until(
        lambda: [o for o in worker.all(Offer) if sum(_sizes(worker)) == 400], "all are there"
    )
    got = {
        offer.first + at: (line, offer.first_attempt + at)
        for offer in offers
        for at, line in enumerate(offer.lines or [])
    }
    assert [got[task][0] for task in range(400)] == lines
    await worker.say(Reports([done(1, task, attempt) for task, (_, attempt) in got.items()]))
    assert (await house.ended(1)).counts.finished == 400
    await house.sound()


async def test_a_hundred_thousand_acknowledgements_are_sent_in_frames_that_a_link_takes(house: House) -> None:
    worker = await house.worker()
    attempts = [2**62 + number for number in range(300_000)]
    for start in range(0, 300_000, 100_000):
        await worker.say(Reports([done(9, 0, attempt) for attempt in attempts[start : start + 100_000]]))
    await worker.until(lambda: sum(len(ack.attempts) for ack in worker.all(Ack)) == 300_000)
    await house.sound()


def _sizes(worker: Scripted) -> list[int]:
    return [offer.last - offer.first + 1 for offer in worker.all(Offer)]
