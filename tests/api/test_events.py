"""Streams of events: first how things stand, then what changes, merged for the slow, until all is done."""

import asyncio
from pathlib import Path
from typing import Self

import msgspec
import pytest

from tercel.core.presence import Held
from tercel.manager import logs, streams
from tercel.wire.api import Counts, Event
from tercel.wire.messages import Reports, Started, Tail, TailData
from tests.api.house import House, Raw, inline, open_house
from tests.api.test_clients import head


class Watcher:
    """Reads a stream event by event, as slowly as a test likes."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._events: list[Event] = []
        self.comments = 0

    @classmethod
    async def of(cls, house: House, query: str) -> Self:
        raw = await house.raw()
        await raw.send(head(house, "GET", f"/v1/events?{query}"))
        answer = await raw.reader.readuntil(b"\r\n\r\n")
        assert b" 200 OK" in answer and b"text/event-stream" in answer
        return cls(raw)

    async def next(self) -> Event | None:
        """None: the stream has ended."""
        while not self._events:
            async with asyncio.timeout(30):
                size = int(await self._raw.reader.readline(), 16)
                chunk = await self._raw.reader.readexactly(size + 2)
            if size == 0:
                return None
            for text in chunk.split(b"\n\n"):
                if text.startswith(b"data: "):
                    self._events.append(msgspec.json.decode(text[6:], type=Event))
                self.comments += text.startswith(b":")
        return self._events.pop(0)

    async def rest(self) -> list[Event]:
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events

    async def until_comment(self) -> None:
        while not self.comments:
            size = int(await self._raw.reader.readline(), 16)
            self.comments += (await self._raw.reader.readexactly(size + 2)).startswith(b":")


async def test_the_first_event_tells_how_things_stand(house: House) -> None:
    worker = await house.worker(cpus=2)
    await house.submit(array="0-4")
    first = await worker.offered()
    second = await worker.offered()
    await worker.report(first)
    await worker.say(Started([second.attempt]))
    await worker.settled()
    watcher = await Watcher.of(house, "job=1")
    event = await watcher.next()
    assert event == Event(job=1, counts=Counts(finished=1, running=1, offered=1, ready=2))


async def test_the_first_event_of_a_job_that_has_ended_is_its_last(house: House) -> None:
    await house.submit(array="0-1")
    await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
    watcher = await Watcher.of(house, "job=1&tasks=true")
    assert await watcher.rest() == [Event(job=1, counts=Counts(cancelled=2), ended=[(0, 1)], done=True)]


async def test_with_tasks_the_first_event_tells_all_that_ended_so_far(house: House) -> None:
    """Who watches from the second on must not miss the outputs of the first."""
    worker = await house.worker(cpus=3)
    await house.submit(array="0-5")
    for code in (0, 1, 0):
        await worker.report(await worker.offered(), code=code, out=inline(b"x"))
    await house.ask("POST", "/v1/cancel", json={"select": ["1.5"]})
    event = await (await Watcher.of(house, "job=1&tasks=true")).next()
    assert event is not None
    assert event.ended == [(0, 2), (5, 5)]
    assert event.spoke == [(0, 2)]
    assert event.done is False


async def test_the_end_of_each_task_is_told_and_of_those_that_never_ran_with_the_jobs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "EVENT_GAP_S", 0.0)
    worker = await house.worker()
    await house.submit(array="0-3")
    watcher = await Watcher.of(house, "job=1&tasks=true")
    await watcher.next()
    await worker.report(await worker.offered(), out=inline(b"hello"))
    await worker.report(await worker.offered())
    await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
    events = await watcher.rest()
    ended = [number for event in events for number in event.ended]
    assert sorted({n for first, last in ended for n in range(first, last + 1)}) == [0, 1, 2, 3]
    assert [span for event in events for span in event.spoke] == [(0, 0)]
    assert events[-1].done and events[-1].counts == Counts(finished=2, cancelled=2)
    assert not any(event.done for event in events[:-1])
    for event in events:
        assert sum(getattr(event.counts, name) for name in event.counts.__struct_fields__) == 4


async def test_without_tasks_no_tasks_are_told(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    watcher = await Watcher.of(house, "job=1")
    await worker.report(await worker.offered(), out=inline(b"hello"))
    assert all(event.ended == [] and event.spoke == [] for event in await watcher.rest())


async def test_what_happens_between_two_events_is_merged_into_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "EVENT_GAP_S", 1000.0)
    worker = await house.worker(cpus=100)
    await house.submit(array="0-99")
    watcher = await Watcher.of(house, "job=1&tasks=true")
    await watcher.next()
    for _ in range(100):
        await worker.report(await worker.offered())
    events = await watcher.rest()
    assert len(events) <= 2, "the first at once, then nothing until the end"
    assert events[-1].done
    assert sum(last - first + 1 for event in events for first, last in event.ended) == 100


async def test_the_end_of_a_job_is_told_without_delay(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "EVENT_GAP_S", 1000.0)
    worker = await house.worker()
    await house.submit()
    watcher = await Watcher.of(house, "job=1")
    await watcher.next()
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    running = await watcher.next()
    assert running is not None and running.counts.running == 1
    await worker.report(offer)
    assert [event.done for event in await watcher.rest()] == [True]


async def test_several_jobs_are_told_on_one_stream_which_ends_with_the_last(house: House) -> None:
    worker = await house.worker()
    for _ in range(3):
        await house.submit()
    await house.ask("POST", "/v1/cancel", json={"select": ["2"]})
    watcher = await Watcher.of(house, "job=3&job=1&job=2&job=1")
    first = [await watcher.next() for _ in range(3)]
    assert [(event.job, event.done) for event in first if event] == [(1, False), (2, True), (3, False)]
    for job in (1, 3):
        await worker.report(await worker.offered(job))
    events = await watcher.rest()
    assert [event.job for event in events if event.done] == [1, 3]


async def test_a_job_that_is_retried_after_its_end_is_not_told_again(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    await house.submit()
    watcher = await Watcher.of(house, "job=1&job=2")
    await worker.report(await worker.offered(1), code=1)
    ended = None
    while ended is None or not ended.done:
        ended = await watcher.next()
        assert ended is not None
    assert ended.job == 1
    await house.ask("POST", "/v1/retry", json={"select": ["1"]})
    for _ in range(2):
        await worker.report(await worker.offered())
    assert {event.job for event in await watcher.rest()} == {2}


async def test_nothing_is_told_of_a_job_between_its_last_task_and_the_disk(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its end is being saved the job is nowhere: progress made before must wait to be told with it."""
    monkeypatch.setattr(streams, "EVENT_GAP_S", 0.0)
    worker = await house.worker(cpus=2)
    await house.submit(array="0-1")
    offers = [await worker.offered() for _ in range(2)]
    watcher = await Watcher.of(house, "job=1&tasks=true")
    await watcher.next()
    disk = house.disk()
    disk.hold()
    offers = [msgspec.structs.replace(offer, out=inline(b"x")) for offer in offers]
    await worker.say(Reports([offers[0]]))
    await disk.reached()
    await worker.say(Reports([offers[1]]))
    await house.until(lambda: not house.manager.machine.jobs, "the job has left the machine")
    disk.step()
    await worker.acknowledged(offers[0].attempt)
    await disk.reached()
    disk.release()
    events = await watcher.rest()
    assert [event.counts for event in events] == [Counts(finished=2)]
    assert events[0].ended == events[0].spoke == [(0, 1)]


