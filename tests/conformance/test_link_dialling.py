"""Dialling a manager: addresses, tokens, and who else may answer there."""

import asyncio

import pytest

from tercel.core.errors import Forbidden, Unreachable, UsageError
from tercel.core.model import Needs
from tercel.core.presence import WorkerInfo, WorkerState
from tercel.links import websocket
from tercel.links.contract import WorkerEnd
from tercel.links.failover import FailoverDialer
from tercel.links.websocket import WebSocketDialer
from tercel.wire.messages import (
    Cancel,
    Hello,
    Presence,
)
from tests.worker.network import Server, close_all


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
    # A machine without a network may look for the name longer than a dial lasts.
    with pytest.raises(Unreachable, match=r"cannot be reached|has not answered"):
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


# -- several addresses ------------------------------------------------------------------------------------


class Way:
    def __init__(self, url: str) -> None:
        self._dialer = WebSocketDialer(url, "secret")
        self.dialled = 0

    async def dial(self) -> WorkerEnd:
        self.dialled += 1
        return await self._dialer.dial()


@pytest.mark.C(13)
async def test_the_address_that_answers_is_taken_and_tried_first_from_then_on(
    server: Server, unused_tcp_port: int
) -> None:
    urls = f"http://127.0.0.1:{unused_tcp_port}", f"{server.url}/403", server.url, f"{server.url}/502"
    ways = [Way(url) for url in urls]
    dialer = FailoverDialer([(url, "secret", way) for url, way in zip(urls, ways, strict=True)])
    for _ in range(2):
        await close_all(await dialer.dial(), await server.arrived.get())
    assert [way.dialled for way in ways] == [1, 1, 2, 0]
    assert dialer.way() == (server.url, "secret")


@pytest.mark.C(13)
@pytest.mark.parametrize(
    ("answers", "error"),
    [(("403", "401"), Forbidden), (("403", "502"), Unreachable), (("404", "502"), Unreachable)],
)
async def test_if_none_answers_all_are_told_and_haste_is_as_for_the_best(
    server: Server, answers: tuple[str, ...], error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        await FailoverDialer([(answer, "", Way(f"{server.url}/{answer}")) for answer in answers]).dial()
    assert all(f"{server.url}/{answer}" in str(raised.value) for answer in answers)
