"""What every link does, checked on both; then what only a network can do to one."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, get_args

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tercel.core.errors import Forbidden, PeerError, Unreachable, UsageError
from tercel.core.model import Needs, WorkerInfo, WorkerState
from tercel.links import websocket
from tercel.links.contract import LinkClosed, ManagerEnd, WorkerEnd
from tercel.links.local import LocalDialer, local_pair
from tercel.links.websocket import WebSocketDialer, WebSocketManagerEnd
from tercel.wire.messages import (
    MAX_FRAME_BYTES,
    Ack,
    Cancel,
    FromManager,
    FromWorker,
    Hello,
    Offer,
    Ping,
    Presence,
    Segment,
    Started,
)
from tercel.wire.session import ManagerSession, WorkerSession
from tests.worker.network import Server, close_all

Pair = tuple[WorkerEnd, ManagerEnd]
Connect = Callable[[], Awaitable[Pair]]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as server:
        yield server


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


# -- both links ---------------------------------------------------------------------------------------


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
            message = Segment(number, "out", 0, payload) if upward else _large_offer(number)
            await sender.send([message])
            sent += 1

    sending = asyncio.create_task(send())
    for received in range(frames):
        assert sent - received <= bound
        await receiver.receive()
    await sending
    assert sent == frames


def _large_offer(number: int) -> FromManager:
    return Offer(1, number, number, number, ["x" * 256 * 1024])


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


# -- any message --------------------------------------------------------------------------------------


def _values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that occurs in a message."""
    kind_of = msgspec.inspect.type_info(kind) if not isinstance(kind, msgspec.inspect.Type) else kind
    match kind_of:
        case msgspec.inspect.IntType():
            return st.integers(-(2**63), 2**64 - 1)
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False)
        case msgspec.inspect.StrType():
            return st.text(max_size=20)
        case msgspec.inspect.BytesType():
            return st.binary(max_size=50)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case msgspec.inspect.ListType(item_type=item):
            return st.lists(_values(item), max_size=4)
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(_values(item), max_size=4).map(tuple)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_values(key), _values(value), max_size=3)
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*(_values(one) for one in types))
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: _values(field.type) for field in fields})
    raise AssertionError(f"no strategy for {kind_of}")


any_from_worker = st.one_of(*(_values(kind) for kind in get_args(FromWorker)))
any_from_manager = st.one_of(*(_values(kind) for kind in get_args(FromManager)))
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _on_one_loop(scenario: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Server().running() as server:
            await scenario(server)

    asyncio.run(run())


@given(st.lists(any_from_worker, min_size=1, max_size=5), st.lists(any_from_manager, min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_message_survives_encoding(up: list[FromWorker], down: list[FromManager]) -> None:
    assert ManagerSession().decode(WorkerSession().encode(up)) == up
    assert WorkerSession().decode(ManagerSession().encode(down)) == down


@given(st.lists(any_from_worker, min_size=1, max_size=5), st.lists(any_from_manager, min_size=1, max_size=5))
@quick
def test_any_message_survives_the_network(up: list[FromWorker], down: list[FromManager]) -> None:
    async def scenario(server: Server) -> None:
        worker, manager = await server.connect()
        await worker.send(up)
        await manager.send(down)
        assert await manager.receive() == up
        assert await worker.receive() == down
        await close_all(worker, manager)

    _on_one_loop(scenario)


@given(st.binary())
@settings(max_examples=1000, deadline=None)
@pytest.mark.must("f")
def test_arbitrary_bytes_are_a_frame_or_a_peer_error(data: bytes) -> None:
    for session in (ManagerSession(), WorkerSession()):
        try:
            messages = session.decode(data)
        except PeerError:
            continue
        assert isinstance(messages, list)


@given(st.lists(any_from_worker, min_size=1, max_size=3), st.data())
@settings(max_examples=500, deadline=None)
@pytest.mark.must("f")
def test_damaged_frames_are_a_frame_or_a_peer_error(up: list[FromWorker], data: st.DataObject) -> None:
    frame = bytearray(WorkerSession().encode(up))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = frame[: data.draw(st.integers(0, len(frame)))]
    for damaged in (bytes(frame), bytes(cut)):
        try:
            ManagerSession().decode(damaged)
        except PeerError:
            pass


# -- what only a network does -------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _stranger(
    server: Server,
) -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, WebSocketManagerEnd]]:
    """A client that speaks WebSocket but not necessarily our protocol."""
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(server.url + "/v1/link", timeout=aiohttp.ClientWSTimeout(ws_close=1)) as socket,
    ):
        yield socket, await server.arrived.get()


