"""A worker that lies, floods, babbles or dozes. Whatever it does: the books are right, the other workers' tasks finish,
nothing is lost, and the manager goes on."""

import asyncio
import contextlib
import math
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tercel.core.dispatch import HELD_MOST
from tercel.core.invariants import violations
from tercel.core.model import End, Held, Needs, Output, Report, WorkerInfo, WorkerState
from tercel.links.contract import LinkClosed
from tercel.manager import conversation
from tercel.wire.api import TaskView
from tercel.wire.messages import (
    MAX_FRAME_BYTES,
    PROTOCOL,
    SEGMENT_BYTES,
    Ack,
    Bye,
    FromWorker,
    Hello,
    Offer,
    Ping,
    Presence,
    Refused,
    Reports,
    Returned,
    Segment,
    Started,
    TailData,
    Welcome,
)
from tests.api.house import GIB, House, Scripted, done, inline, open_house
from tests.api.test_clients import growth

pytestmark = pytest.mark.must("f")

pack = msgspec.msgpack.encode


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
        ended = asyncio.create_task(self.house.ended(1))
        while not ended.done():
            offered = asyncio.create_task(self.good.offered())
            await asyncio.wait([offered, ended], return_when=asyncio.FIRST_COMPLETED)
            if offered.done():
                await self.good.report(offered.result())
            else:
                offered.cancel()
        assert (await ended).counts.finished == 5
        tasks = (await self.house.tasks(1)).tasks
        assert [task.task for task in tasks] == [0, 1, 2, 3, 4]
        assert all(len(task.attempts) == 1 for task in tasks)
        await self.house.sound()


@pytest.fixture
async def scene(home: Path) -> AsyncIterator[Scene]:
    async with open_house(home / "data", grace_s=0.1) as house:
        scene = Scene(house, Scripted(await house.dial(), "good"), Scripted(await house.dial(), "bad"))
        house._workers += [scene.good, scene.bad]
        await scene.set()
        yield scene
        await scene.end()


# -- frames -----------------------------------------------------------------------------------------------

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
    assert (await scene.house.task(1, scene.mine.task)).state == "offered"


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


# -- reports ----------------------------------------------------------------------------------------------


async def _unmoved(scene: Scene) -> None:
    """Nothing has ended, and what was said is acknowledged: the worker need not say it again."""
    await scene.sound()
    counts = (await scene.house.job(1)).counts
    assert counts.finished + counts.failed + counts.cancelled == 0
    assert (await scene.house.task(1, scene.theirs.task)).worker == "good"


@pytest.mark.parametrize(
    "lie",
    [
        lambda scene: done(1, 0, 12345),
        lambda scene: done(1, 0, 0),
        lambda scene: done(1, 0, -1),
        lambda scene: done(1, 0, 2**64 - 1),
        lambda scene: done(1, 99, 12345),
        lambda scene: done(1, -1, 12345),
        lambda scene: done(1, 2**64 - 1, 12345),
        lambda scene: done(77, 0, 12345),
        lambda scene: done(-1, 0, 12345),
        lambda scene: done(2**64 - 1, 0, 12345),
        lambda scene: scene.theirs,
        lambda scene: msgspec.structs.replace(scene.theirs, code=1),
        lambda scene: msgspec.structs.replace(scene.theirs, end=End.REFUSED, note="no"),
        lambda scene: msgspec.structs.replace(scene.theirs, end=End.INTERRUPTED),
        lambda scene: msgspec.structs.replace(scene.mine, task=scene.theirs.task),
        lambda scene: msgspec.structs.replace(scene.mine, task=4),
        lambda scene: msgspec.structs.replace(scene.mine, job=2),
        lambda scene: msgspec.structs.replace(scene.theirs, attempt=scene.mine.attempt),
        lambda scene: msgspec.structs.replace(scene.mine, attempt=scene.theirs.attempt),
        lambda scene: msgspec.structs.replace(scene.mine, attempt=scene.mine.attempt + 1),
    ],
    ids=range(20),
)
async def test_a_report_of_an_attempt_that_is_not_the_workers_moves_nothing(
    scene: Scene, lie: Callable[[Scene], Report]
) -> None:
    await scene.bad.report(lie(scene))
    await _unmoved(scene)


