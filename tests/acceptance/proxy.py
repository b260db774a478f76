"""A way from workers to the manager that can be cut: a TCP proxy in the test's own event loop.

open      bytes pass both ways
cut       every connection is reset, new ones are refused
stalled   connections stay, new ones are taken, and nothing passes: neither side is told
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

READ_BYTES = 64 * 1024


class Proxy:
    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._port = 0
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        self._reset_all()

    def stall(self) -> None:
        self._open.clear()

    async def heal(self) -> None:
        """What was stalled goes on with every byte in place; what was cut can be dialled again."""
        self._open.set()
        if self._server is not None and not self._server.is_serving():
            await self.start()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._reset_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reset_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        far_writer: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(far_writer)
            there = asyncio.ensure_future(self._pass(reader, far_writer))
            back = asyncio.ensure_future(self._pass(far_reader, writer))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, far_writer):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(READ_BYTES):
            await self._open.wait()
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    proxy = await Proxy(port).start()
    try:
        yield proxy
    finally:
        await proxy.close()