GOOD = WorkerSession().encode([Started([1])])

NONSENSE: dict[str, bytes] = {
    "nothing": b"",
    "garbage": b"\xc1garbage",
    "truncated": GOOD[:-1],
    "trailing bytes": GOOD + b"\0",
    "JSON": b'[0,[["Started",[1]]]]',
    "an unknown message": msgspec.msgpack.encode([0, [["Explode", 1]]]),
    "a manager's message": ManagerSession().encode([Ping()]),
    "a field of the wrong type": msgspec.msgpack.encode([0, [["Started", ["x"]]]]),
    "a missing field": msgspec.msgpack.encode([0, [["Segment", 1]]]),
    "text that is not UTF-8": b"\x92\x00\x91\x92\xa3Bye\xa2\xff\xfe",
    "a huge announced length": b"\xdd\xff\xff\xff\xff",
    "a number too large": msgspec.msgpack.encode([0, [["Started", [2.5e300]]]]),
    "deep nesting": b"\x91" * 100_000,
    "a gap": msgspec.msgpack.encode([1, [["Started", [1]]]]),
}


@pytest.mark.must("f")
@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
async def test_nonsense_is_a_peer_error_and_others_go_on(server: Server, data: bytes) -> None:
    worker, manager = await server.connect()
    async with _stranger(server) as (socket, end):
        await socket.send_bytes(data)
        with pytest.raises(PeerError):
            await end.receive()
        closing = asyncio.create_task(end.close())
        farewell = await socket.receive()
        assert farewell.type is aiohttp.WSMsgType.CLOSE
        assert farewell.data == aiohttp.WSCloseCode.PROTOCOL_ERROR
        await closing
    await worker.send([Started([1])])
    assert await manager.receive() == [Started([1])]
    await close_all(worker, manager)


@pytest.mark.must("f")
async def test_nonsense_from_a_manager_is_a_peer_error(server: Server) -> None:
    worker = await WebSocketDialer(server.url, "x").dial()
    end = await server.arrived.get()
    await end._socket.send_bytes(b"\xc1")
    with pytest.raises(PeerError, match="manager"):
        await worker.receive()
    await close_all(worker, end)


@pytest.mark.must("f")
async def test_a_text_message_is_a_peer_error(server: Server) -> None:
    async with _stranger(server) as (socket, end):
        await socket.send_str("hello?")
        with pytest.raises(PeerError, match="text"):
            await end.receive()
        await asyncio.gather(end.close(), socket.receive())


@pytest.mark.must("f")
async def test_an_oversized_frame_is_a_peer_error_and_is_not_gathered(server: Server) -> None:
    async with _stranger(server) as (socket, end):
        sending = asyncio.create_task(socket.send_bytes(bytes(MAX_FRAME_BYTES + 1)))
        with pytest.raises(PeerError, match="size"):
            await end.receive()
        await end.close()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_frame_of_the_largest_size_passes(server: Server) -> None:
    worker, manager = await server.connect()
    room = MAX_FRAME_BYTES - len(WorkerSession().encode([Segment(1, "out", 0, b"x" * 70_000)])) + 70_000
    message = Segment(1, "out", 0, bytes(room - 1))
    sending = asyncio.create_task(worker.send([message]))
    assert await manager.receive() == [message]
    await sending
    await close_all(worker, manager)


@pytest.mark.must("f")
@pytest.mark.parametrize(
    "bytes_after_handshake",
    [
        b"\xff" * 64,
        b"\x82\xff" + struct.pack(">Q", 2**62) + bytes(4),  # a binary frame of 4 EiB
        b"\x82\x05hello",  # a client must mask
        b"\x89\xfe\x00\xff" + bytes(4 + 255),  # a ping larger than a ping may be
    ],
)
async def test_broken_websocket_frames_end_the_link_and_others_go_on(
    server: Server, bytes_after_handshake: bytes
) -> None:
    worker, manager = await server.connect()
    _, writer = await _raw_client(server)
    end = await server.arrived.get()
    writer.write(bytes_after_handshake)
    with pytest.raises((PeerError, LinkClosed)):
        receiving = asyncio.create_task(end.receive())
        writer.write_eof()
        await receiving
    await end.close()
    await _hang_up(writer)
    await worker.send([Started([1])])
    assert await manager.receive() == [Started([1])]
    await close_all(worker, manager)


