"""A worker that babbles: frames that are none, and workers that do not say who they are."""

import contextlib

import msgspec
import pytest

from tercel.core.model import Needs
from tercel.core.presence import WorkerInfo, WorkerState
from tercel.links.contract import LinkClosed
from tercel.wire.messages import (
    MAX_FRAME_BYTES,
    PROTOCOL,
    Bye,
    FromWorker,
    Hello,
    Presence,
    Refused,
    Reports,
    Segment,
    Started,
)
from tests.api.house import GIB, Scripted, done
from tests.api.scene import Scene, pack

pytestmark = pytest.mark.must("f")


GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "text": b"hello, manager",
    "zeros": bytes(100),
    "ones": b"\xff" * 100,
    "JSON": b'[1, [["Bye", ""]]]',
    "a number": pack(1),
    "a map": pack({"number": 1, "messages": []}),
    "a frame without messages": pack([1]),
    "a frame numbered by a word": pack(["one", []]),
    "a frame numbered by a fraction": pack([1.5, []]),
    "half a frame": pack([1, [["Started", [1, 2, 3]]]])[:-2],
    "deep": b"\x91" * 100_000,
    "deep inside": pack([1]) + b"\x91" * 100_000,
    "a length of four gigabytes": b"\x92\x01\xdd\xff\xff\xff\xff",
    "a string of four gigabytes": b"\x92\x01\x91\xdb\xff\xff\xff\xff",
    "two frames in one": pack([1, [["Bye", ""]]]) * 2,
}
WRONG_MESSAGES: dict[str, object] = {
    "an unknown tag": ["Explode"],
    "a manager's message": ["Welcome", 1, 1.0, []],
    "no tag": [1, 2],
    "nothing at all": [],
    "a word": "Bye",
    "a missing field": ["Started"],
    "a word for a list": ["Started", "all"],
    "words for numbers": ["Started", ["1"]],
    "fractions for numbers": ["Started", [1.5]],
    "a state that is none": ["Presence", "sleepy", [1000, 0]],
    "an end that is none": ["Reports", [[1, 0, 5, "vanished", 0, 1.0, 1.0, 1.0, 0]]],
    "a report of four": ["Reports", [[1, 0, 5, "exited"]]],
    "text that is not UTF-8": msgspec.Raw(b"\x92\xa3Bye\xa2\xff\xfe"),
    "a segment of text": ["Segment", 1, "out", 0, "abc"],
    "a second Hello": msgspec.to_builtins(
        Hello(PROTOCOL, "bad", "1", WorkerInfo(node="n", capacity=Needs(1000, GIB)), [])
    ),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
async def test_bytes_that_are_no_frame_end_the_link(scene: Scene, data: bytes) -> None:
    await scene.bad.throw(data)
    assert "no message" in await scene.cut_off()


@pytest.mark.parametrize("message", WRONG_MESSAGES.values(), ids=WRONG_MESSAGES)
async def test_a_message_that_makes_no_sense_ends_the_link(scene: Scene, message: object) -> None:
    await scene.throw([message])
    assert await scene.bad.hung_up()


async def test_text_where_a_frame_should_be_ends_the_link(scene: Scene) -> None:
    await scene.bad.end._socket.send_str("hello")
    assert "text" in await scene.cut_off()


async def test_a_frame_that_is_too_large_ends_the_link(scene: Scene) -> None:
    with contextlib.suppress(LinkClosed):
        await scene.bad.throw(bytes(MAX_FRAME_BYTES + 1))
    assert "WebSocket protocol" in await scene.cut_off()


async def test_what_came_before_a_bad_message_counts(scene: Scene) -> None:
    await scene.bad.say(Reports([scene.mine]), Presence(WorkerState.BUSY, Needs(-1, -1)))
    await scene.bad.hung_up()
    await scene.good.settled()
    view = await scene.house.task(1, scene.mine.task)
    assert (view.state, view.worker) == ("finished", "bad")


async def test_fields_that_a_later_version_added_are_ignored(scene: Scene) -> None:
    await scene.throw([["Started", [scene.mine.attempt], "and more"]])
    await scene.bad.settled()
    assert (await scene.house.task(1, scene.mine.task)).state == "running"


@pytest.mark.parametrize("number", [2, 3, 2**32, 2**64 - 1])
async def test_a_gap_in_the_numbers_of_frames_ends_the_link(scene: Scene, number: int) -> None:
    await scene.throw([["Started", [scene.mine.attempt]]], number)
    assert "missing" in await scene.cut_off()
    # Ready once the grace is over, which is short: it may be before this question.
    assert (await scene.house.task(1, scene.mine.task)).state in ("offered", "ready")


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
async def test_a_frame_seen_before_is_dropped(scene: Scene, number: int) -> None:
    await scene.throw([["Started", [scene.mine.attempt]]], number)
    await scene.bad.settled()
    assert (await scene.house.task(1, scene.mine.task)).state == "offered"


@pytest.mark.parametrize(
    "first",
    [
        Presence(WorkerState.AVAILABLE, Needs(1000, GIB)),
        Started([1]),
        Reports([done(1, 0, 1)]),
        Segment(1, "out", 0, b""),
        Bye("hello"),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_a_worker_that_does_not_begin_with_hello_is_not_heard(scene: Scene, first: FromWorker) -> None:
    other = Scripted(await scene.house.dial(), "bad")
    await other.say(first)
    await other.hung_up()
    await other.close()
    assert not scene.bad.over.is_set()


@pytest.mark.parametrize(
    "hello",
    [
        Hello(PROTOCOL + 1, "x", "1", WorkerInfo(node="n"), []),
        Hello(PROTOCOL, "", "1", WorkerInfo(node="n"), []),
        Hello(PROTOCOL, "x\x07", "1", WorkerInfo(node="n"), []),
        Hello(PROTOCOL, "x" * 10_000, "1", WorkerInfo(node="n"), []),
        Hello(PROTOCOL, "x", "1", WorkerInfo(node="n" * 10**6), []),
        Hello(PROTOCOL, "x", "1", WorkerInfo(node="n", capacity=Needs(0, 0)), []),
        Hello(PROTOCOL, "x", "1", WorkerInfo(node="n", capacity=Needs(-5, -5)), []),
        Hello(PROTOCOL, "x", "1", WorkerInfo(node="n", capacity=Needs(2**63, 2**63)), []),
    ],
    ids=range(8),
)
async def test_a_worker_that_is_not_let_in_is_told_why_and_leaves_no_trace(
    scene: Scene, hello: Hello
) -> None:
    other = Scripted(await scene.house.dial(), "x")
    await other.say(hello)
    assert (await other.next(Refused)).reason
    await other.hung_up()
    await other.close()
    assert [worker.id for worker in (await scene.house.pool()).workers] == ["bad", "good"]
