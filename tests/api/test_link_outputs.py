"""A worker that lies in what its tasks wrote."""

import asyncio
import zlib

import msgspec
import pytest

from tercel.core.reports import Output
from tercel.wire.api import TaskView
from tercel.wire.messages import (
    SEGMENT_BYTES,
    Segment,
    Started,
    TailData,
)
from tests.api.house import inline
from tests.api.scene import Scene
from tests.api.test_clients import growth

pytestmark = pytest.mark.must("f")


async def _output(scene: Scene) -> tuple[TaskView, bytes]:
    """The task of `bad` with its output, both ways."""
    tasks = (await scene.house.tasks(1, f"?outputs=true&tasks={scene.mine.task}")).tasks
    answer = await scene.house.ask("GET", f"/v1/jobs/1/tasks/{scene.mine.task}/logs")
    assert answer.status == 200
    return tasks[0], answer.body


async def test_segments_of_strangers_are_not_kept(scene: Scene) -> None:
    piece = zlib.compress(b"lies")
    for attempt in (scene.theirs.attempt, 0, -1, 12345, 2**64 - 1):
        await scene.bad.say(Segment(attempt, "out", 0, piece))
    await scene.bad.settled()
    for attempt in (scene.theirs.attempt, 0, -1, 12345):
        assert scene.house.manager.store.output_segments(attempt, "out") == []


@pytest.mark.parametrize(
    "piece",
    [
        Segment(0, "both", 0, b""),
        Segment(0, "out", -1, b""),
        Segment(0, "out", 2**63, b""),
        Segment(0, "out", 0, bytes(2 * SEGMENT_BYTES)),
    ],
    ids=["stream", "negative", "huge", "large"],
)
async def test_a_segment_that_cannot_be_ends_the_link(scene: Scene, piece: Segment) -> None:
    await scene.bad.say(msgspec.structs.replace(piece, attempt=scene.mine.attempt))
    assert "segment" in await scene.cut_off()


async def test_a_segment_that_cannot_be_unpacked_is_left_out(scene: Scene) -> None:
    mine, good = scene.mine.attempt, zlib.compress(b"before ")
    for number, piece in enumerate((good, b"not zlib at all", good[:-3], zlib.compress(b"after"))):
        await scene.bad.say(Segment(mine, "out", number, piece))
    await scene.bad.report(scene.mine, out=Output(100, 100, b"", 4))
    view, log = await _output(scene)
    assert view.stdout is not None
    assert view.stdout.encode() == log
    assert log.startswith(b"before ") and log.endswith(b"after")


async def test_a_segment_that_unfolds_to_a_gigabyte_is_cut_at_its_size(scene: Scene) -> None:
    bomb = zlib.compress(bytes(2**28))
    while len(bomb) > SEGMENT_BYTES:
        bomb = zlib.compress(bytes(len(bomb) // 2))
    for number in range(8):
        await scene.bad.say(Segment(scene.mine.attempt, "out", number, bomb))
    await scene.bad.report(scene.mine, out=Output(2**40, 2**40, b"", 8))
    grown = growth()
    view, log = await _output(scene)
    assert len(log) == 8 * SEGMENT_BYTES
    assert view.stdout is not None and len(view.stdout) == 8 * SEGMENT_BYTES
    assert grown() < 100


async def test_segments_that_are_promised_and_never_sent_are_an_empty_output(scene: Scene) -> None:
    await scene.bad.report(scene.mine, out=Output(10**6, 10**6, b"", 4))
    view, log = await _output(scene)
    assert (view.stdout, log) == ("", b"")
    assert view.attempts[0].out_bytes == 10**6


async def test_a_segment_sent_twice_is_kept_once(scene: Scene) -> None:
    for text in (b"old", b"new"):
        await scene.bad.say(Segment(scene.mine.attempt, "out", 0, zlib.compress(text)))
    await scene.bad.report(scene.mine, out=Output(3, 3, b"", 1))
    assert (await _output(scene))[1] == b"new"


async def test_nobody_speaks_for_the_tasks_of_others(scene: Scene) -> None:
    """Live output of a task comes from the worker that runs it and from no other."""
    await scene.good.say(Started([scene.theirs.attempt]))
    path = f"/v1/jobs/1/tasks/{scene.theirs.task}/logs?follow=true"
    following = asyncio.create_task(scene.house.ask("GET", path))
    await scene.house.until(lambda: scene.house.manager.hub._tails, "somebody follows")
    await scene.bad.say(TailData(scene.theirs.attempt, "out", 0, b"lies"))
    await scene.bad.settled()
    await scene.good.say(TailData(scene.theirs.attempt, "out", 0, b"truth"))
    await scene.good.report(scene.goods.pop(0), out=inline(b"truth and more"))
    assert (await following).body == b"truth and more"


async def test_a_flood_of_live_output_that_nobody_reads_costs_nothing(scene: Scene) -> None:
    grown = growth()
    for piece in range(400):
        await scene.bad.say(TailData(scene.mine.attempt, "out", piece * 2**18, bytes(2**18)))
    await scene.bad.settled()
    assert grown() < 50
    assert not scene.house.manager.hub._tails


async def test_live_output_that_cannot_be_ends_the_link(scene: Scene) -> None:
    await scene.bad.say(TailData(scene.mine.attempt, "out", -1, b"x"))
    assert "live output" in await scene.cut_off()