async def _raw_client(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A TCP connection that has upgraded to WebSocket and is at nobody's mercy from there on."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**16)
    writer.write(
        b"GET /v1/link HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.must("d")
async def test_a_peer_that_takes_nothing_ends_a_blocked_send(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "SEND_LIMIT_S", 0.2)
    _, writer = await _raw_client(server)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    end = await server.arrived.get()
    receiving = asyncio.create_task(end.receive())
    with pytest.raises(LinkClosed, match=r"taken nothing for 0\.2 s"):
        while True:
            await end.send([_large_offer(1)])
    with pytest.raises(LinkClosed):
        await receiving
    await end.close()
    await _hang_up(writer)


@pytest.mark.must("d")
async def test_closing_towards_a_silent_peer_is_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_LIMIT_S", 0.2)
    _, writer = await _raw_client(server)
    end = await server.arrived.get()
    async with asyncio.timeout(5):
        await end.close()
    await _hang_up(writer)


@pytest.mark.must("d")
async def test_a_reset_connection_is_a_closed_link(server: Server) -> None:
    worker, manager = await server.connect()
    await worker.send([Started([1])])
    await manager.receive()
    worker._abort()  # type: ignore[attr-defined]
    with pytest.raises(LinkClosed):
        await manager.receive()
    with pytest.raises(LinkClosed):
        await worker.receive()
    await worker.close()


async def test_the_token_travels_in_the_header(server: Server) -> None:
    worker, manager = await server.connect()
    assert server.seen_tokens == ["Bearer secret"]
    await close_all(worker, manager)


@pytest.mark.parametrize(
    ("status", "error"), [(401, Forbidden), (403, Forbidden), (404, Unreachable), (502, Unreachable)]
)
async def test_what_the_manager_answers_decides_whether_trying_again_helps(
    server: Server, status: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await WebSocketDialer(f"{server.url}/{status}", "secret").dial()


async def test_nobody_at_the_address_is_unreachable(unused_tcp_port: int) -> None:
    with pytest.raises(Unreachable, match="cannot be reached: Connection refused"):
        await WebSocketDialer(f"http://127.0.0.1:{unused_tcp_port}", "x").dial()
    with pytest.raises(Unreachable, match="cannot be reached"):
        await WebSocketDialer("http://no-such-host.invalid", "x").dial()


async def test_somebody_who_never_answers_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "DIAL_LIMIT_S", 0.2)
    gone = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Unreachable, match=r"within 0\.2 s"):
        await WebSocketDialer(f"http://127.0.0.1:{port}", "x").dial()
    await gone.wait()
    server.close()


async def test_somebody_who_speaks_another_protocol_is_unreachable() -> None:
    async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        writer.close()

    server = await asyncio.start_server(ssh, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Unreachable):
        await WebSocketDialer(f"http://127.0.0.1:{port}", "x").dial()
    server.close()


@pytest.mark.parametrize(
    "url", ["", "host", "host:7717", "ftp://host", "http://", "http://h:port", "http://[::1", "ws://h"]
)
def test_what_is_no_address_is_the_callers_mistake(url: str) -> None:
    with pytest.raises(UsageError, match="http://host:7717"):
        WebSocketDialer(url, "x")


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX-Evil: 1", "naïve", "\0"])
def test_what_is_no_token_is_the_callers_mistake(token: str) -> None:
    with pytest.raises(UsageError, match="token"):
        WebSocketDialer("http://h", token)


def test_a_path_before_the_link_is_kept() -> None:
    assert websocket._target("https://lab.org/tercel/") == "wss://lab.org/tercel/v1/link"
    assert websocket._target("http://[::1]:7717") == "ws://[::1]:7717/v1/link"


async def test_a_whole_hello_passes(server: Server) -> None:
    worker, manager = await server.connect()
    hello = Hello(1, "w", "i", WorkerInfo(node="n"), [])
    await worker.send([hello, Presence(WorkerState.BUSY, Needs())])
    assert await manager.receive() == [hello, Presence(WorkerState.BUSY, Needs())]
    await manager.send([Cancel([1])])
    assert await worker.receive() == [Cancel([1])]
    await close_all(worker, manager)
