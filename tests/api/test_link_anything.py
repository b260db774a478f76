"""Whatever a worker says, drawn at random: the books are right and nothing is lost."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tercel.core.invariants import violations
from tercel.core.model import Needs
from tercel.core.presence import WorkerState
from tercel.core.reports import End, Output, Report
from tercel.links.contract import LinkClosed
from tercel.wire.messages import (
    FromWorker,
    Presence,
    Reports,
    Returned,
    Segment,
    Started,
    TailData,
)
from tests.api.house import House, Scripted, open_house
from tests.api.scene import does_the_rest, pack

pytestmark = pytest.mark.must("f")


whole = st.integers(-(2**63), 2**64 - 1) | st.integers(0, 5)
SPEAKING_OF = range(-1000, -996)
"""Stand for the attempts of a scene: two of `good`, two of `bad`."""
attempts = st.sampled_from(SPEAKING_OF) | whole
outputs = st.none() | st.builds(Output, whole, whole, st.binary(max_size=20), whole)
reports = st.builds(
    Report,
    job=st.just(1) | whole,
    task=st.integers(0, 5) | whole,
    attempt=attempts,
    end=st.sampled_from(End),
    code=st.just(0) | whole,
    started_at=st.floats(),
    wall_s=st.floats(),
    cpu_s=st.floats(),
    max_rss_bytes=whole,
    note=st.text(max_size=10),
    out=outputs,
    err=outputs,
)
streams = st.sampled_from(["out", "err", "x"])
anything: st.SearchStrategy[FromWorker] = st.one_of(
    st.builds(Started, st.lists(attempts, max_size=4)),
    st.builds(Returned, st.lists(attempts, max_size=4)),
    st.builds(Reports, st.lists(reports, max_size=3)),
    st.builds(Reports, st.lists(reports, max_size=3)),
    st.builds(Presence, st.sampled_from(WorkerState), st.builds(Needs, st.integers(0, 3000), whole)),
    st.builds(Segment, attempts, streams, whole, st.binary(max_size=20)),
    st.builds(TailData, attempts, streams, whole, st.binary(max_size=20)),
)
speech = st.lists(st.lists(anything, min_size=1, max_size=3), max_size=8)


def _meant(message: FromWorker, known: list[Report]) -> FromWorker:
    """With the attempts that are meant, and, half the time, their right tasks."""

    def attempt(said: int) -> int:
        return known[said - SPEAKING_OF[0]].attempt if said in SPEAKING_OF else said

    match message:
        case Started(said) | Returned(said):
            return type(message)([attempt(number) for number in said])
        case Reports(said):
            return Reports([_meant_report(report, known) for report in said])
        case Segment() | TailData():
            return msgspec.structs.replace(message, attempt=attempt(message.attempt))
    return message


def _meant_report(report: Report, known: list[Report]) -> Report:
    if report.attempt not in SPEAKING_OF:
        return report
    true = known[report.attempt - SPEAKING_OF[0]]
    task = true.task if report.job == 1 and report.task < 3 else report.task
    return msgspec.structs.replace(report, attempt=true.attempt, task=task)


async def _examples(
    run: Callable[[Any], Awaitable[None]], strategy: st.SearchStrategy[Any], count: int
) -> None:
    """Drawn by Hypothesis in a thread, each run on this loop."""
    loop = asyncio.get_running_loop()

    @given(strategy)
    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def body(value: Any) -> None:
        asyncio.run_coroutine_threadsafe(run(value), loop).result(60)

    await asyncio.to_thread(body)


async def test_whatever_a_worker_says_in_whatever_order_the_books_are_right(home: Path) -> None:
    places = (home / f"data{number}" for number in range(10**6))

    async def run(frames: list[list[FromWorker]]) -> None:
        async with open_house(next(places), grace_s=0.0) as house:
            await house.submit(array="0-4", retries=1000)
            good, bad = await house.worker("good", cpus=2), await house.worker("bad", cpus=2)
            goods = [await good.offered() for _ in range(2)]
            known = goods + [await bad.offered() for _ in range(2)]
            for frame in frames:
                with contextlib.suppress(LinkClosed):
                    await bad.say(*[_meant(message, known) for message in frame])
            await _quiet(bad)
            assert violations(house.manager.machine) == []
            await bad.close()
            await house.sound()
            for report in goods:
                await good.report(report)
            job = await does_the_rest(house, good)
            assert job.counts.finished == 5, "nothing is lost, and nothing ends twice"
            await house.sound()

    await _examples(run, speech, 200)


async def _quiet(worker: Scripted) -> None:
    """All that it said has been heard, or its link is closed."""
    heard = asyncio.create_task(worker.settled())
    over = asyncio.create_task(worker.over.wait())
    await asyncio.wait([heard, over], return_when=asyncio.FIRST_COMPLETED)
    for task in (heard, over):
        task.cancel()
    await asyncio.gather(heard, over, return_exceptions=True)


async def test_whatever_bytes_a_worker_sends_the_manager_goes_on(house: House) -> None:
    frame = pack([1, [["Started", [1]], ["Presence", "busy", [1000, 0]], ["Reports", []]]])
    mangled = st.tuples(st.integers(0, len(frame) - 1), st.integers(0, 255)).map(
        lambda at: frame[: at[0]] + bytes([at[1]]) + frame[at[0] + 1 :]
    )
    names = iter(range(10**6))

    async def run(data: bytes) -> None:
        bad = Scripted(await house.dial(), f"bad{next(names)}")
        try:
            await bad.join()
            with contextlib.suppress(LinkClosed):
                await bad.throw(data)
                await bad.throw(b"that is all")
            await bad.hung_up()
            assert violations(house.manager.machine) == []
        finally:
            await bad.close()

    await _examples(run, st.binary(max_size=200) | mangled, 200)
    await house.still_works()