async def test_a_lie_about_a_task_is_noted_against_the_worker(scene: Scene) -> None:
    await scene.bad.report(done(1, 99, 12345))
    (bad, good) = (await scene.house.pool()).workers
    assert "does not exist" in bad.note
    assert good.note == ""


async def test_the_same_report_twice_counts_once(scene: Scene) -> None:
    contrary = msgspec.structs.replace(scene.mine, code=1)
    await scene.bad.say(Reports([scene.mine, scene.mine, contrary]))
    await scene.bad.say(Reports([contrary]))
    await scene.bad.settled()
    job = await scene.house.job(1)
    assert (job.counts.finished, job.counts.failed) == (1, 0)


ABSURD: list[dict[str, Any]] = [
    {"wall_s": math.nan},
    {"wall_s": math.inf},
    {"wall_s": -math.inf},
    {"wall_s": -5.0},
    {"wall_s": 1e308},
    {"cpu_s": math.nan},
    {"cpu_s": 1e308},
    {"started_at": math.nan},
    {"started_at": -math.inf},
    {"started_at": 1e308},
    {"max_rss_bytes": 2**64 - 1},
    {"max_rss_bytes": -(2**63)},
    {"note": "x" * 10**6},
    {"note": "\x1b[2J\x00\n"},
    {"out": Output(2**64 - 1, 2**64 - 1, b"", 2**64 - 1)},
    {"out": Output(-(2**63), -(2**63), b"", -(2**63))},
    {"out": inline(bytes(2**20)), "err": inline(bytes(2**20))},
    {"out": Output(10, 10, b"", 3)},
]


@pytest.mark.parametrize("fields", ABSURD, ids=lambda fields: str(fields)[:40])
async def test_absurd_numbers_in_a_report_do_not_hide_that_the_work_is_done(
    scene: Scene, fields: dict[str, Any]
) -> None:
    await scene.bad.report(scene.mine, **fields)
    view = await scene.house.task(1, scene.mine.task)
    assert (view.state, view.exit_code) == ("finished", 0)
    (attempt,) = view.attempts
    assert attempt.wall_s >= 0 and attempt.cpu_s >= 0 and attempt.max_rss_bytes >= 0
    assert len(attempt.note) <= 1000 and attempt.note.isprintable()
    assert 0 <= attempt.out_bytes < 2**62
    for path in ("/v1/jobs/1/tasks?outputs=true", f"/v1/jobs/1/tasks/{view.task}/logs", "/v1/pool"):
        answer = await scene.house.ask("GET", path)
        assert answer.status == 200
        assert len(answer.body) < 2**20
    # A worker may be right about the next thing.
    await scene.bad.report(await scene.bad.offered())


@pytest.mark.parametrize("code", [2**64 - 1, 2**63, -1, -(2**63)])
async def test_an_absurd_exit_code_is_a_failure_and_not_the_managers(scene: Scene, code: int) -> None:
    await scene.bad.report(scene.mine, code=code)
    view = await scene.house.task(1, scene.mine.task)
    assert (view.state, view.exit_code) == ("failed", 255)
    assert (await scene.house.ask("POST", "/v1/retry", json={"select": ["1"]})).json == {"count": 1}


async def test_numbers_that_cannot_be_are_noted_against_the_worker(scene: Scene) -> None:
    await scene.bad.report(scene.mine, wall_s=math.nan)
    assert "cannot be" in (await scene.house.pool()).workers[0].note


