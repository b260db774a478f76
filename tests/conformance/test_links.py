"""What every link does, checked on both."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tercel.links import websocket
from tercel.links.contract import LinkClosed, ManagerEnd, WorkerEnd
from tercel.links.local import LocalDialer, local_pair
from tercel.wire.messages import (
    Ack,
    Segment,
    Started,
)
from tests.worker.network import Server, close_all, large_offer

Pair = tuple[WorkerEnd, ManagerEnd]
Connect = Callable[[], Awaitable[Pair]]


@pytest.fixture(params=["local", "websocket"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Makes connected pairs and closes what the test left open."""
    pairs: list[Pair] = []
    async with Server().running() as server:

        async def new() -> Pair:
            pairs.append(local_pair() if request.param == "local" else await server.connect())
            return pairs[-1]

        yield new
        await close_all(*(end for pair in pairs for end in pair))


async def test_frames_arrive_in_order_in_both_directions(connect: Connect) -> None:
    worker, manager = await connect()

    async def talk(end: Any, message: type[Started] | type[Ack]) -> None:
        for number in range(500):
            await end.send([message([number]), message([-number])])

    async def listen(end: Any) -> list[list[list[int]]]:
        return [[m.attempts for m in await end.receive()] for _ in range(500)]

    got = await asyncio.gather(listen(worker), listen(manager), talk(worker, Started), talk(manager, Ack))
    assert got[0] == got[1] == [[[number], [-number]] for number in range(500)]


async def test_links_are_independent(connect: Connect) -> None:
    (worker1, manager1), (worker2, manager2) = await connect(), await connect()
    await worker1.send([Started([1])])
    await worker2.send([Started([2])])
    assert await manager2.receive() == [Started([2])]
    assert await manager1.receive() == [Started([1])]
    await close_all(worker1, manager1)
    await worker2.send([Started([3])])
    assert await manager2.receive() == [Started([3])]


@pytest.mark.parametrize("upward", [True, False])
async def test_a_slow_receiver_bounds_the_sender(connect: Connect, upward: bool) -> None:
    worker, manager = await connect()
    sender: Any = worker if upward else manager
    receiver: Any = manager if upward else worker
    frames, bound = 512, 160
    sent = 0

    async def send() -> None:
        nonlocal sent
        payload = bytes(256 * 1024)
        for number in range(frames):
            # Any message with a payload will do for the way down: the link does not look into it.
            message = Segment(number, "out", 0, payload) if upward else large_offer(number)
            await sender.send([message])
            sent += 1

    sending = asyncio.create_task(send())
    for received in range(frames):
        assert sent - received <= bound
        await receiver.receive()
    await sending
    assert sent == frames


@pytest.mark.parametrize("closed_by_worker", [True, False])
async def test_a_close_is_seen_by_both_after_what_was_sent_before_it(
    connect: Connect, closed_by_worker: bool
) -> None:
    worker, manager = await connect()
    mine: Any = worker if closed_by_worker else manager
    other: Any = manager if closed_by_worker else worker
    message: Any = Started if closed_by_worker else Ack
    await mine.send([message([1])])
    await mine.send([message([2])])
    closing = asyncio.create_task(mine.close())
    assert await other.receive() == [message([1])]
    assert await other.receive() == [message([2])]
    for _ in range(3):
        with pytest.raises(LinkClosed):
            await other.receive()
        with pytest.raises(LinkClosed):
            await other.send([Started([1]) if not closed_by_worker else Ack([1])])
    await closing
    for _ in range(3):
        with pytest.raises(LinkClosed):
            await mine.receive()
        with pytest.raises(LinkClosed):
            await mine.send([message([3])])
    await mine.close()
    await other.close()


async def test_closing_wakes_who_waits_to_receive_and_who_waits_to_send(connect: Connect) -> None:
    worker, manager = await connect()
    receiving = asyncio.create_task(worker.receive())

    async def flood() -> None:
        while True:
            await worker.send([Segment(1, "out", 0, bytes(2**20))])

    flooding = asyncio.create_task(flood())
    await manager.receive()
    await worker.close()
    with pytest.raises(LinkClosed):
        await receiving
    with pytest.raises(LinkClosed):
        await flooding


async def test_the_other_ends_close_wakes_a_blocked_sender(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_LIMIT_S", 0.2)  # the worker does not read its farewell
    worker, manager = await connect()

    async def flood() -> None:
        while True:
            await worker.send([Segment(1, "out", 0, bytes(2**20))])

    flooding = asyncio.create_task(flood())
    await manager.receive()
    await manager.close()
    with pytest.raises(LinkClosed):
        await flooding


async def test_a_receive_that_is_cancelled_loses_nothing(connect: Connect) -> None:
    worker, manager = await connect()
    for number in range(20):
        waiting = asyncio.create_task(manager.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await worker.send([Started([number])])
        assert await manager.receive() == [Started([number])]


async def test_an_empty_frame_is_not_delivered(connect: Connect) -> None:
    worker, manager = await connect()
    await worker.send([])
    await worker.send([Started([1])])
    assert await manager.receive() == [Started([1])]


async def test_the_local_dialer_hands_the_other_end_to_the_manager() -> None:
    accepted: list[ManagerEnd] = []
    worker = await LocalDialer(accepted.append).dial()
    await worker.send([Started([1])])
    assert await accepted[0].receive() == [Started([1])]
