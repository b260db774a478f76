"""One client's stream of server-sent events: how its jobs stand, then what changes, until all are done."""

import asyncio
from collections.abc import Iterable

import msgspec
from aiohttp import web

from tercel.core.intervals import IntervalSet
from tercel.core.states import TaskState
from tercel.manager import finding, views
from tercel.manager.access import Identity
from tercel.manager.events import News, Subscription
from tercel.manager.service import Manager
from tercel.wire.api import Counts, Event

EVENT_GAP_S = 0.1
"""At most so often is a stream told of progress; the end of a job is told at once."""
KEEP_ALIVE_S = 15.0

_encode = msgspec.json.Encoder().encode


Standing = list[tuple[Event, IntervalSet]]
"""Of each job its first event, and the tasks whose end is not told by it."""


async def standing(manager: Manager, who: Identity, jobs: Iterable[int], *, tasks: bool) -> Standing:
    return [await _first(manager, who, id, tasks) for id in sorted(jobs)]


async def tell(
    manager: Manager,
    response: web.StreamResponse,
    subscription: Subscription,
    first: Standing,
    *,
    tasks: bool,
) -> None:
    """Tasks that end while the first event is made may be told twice; none is left out."""
    await _write(response, [event for event, _ in first])
    untold = {event.job: left for event, left in first if not event.done}
    """Of each open job the tasks whose end was not told. Those cancelled without an attempt are told at the job's."""
    while untold:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await subscription.next()
        except TimeoutError:
            await response.write(b": still here\n\n")
            continue
        events = []
        for id, news in subscription.take().items():
            if id not in untold:
                continue  # done, and retried since: that is another story
            job = manager.machine.jobs.get(id)
            if job is not None:
                untold[id].difference_update(news.ended)
                events.append(_event(id, views.counts(job.row, job), news, tasks))
            elif news.done is None:
                subscription.keep(id, news)  # its end is on its way to the disk: told together
            else:
                finished, failed, cancelled = news.done
                news.ended.update(untold.pop(id))
                counts = Counts(finished=finished, failed=failed, cancelled=cancelled)
                events.append(_event(id, counts, news, tasks, done=True))
        if events:
            await _write(response, events)
        if untold:
            await subscription.pause(EVENT_GAP_S)


async def _first(manager: Manager, who: Identity, id: int, tasks: bool) -> tuple[Event, IntervalSet]:
    """How a job stands, and which of its tasks have not ended.

    Which tasks left output is not looked up: all that ran may have.
    """
    row = await finding.standing(manager, who, id)
    job = manager.machine.jobs.get(id)
    counts = views.counts(row, job)
    if not tasks:
        return Event(job=id, counts=counts, done=job is None), IntervalSet()
    left = IntervalSet(row.ranges)
    if job is None:
        ended, ran = left, left.copy()
        ran.difference_update(
            IntervalSet(await asyncio.to_thread(manager.store.ended, id, TaskState.CANCELLED))
        )
    else:
        ran = job.finished.copy()
        ran.update(job.failed)
        ended = ran.copy()
        ended.update(job.cancelled)
        left.difference_update(ended)
    event = Event(job=id, counts=counts, ended=ended.ranges(), spoke=ran.ranges(), done=job is None)
    return event, left


def _event(id: int, counts: Counts, news: News, tasks: bool, done: bool = False) -> Event:
    ended, spoke = (news.ended.ranges(), news.spoke.ranges()) if tasks else ([], [])
    return Event(job=id, counts=counts, ended=ended, spoke=spoke, done=done)


async def _write(response: web.StreamResponse, events: list[Event]) -> None:
    await response.write(b"".join(b"data: " + _encode(event) + b"\n\n" for event in events))