async def test_times_that_never_were_do_not_spoil_the_dispatch_of_the_job(scene: Scene) -> None:
    """How long tasks take decides how many are offered ahead: one NaN among them would decide everything."""
    await scene.bad.report(scene.mine, wall_s=math.inf)
    await scene.bad.report(await scene.bad.offered(), wall_s=math.nan)
    await scene.bad.report(await scene.bad.offered(), wall_s=-1e308)
    job = scene.house.manager.machine.jobs[1]
    assert job.mean_wall_s is not None and math.isfinite(job.mean_wall_s)


async def test_a_worker_that_refuses_everything_keeps_nothing_from_the_others(scene: Scene) -> None:
    for _ in range(3):
        await scene.bad.report(scene.mine, end=End.REFUSED, note="no directory")
    explanation = await scene.house.explain("1")
    assert "could run it" in explanation


# -- what it says it holds --------------------------------------------------------------------------------


def _held(report: Report, *, started: bool = True, ended: bool = False, **fields: int) -> Held:
    values = {"job": report.job, "task": report.task, "attempt": report.attempt} | fields
    return Held(**values, started=started, ended=ended)


async def _again(scene: Scene, *held: Held, instance: str = "1") -> Welcome:
    """`bad` connects again, and is `bad` from now on."""
    before = scene.bad
    scene.bad = Scripted(await scene.house.dial(), "bad")
    scene.house._workers.append(scene.bad)
    welcome = await scene.bad.join(held=held, instance=instance)
    await before.hung_up()
    return welcome


async def test_a_worker_that_connects_twice_is_heard_on_its_last_link(scene: Scene) -> None:
    first = scene.bad
    welcome = await _again(scene, _held(scene.mine))
    assert welcome.drop == []
    assert first.over.is_set()
    assert (await scene.house.pool()).online == 2
    await scene.bad.report(scene.mine)
    assert (await scene.house.job(1)).counts.finished == 1


async def test_workers_that_fight_over_a_name_harm_only_each_other(scene: Scene) -> None:
    for turn in range(10):
        await _again(scene, instance=str(turn))
        await scene.sound()
    assert (await scene.house.pool()).online == 2


HOLDS: dict[str, Callable[[Scene], list[Held]]] = {
    "what never was": lambda s: [Held(1, 0, 12345, True, False)],
    "what never was, ended": lambda s: [Held(1, 0, 12345, True, True)],
    "what is anothers": lambda s: [_held(s.theirs)],
    "what is anothers, ended": lambda s: [_held(s.theirs, ended=True)],
    "a task that is not there": lambda s: [Held(1, 99, 12345, True, False)],
    "a job that is not there": lambda s: [Held(99, 0, 12345, True, False)],
    "negative numbers": lambda s: [Held(-1, -1, -1, True, False)],
    "huge numbers": lambda s: [Held(2**64 - 1, 2**64 - 1, 2**64 - 1, False, False)],
    "its own, twice": lambda s: [_held(s.mine), _held(s.mine)],
    "its own, contradicting itself": lambda s: [_held(s.mine), _held(s.mine, started=False, ended=True)],
    "its own, under another task": lambda s: [_held(s.mine, task=s.theirs.task)],
    "its own, under another job": lambda s: [_held(s.mine, job=7)],
    "a ready task": lambda s: [Held(1, 4, s.mine.attempt + 1, True, False)],
    "nothing": lambda s: [],
    "very much": lambda s: [Held(1, i, 10**6 + i, True, False) for i in range(100_000)],
}


@pytest.mark.parametrize("held", HOLDS.values(), ids=HOLDS)
async def test_what_a_worker_says_it_holds_is_believed_only_of_what_it_was_given(
    scene: Scene, held: Callable[[Scene], list[Held]]
) -> None:
    said = held(scene)
    welcome = await _again(scene, *said)
    strange = {h.attempt for h in said if not h.ended} - {scene.mine.attempt}
    assert set(welcome.drop) == strange
    await _unmoved(scene)


