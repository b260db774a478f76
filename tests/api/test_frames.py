"""What a worker is sent fits into frames that a link takes, whole and in order."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.files import Location
from tercel.core.filling import HELD_MOST
from tercel.core.grids import MAX_VALUES_BYTES, Axis, Grid
from tercel.core.model import Call, Lease, Needs, Program
from tercel.manager import frames
from tercel.wire.looking import PATH_MOST, AtFile, AtSandbox
from tercel.wire.messages import (
    MAX_FRAME_BYTES,
    Ack,
    Brief,
    Cancel,
    Drain,
    FromManager,
    Located,
    Look,
    ManagerFrame,
    Offer,
    Park,
    Piece,
    Ping,
    Probe,
    Refused,
    Resume,
    Scattered,
    Tail,
    TakeBack,
    Undo,
    Welcome,
)

pytestmark = pytest.mark.must("f")

# Lengths that matter: none, short, and as long as a line may be (64 KiB, here of characters of one to four bytes).
lines = st.lists(
    st.sampled_from(["", "x", "x" * 1000, "é" * 32_000, "x" * 65_536, "🦅" * 16_384]), max_size=200
)


@given(lines.filter(bool))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_offers_cover_a_lease_once_and_each_is_small(texts: list[str]) -> None:
    lease = Lease(id=1000, worker="w", job=7, first=20, last=20 + len(texts) - 1)
    offers = list(frames.offers(lease, texts))
    covered = [
        (offer.first + at, offer.first_attempt + at, line)
        for offer in offers
        for at, line in enumerate(offer.lines or [])
    ]
    assert covered == [(20 + at, 1000 + at, line) for at, line in enumerate(texts)]
    for offer in offers:
        assert offer.job == 7
        assert offer.last - offer.first + 1 == len(offer.lines or [])
        assert len(msgspec.msgpack.encode(offer)) < MAX_FRAME_BYTES // 8


@given(lines.filter(bool), st.lists(st.integers(1, 5), min_size=1))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_scattered_offers_cover_leases_once_and_each_is_small(texts: list[str], sizes: list[int]) -> None:
    leases: list[Lease] = []
    at = 0
    while at < len(texts):
        size = min(sizes[len(leases) % len(sizes)], len(texts) - at)
        first = 20 + 2 * at
        leases.append(Lease(id=1000 + at, worker="w", job=7, first=first, last=first + size - 1))
        at += size
    offers = list(frames.scattered(leases, texts))
    covered = [
        (task, offer.first_attempt + at, line)
        for offer in offers
        for at, (task, line) in enumerate(zip(offer.tasks, offer.lines or [], strict=True))
    ]
    tasks = [task for lease in leases for task in range(lease.first, lease.last + 1)]
    assert covered == [
        (task, 1000 + at, line) for at, (task, line) in enumerate(zip(tasks, texts, strict=True))
    ]
    for offer in offers:
        assert offer.job == 7
        assert len(msgspec.msgpack.encode(offer)) < MAX_FRAME_BYTES // 8
    assert [list(offer.tasks) for offer in frames.scattered(leases, None)] == [tasks]


def test_scattered_calls_go_with_their_tasks_and_each_message_is_small() -> None:
    calls = [Call(bytes([at]) * 300_000) for at in range(10)]
    leases = [Lease(id=1000 + at, worker="w", job=7, first=2 * at, last=2 * at) for at in range(10)]
    offers = list(frames.scattered(leases, None, calls))
    assert 1 < len(offers) < 10
    covered = [
        (task, offer.first_attempt + at, call)
        for offer in offers
        for at, (task, call) in enumerate(zip(offer.tasks, offer.calls or [], strict=True))
    ]
    assert covered == [(2 * at, 1000 + at, call) for at, call in enumerate(calls)]


@pytest.mark.parametrize(
    "offer",
    [
        Offer(1, 0, 0, 1, ["x" * 65_536]),
        Offer(1, 0, 0, 1, None, [Call(b"x" * 65_536)]),
        Scattered(1, [0], 1, ["x" * 65_536]),
        Scattered(1, [0], 1, None, [Call(b"x" * 65_536)]),
        Scattered(1, [2**62] * HELD_MOST, 1),
    ],
)
def test_many_offers_that_are_small_alone_are_sent_in_several_frames(offer: FromManager) -> None:
    sent = list(frames.frames([offer] * 500))
    assert sum(map(len, sent)) == 500
    assert max(len(msgspec.msgpack.encode(ManagerFrame(1, frame))) for frame in sent) < MAX_FRAME_BYTES // 2


def test_an_offer_without_lines_is_one_message_however_many_tasks() -> None:
    lease = Lease(id=5, worker="w", job=1, first=0, last=10**8)
    assert list(frames.offers(lease, None)) == [Offer(1, 0, 10**8, 5)]


big = Program(argv=("x" * 130_000,), env={"A": "x" * 130_000})
sweep = Program(
    grid=Grid(axes=(Axis(name="a", values=("x" * 56,) * (MAX_VALUES_BYTES // 64)),)), template=True
)
messages: st.SearchStrategy[FromManager] = st.one_of(
    st.sampled_from([Ping(), Drain()]),
    st.sampled_from([0, 1, 100_000]).map(lambda count: Ack([2**62] * count)),
    st.sampled_from([1, 50_000]).map(lambda count: Cancel([2**62] * count)),
    st.sampled_from([1, 50_000]).map(lambda count: TakeBack([2**62] * count)),
    st.sampled_from([0, 50_000]).map(lambda count: Welcome(1, 1.0, [2**62] * count)),
    st.just(Brief(1, big, Needs())),
    st.just(Brief(1, sweep, Needs())),
    lines.map(lambda texts: Offer(1, 0, max(0, len(texts[:15]) - 1), 1, texts[:15])),
    lines.map(lambda texts: Scattered(1, [2**62] * len(texts[:15]), 1, texts[:15])),
    st.just(Scattered(1, [2**62] * HELD_MOST, 1)),
)


@given(st.lists(messages, max_size=40))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_frames_hold_all_messages_in_order_and_each_is_small(posted: list[FromManager]) -> None:
    sent = list(frames.frames(posted))
    assert [message for frame in sent for message in frame] == posted
    assert all(sent)
    for frame in sent:
        assert len(msgspec.msgpack.encode(ManagerFrame(1, frame))) < MAX_FRAME_BYTES // 2


@pytest.mark.parametrize(
    "message",
    [
        Look(2**62, AtFile(2**62, 2**62, [2**62] * 100, "🦅" * PATH_MOST)),
        Look(2**62, AtSandbox(2**62, 2**62, [2**62] * 100)),
        Probe(2**62, "command:" + "🦅" * 4000, 1.0, "/" * 4096, {"A": "x" * 200_000}),
        Piece("k" * 256, 2**31, b"x" * 1000, True, "gone" * 100),
        Refused("🦅" * 1000),
        Tail(2**62, True),
        Ping(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_no_message_takes_more_than_is_reckoned_with(message: FromManager) -> None:
    assert len(msgspec.msgpack.encode(message)) <= frames._size(message)


def test_what_fits_goes_in_one_frame() -> None:
    posted: list[FromManager] = [Ping(), Brief(1, Program(argv=("true",)), Needs())] * 1000
    assert list(frames.frames(posted)) == [posted]


def test_what_is_said_of_many_files_is_sent_in_frames_that_pass() -> None:
    urls = [f"s3://bucket/{'x' * 1000}/{number}" for number in range(20_000)]
    undos = list(frames.undos(7, 3, urls, [5, 6]))
    assert [url for undo in undos for url in undo.urls] == urls
    assert {(undo.job, undo.task, tuple(undo.lost)) for undo in undos} == {(7, 3, (5, 6))}
    assert list(frames.undos(7, 3, [], [5])) == [Undo(7, 3, [], [5])]
    located = Located(1, [Location("lfn:x", urls=(f"s3://bucket/{'x' * 1000}",))] * 1000)
    parked = list(range(2**40, 2**40 + 300_000))
    messages: list[FromManager] = [*undos, *[located] * 30, *[Park(parked), Resume(parked)] * 10]
    sent = list(frames.frames(messages))
    assert [message for frame in sent for message in frame] == messages
    assert all(len(msgspec.msgpack.encode(frame)) < MAX_FRAME_BYTES // 2 for frame in sent)
