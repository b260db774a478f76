"""A manager's HTTP port and a network that can be cut, for tests of links and workers over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from tercel.links.contract import ManagerEnd, WorkerEnd
from tercel.links.websocket import WebSocketDialer, WebSocketManagerEnd, new_socket
from tercel.wire.messages import FromManager, Offer


async def close_all(*ends: WorkerEnd | ManagerEnd) -> None:
    """Together, as each waits for the other's farewell."""
    await asyncio.gather(*(end.close() for end in ends))


def large_offer(number: int) -> FromManager:
    """A message with a quarter of a megabyte in it, for the way down."""
    return Offer(1, number, number, number, ["x" * 256 * 1024])


class Server:
    """A manager's HTTP port that hands over the manager's end of every link."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[WebSocketManagerEnd] = asyncio.Queue()
        self.url = ""
        self.seen_tokens: list[str | None] = []
        self._ends: list[WebSocketManagerEnd] = []
        self._over = asyncio.Event()

    async def accept(self, request: web.Request) -> web.StreamResponse:
        self.seen_tokens.append(request.headers.get("Authorization"))
        socket = new_socket()
        await socket.prepare(request)
        end = WebSocketManagerEnd(socket)
        self._ends.append(end)
        self.arrived.put_nowait(end)
        await self._over.wait()
        return socket

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Server"]:
        app = web.Application()
        app.router.add_get("/v1/link", self.accept)
        for status in (401, 403, 404, 502):
            app.router.add_get(f"/{status}/v1/link", _answers(status))
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await close_all(*self._ends)
            self._over.set()
            await runner.cleanup()

    async def connect(self) -> tuple[WorkerEnd, ManagerEnd]:
        worker = await WebSocketDialer(self.url, "secret").dial()
        return worker, await self.arrived.get()


def _answers(status: int) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status)

    return answer


class Proxy:
    """Stands between a worker and its manager, and does to their connections what networks do."""

    def __init__(self, target: str) -> None:
        self._host, port = target.removeprefix("http://").split(":")
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self._server.close()
            self.reset()

    def reset(self) -> None:
        """Both sides see their connections end at once."""
        for writer in self._writers:
            writer.transport.abort()

    def fall_silent(self) -> None:
        """Nothing gets through any more and nobody is told: a dropped route, a NAT that forgot."""
        self._passing.clear()

    def recover(self) -> None:
        """New connections get through; those from before stay dead."""
        self.reset()
        self._passing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        other: asyncio.StreamWriter | None = None
        try:
            other_reader, other = await asyncio.open_connection(self._host, self._port)
            self._writers.add(other)
            await asyncio.gather(self._carry(reader, other), self._carry(other_reader, writer))
        except OSError:
            pass
        finally:
            for each in filter(None, (writer, other)):
                each.transport.abort()
                with contextlib.suppress(OSError):
                    await each.wait_closed()
                self._writers.discard(each)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._passing.wait()
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
