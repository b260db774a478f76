"""A worker that connects again while the answer to its first Hello still waits for the disk."""

import threading

import pytest

from tercel.core.model import Needs
from tercel.core.presence import WorkerInfo
from tercel.links.websocket import WebSocketDialer
from tercel.wire.messages import PROTOCOL, Brief, Hello, Offer, Welcome
from tests.api.house import House


def hello(instance: str) -> Hello:
    return Hello(PROTOCOL, "again", instance, WorkerInfo(node="n", capacity=Needs(1000, 2**30)), [])


@pytest.mark.must("c")
async def test_each_link_is_welcomed_once_and_nothing_of_the_older_one_reaches_it(house: House) -> None:
    dialer = WebSocketDialer(house.url, house.admin)
    job = await house.submit(array="0-9")
    store = house.manager.store
    commit, gate = store.commit, threading.Event()

    def slow_commit() -> None:
        gate.wait(30)
        commit()

    store.commit = slow_commit  # type: ignore[method-assign]
    first = await dialer.dial()
    await first.send([hello("1")])
    await house.until(lambda: "again" in house.manager.machine.workers, "the first Hello was heard")
    second = await dialer.dial()
    await second.send([hello("2")])
    await house.until(lambda: house.manager.machine.workers["again"].instance == "2", "so was the second")
    gate.set()
    messages = await second.receive()
    while not any(isinstance(message, Offer) for message in messages):
        messages += await second.receive()
    assert [type(message) for message in messages].count(Welcome) == 1
    assert isinstance(messages[0], Welcome)
    held = house.manager.machine.workers["again"].flights
    offered = [
        m.first_attempt + n for m in messages if isinstance(m, Offer) for n in range(m.last - m.first + 1)
    ]
    assert set(offered) == set(held), "only what this link's books say"
    assert job.id in house.manager.machine.jobs
    await first.close()
    await second.close()


@pytest.mark.parametrize("parts", [True, False], ids=["closed", "half open"])
async def test_on_a_new_link_a_job_is_told_anew_before_its_tasks_are(house: House, parts: bool) -> None:
    """The worker keeps no brief of a link that is gone, and takes tasks without one for a broken protocol."""
    await house.submit(array="0-1")
    before = await house.worker("again", instance="i1")
    assert (await before.next(Brief)).job == 1
    if parts:
        await before.close()
    after = await house.worker("again", instance="i2")
    await after.next(Offer)
    assert next(type(told) for told in after.heard if isinstance(told, Brief | Offer)) is Brief
