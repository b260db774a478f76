"""What only a network can do to a link."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from tercel.core.errors import PeerError
from tercel.links import websocket
from tercel.links.contract import LinkClosed
from tercel.links.websocket import WebSocketDialer, WebSocketManagerEnd
from tercel.wire.messages import (
    MAX_FRAME_BYTES,
    Ping,
    Segment,
    Started,
)
from tercel.wire.session import ManagerSession, WorkerSession
from tests.worker.network import Server, close_all, large_offer


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
            await end.send([large_offer(1)])
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