async def test_a_watcher_that_hears_nothing_is_told_that_the_manager_is_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_S", 0.05)
    await house.submit()
    watcher = await Watcher.of(house, "job=1")
    await watcher.next()
    await watcher.until_comment()


async def test_a_slow_reader_gets_everything_in_the_end(house: House) -> None:
    worker = await house.worker(cpus=50)
    await house.submit(array="0-499")
    watcher = await Watcher.of(house, "job=1&tasks=true")
    for _ in range(500):
        await worker.report(await worker.offered())
    await house.ended(1)
    events = await watcher.rest()
    told = {n for event in events for first, last in event.ended for n in range(first, last + 1)}
    assert told == set(range(500))
    assert events[-1].counts == Counts(finished=500)
    assert [event.done for event in events].count(True) == 1


# -- live output ------------------------------------------------------------------------------------------


async def test_an_output_is_followed_from_its_beginning_to_its_end(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    following = asyncio.create_task(house.ask("GET", "/v1/jobs/1/tasks/0/logs?follow=true"))
    await worker.next(Tail)
    await worker.say(TailData(offer.attempt, "out", 0, b"one "))
    await worker.say(TailData(offer.attempt, "err", 0, b"not this"))
    await worker.say(TailData(offer.attempt, "out", 4, b"two "))
    await worker.report(offer, out=inline(b"one two three"))
    assert (await following).body == b"one two three"


async def test_a_second_follower_repeats_nothing_to_the_first(house: House) -> None:
    """The worker begins anew for everybody when somebody joins."""
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    path = "/v1/jobs/1/tasks/0/logs?follow=true"
    first = asyncio.create_task(house.ask("GET", path))
    await worker.next(Tail)
    await worker.say(TailData(offer.attempt, "out", 0, b"one "))
    await worker.settled()
    second = asyncio.create_task(house.ask("GET", path))
    await worker.next(Tail, 1)
    await worker.say(TailData(offer.attempt, "out", 0, b"one two "))
    await worker.settled()
    await worker.report(offer, out=inline(b"one two three"))
    assert (await first).body == (await second).body == b"one two three"


async def test_somebody_who_follows_before_the_task_runs_sees_it_run(house: House) -> None:
    await house.submit()
    following = asyncio.create_task(house.ask("GET", "/v1/jobs/1/tasks/0/logs?follow=true"))
    await house.until(lambda: house.manager.hub._by_job, "it waits")
    worker = await house.worker()
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    await worker.next(Tail)
    await worker.say(TailData(offer.attempt, "out", 0, b"hello "))
    await worker.report(offer, out=inline(b"hello world"))
    assert (await following).body == b"hello world"


async def test_a_follower_sees_nothing_twice_when_the_worker_was_away(house: House) -> None:
    worker = await house.worker("away")
    await house.submit(array="0-2")
    offer = await worker.offered()
    other = await house.worker("other")
    another = await other.offered()
    await worker.say(Started([offer.attempt]))
    following = asyncio.create_task(house.ask("GET", "/v1/jobs/1/tasks/0/logs?follow=true"))
    await worker.next(Tail)
    await worker.say(TailData(offer.attempt, "out", 0, b"one "))
    await worker.settled()
    await worker.close()
    await house.until(lambda: not house.manager.machine.workers["away"].online, "it is gone")
    await other.report(another)
    await house.until(lambda: not house.manager.hub._tails, "nobody is listened to")
    worker = await house.worker("away", held=[Held(1, 0, offer.attempt, True, False)])
    await other.report(await other.offered())
    await worker.next(Tail)
    await worker.say(TailData(offer.attempt, "out", 0, b"one two "))
    await worker.report(offer, out=inline(b"one two three"))
    assert (await following).body == b"one two three"


async def test_a_follower_sees_all_of_the_attempt_that_decided(home: Path) -> None:
    async with open_house(home / "data", grace_s=0.0) as house:
        first = await house.worker("first")
        await house.submit()
        given_up = await first.offered()
        await first.close()
        second = await house.worker("second")
        offer = await second.offered()
        following = asyncio.create_task(house.ask("GET", "/v1/jobs/1/tasks/0/logs?follow=true"))
        await second.next(Tail)
        await second.say(TailData(offer.attempt, "out", 0, b"in vain "))
        await second.settled()
        first = await house.worker("first", held=[Held(1, 0, given_up.attempt, True, True)])
        await first.report(given_up, out=inline(b"late"))
        assert (await following).body == b"in vain late"


async def test_without_follow_the_output_so_far_is_given(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    reading = asyncio.create_task(house.ask("GET", "/v1/jobs/1/tasks/0/logs"))
    await worker.next(Tail)
    await worker.say(TailData(offer.attempt, "out", 0, b"so far"))
    assert (await reading).body == b"so far"
    await worker.until(lambda: worker.all(Tail)[-1] == Tail(offer.attempt, False))


async def test_without_follow_a_task_that_is_never_quiet_keeps_nobody(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SO_FAR_S", 0.2)
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    reading = asyncio.create_task(house.ask("GET", "/v1/jobs/1/tasks/0/logs"))
    await worker.next(Tail)
    said = 0
    async with asyncio.timeout(20):
        while not reading.done():
            await worker.say(TailData(offer.attempt, "out", said, b"x"))
            await worker.settled()
            said += 1
    assert 0 < len((await reading).body) <= said