# -- presence, starts, returns ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "capacity",
    [Needs(-1, 0), Needs(0, -1), Needs(2**63, 0), Needs(1000, 2**64 - 1), Needs(-(2**63), -(2**63))],
)
async def test_a_capacity_that_cannot_be_ends_the_link(scene: Scene, capacity: Needs) -> None:
    await scene.bad.say(Presence(WorkerState.AVAILABLE, capacity))
    assert "no machine has" in await scene.cut_off()


async def test_a_worker_that_gives_nothing_is_given_nothing(scene: Scene) -> None:
    await scene.bad.say(Presence(WorkerState.AVAILABLE, Needs(0, 0)))
    await scene.bad.report(scene.mine)
    await scene.bad.settled()
    assert len(scene.bad.all(Offer)) == 1
    assert (await scene.house.pool()).cpus == 2


@pytest.mark.parametrize("state", WorkerState)
async def test_a_state_is_taken_as_it_is_said(scene: Scene, state: WorkerState) -> None:
    await scene.bad.say(Presence(state, Needs(1000, GIB)))
    await scene.bad.settled()
    await _unmoved(scene)
    assert (await scene.house.pool()).workers[0].state in (state, WorkerState.BUSY)


async def test_starts_and_returns_of_what_is_not_the_workers_move_nothing(scene: Scene) -> None:
    strange = [scene.theirs.attempt, 0, -1, 12345, 2**64 - 1, -(2**63)]
    await scene.bad.say(
        Started(strange), Returned(strange), Started(strange * 1000), Returned(strange * 1000)
    )
    await scene.bad.settled()
    await _unmoved(scene)


async def test_the_same_task_may_be_started_and_returned_only_once(scene: Scene) -> None:
    mine = scene.mine.attempt
    await scene.bad.say(Presence(WorkerState.AVAILABLE, Needs(0, 0)))
    await scene.bad.say(Started([mine, mine]), Started([mine]), Returned([mine, mine]), Returned([mine]))
    await scene.bad.settled()
    await _unmoved(scene)
    await scene.bad.report(scene.mine)
    await _unmoved(scene)


async def test_a_worker_that_says_bye_and_holds_tasks_gives_them_back(scene: Scene) -> None:
    await scene.bad.say(Started([scene.mine.attempt]))
    await scene.bad.say(Bye("see you"), Started([scene.mine.attempt]))
    await scene.bad.hung_up()
    await scene.good.report(scene.goods.pop())
    await scene.good.settled()


# -- outputs ----------------------------------------------------------------------------------------------


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
    await _unmoved(scene)


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
        link = house.manager._conversations["deaf"]
        most = 0

        def gone() -> bool:
            nonlocal most
            most = max(most, link._owed)
            return not house.manager._conversations

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
    await house.until(lambda: not house.manager._conversations, "all are gone")
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


def _sizes(worker: Scripted) -> list[int]:
    return [offer.last - offer.first + 1 for offer in worker.all(Offer)]


async def test_a_hundred_thousand_acknowledgements_are_sent_in_frames_that_a_link_takes(house: House) -> None:
    worker = await house.worker()
    attempts = [2**62 + number for number in range(300_000)]
    for start in range(0, 300_000, 100_000):
        await worker.say(Reports([done(9, 0, attempt) for attempt in attempts[start : start + 100_000]]))
    await worker.until(lambda: sum(len(ack.attempts) for ack in worker.all(Ack)) == 300_000)
    await house.sound()


# -- anything at all --------------------------------------------------------------------------------------

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
            ended = asyncio.create_task(house.ended(1))
            while not ended.done():
                offered = asyncio.create_task(good.offered())
                await asyncio.wait([offered, ended], return_when=asyncio.FIRST_COMPLETED)
                if offered.done():
                    await good.report(offered.result())
                else:
                    offered.cancel()
            assert (await ended).counts.finished == 5, "nothing is lost, and nothing ends twice"
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
