"""HTTP/1.1 to one manager: connections, the pool of them, deadlines and retries.

asyncio's streams and h11 instead of a client library, because a command must start in a fraction of the time that
importing one takes (aiohttp 220 ms, httpx more; this 15 ms beside asyncio).

A connection that breaks says nothing about whether the request was done. Requests that may be repeated safely are
repeated a few times; others go over a fresh connection, so that an idle one that the manager just closed cannot
break them, and are never repeated.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from tercel import __version__
from tercel.core.errors import PeerError, Unreachable, UsageError
from tercel.links.access import DEFAULT_PORT

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 120.0
"""How long a manager may be silent in the middle of an answer."""
RETRY_PAUSES_S = (0.0, 0.2, 0.6, 1.5)
READ_BYTES = 256 * 1024
MOST_IDLE = 8


class Broken(Unreachable):
    """The connection ended before the answer was complete."""


class Answer(NamedTuple):
    status: int
    body: bytes


class Connection:
    """One connection; one exchange at a time."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._url = url
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)

    @classmethod
    async def open(cls, url: str) -> "Connection":
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(
                    parts.hostname, parts.port or (443 if tls else 80), ssl=tls or None, limit=2 * READ_BYTES
                )
        except TimeoutError:
            raise Unreachable(f"no manager answers at {url} within {CONNECT_TIMEOUT_S:g} s") from None
        except UnicodeError:  # a label that is empty or too long
            raise _not_an_address(url) from None
        except OSError as error:
            reason = "the connection is refused" if isinstance(error, ConnectionRefusedError) else str(error)
            raise Unreachable(
                f"no manager answers at {url} ({reason}): is it running, and is the address right?"
            ) from None
        _notice_a_vanished_peer(writer)
        return cls(url, reader, writer)

    async def send(
        self, request: h11.Request, body: bytes, silence_s: float | None = ANSWER_TIMEOUT_S
    ) -> h11.Response:
        """Send a request and return the head of its answer."""
        return await self.send_pieces(request, [body] if body else [], silence_s)

    async def send_pieces(
        self, request: h11.Request, pieces: Iterable[bytes], silence_s: float | None
    ) -> h11.Response:
        """As `send`; no more of the body is in memory than is on its way."""
        self._write(self._http.send(request))
        try:
            for piece in pieces:
                self._write(self._http.send(h11.Data(data=piece)))
                await self._writer.drain()
            self._write(self._http.send(h11.EndOfMessage()))
            await self._writer.drain()
        except ConnectionError:
            pass  # it may have refused early: then the answer is there to read
        event = await self._next(silence_s)
        while isinstance(event, h11.InformationalResponse):
            event = await self._next(silence_s)
        if not isinstance(event, h11.Response):
            raise Broken(f"the manager at {self._url} closed the connection without an answer")
        return event

    async def chunks(self, silence_s: float | None) -> AsyncIterator[bytes]:
        """The answer's body, as it arrives."""
        while True:
            event = await self._next(silence_s)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise Broken(f"the manager at {self._url} closed the connection in the middle of an answer")

    def reusable(self) -> bool:
        """Whether another exchange may follow; call it when the answer was read to its end."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    @property
    def stale(self) -> bool:
        """Whether the manager is known to have closed it meanwhile."""
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    def _write(self, data: bytes | None) -> None:
        if data:
            self._writer.write(data)

    async def _next(self, silence_s: float | None) -> object:
        ended = False
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                if ended:
                    raise Broken(f"the manager at {self._url} closed the connection") from None
                raise PeerError(f"what answers at {self._url} is not a manager: {error}") from None
            if event is not h11.NEED_DATA:
                return event
            data = await self._read(silence_s)
            ended = not data
            self._http.receive_data(data)

    async def _read(self, silence_s: float | None) -> bytes:
        try:
            async with asyncio.timeout(silence_s):
                return await self._reader.read(READ_BYTES)
        except TimeoutError:
            raise Unreachable(f"the manager at {self._url} was silent for {silence_s:g} s") from None
        except OSError as error:
            raise Broken(f"the connection to the manager at {self._url} broke ({error})") from None


class Stream:
    """An answer whose body is read as it arrives, until the block ends.

    No generator: whoever leaves an iteration early may leave it to the loop's end to close all generators, at once and in
    any order, which one that holds another does not survive.
    """

    def __init__(self, connection: Connection, status: int, silence_s: float | None) -> None:
        self.status = status
        self._connection = connection
        self._silence_s = silence_s

    def __enter__(self) -> AsyncIterator[bytes]:
        return self._connection.chunks(self._silence_s)

    def __exit__(self, *raised: object) -> None:
        self._connection.close()


class Transport:
    """All connections to one manager, in one event loop."""

    def __init__(self, url: str, token: str) -> None:
        """Raises UsageError if the address cannot be written into a request."""
        if not url.isascii():
            raise _not_an_address(url)
        self.url = url
        parts = urlsplit(url)
        self._prefix = parts.path
        self._headers = [("Host", parts.netloc), ("User-Agent", f"tercel/{__version__}")]
        if token:
            self._headers.append(("Authorization", f"Bearer {token}"))
        self._idle: list[Connection] = []

    async def fetch(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        repeatable: bool,
        media: str = "application/json",
    ) -> Answer:
        """One exchange. Raises Unreachable (or its kind Broken) when there is no whole answer."""
        if not repeatable:
            try:
                return await self._exchange(await Connection.open(self.url), method, target, body, media)
            except Broken as error:
                raise Broken(
                    f"{error}; whether it was done is not known: look before you repeat it"
                ) from None
        broke = False
        for pause_s in RETRY_PAUSES_S:
            try:
                return await self._exchange(await self._connection(), method, target, body, media)
            except Broken:
                broke = True
            except Unreachable:
                # Refused at once: nobody is there. After a break: it may be restarting.
                if not broke:
                    raise
            await asyncio.sleep(pause_s)
        return await self._exchange(await self._connection(), method, target, body, media)

    async def stream(
        self, target: str, silence_s: float | None, head_s: float | None = ANSWER_TIMEOUT_S
    ) -> "Stream":
        """Over a connection of its own. The answer begins within `head_s`."""
        connection = await Connection.open(self.url)
        try:
            head = await connection.send(self._request("GET", target, b"", ""), b"", head_s)
        except BaseException:
            connection.close()
            raise
        return Stream(connection, head.status_code, silence_s)

    async def upload(
        self, target: str, size_bytes: int, pieces: Iterable[bytes], method: str = "POST"
    ) -> Answer:
        """Send what is too large for memory, over a connection of its own, and wait for as long as it takes."""
        connection = await Connection.open(self.url)
        try:
            headers = [
                *self._headers,
                ("Content-Type", "application/octet-stream"),
                ("Content-Length", str(size_bytes)),
            ]
            request = h11.Request(method=method, target=self._prefix + target, headers=headers)
            head = await connection.send_pieces(request, pieces, None)
            return Answer(head.status_code, b"".join([chunk async for chunk in connection.chunks(None)]))
        finally:
            connection.close()

    def same_as(self, other: "Transport") -> bool:
        """Whether both go to the same address with the same token."""
        return self.url == other.url and self._headers == other._headers

    def close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def aclose(self) -> None:
        self.close_idle()
        await asyncio.sleep(0)  # lets the connections close before the loop does

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.stale:
                return connection
            connection.close()
        return await Connection.open(self.url)

    async def _exchange(
        self, connection: Connection, method: str, target: str, body: bytes, media: str
    ) -> Answer:
        reusable = False
        try:
            head = await connection.send(self._request(method, target, body, media), body)
            content = b"".join([chunk async for chunk in connection.chunks(ANSWER_TIMEOUT_S)])
            reusable = connection.reusable() and len(self._idle) < MOST_IDLE
        finally:
            if reusable:
                self._idle.append(connection)
            else:
                connection.close()
        return Answer(head.status_code, content)

    def _request(self, method: str, target: str, body: bytes, media: str) -> h11.Request:
        headers = self._headers
        if body:
            headers = [*headers, ("Content-Type", media)]
        if body or method in ("POST", "PUT"):
            headers = [*headers, ("Content-Length", str(len(body)))]
        return h11.Request(method=method, target=self._prefix + target, headers=headers)


def _not_an_address(url: str) -> UsageError:
    return UsageError(f"{url!r} is not a manager's address: write http://host:{DEFAULT_PORT}", "server")


def _notice_a_vanished_peer(writer: asyncio.StreamWriter) -> None:
    """A follower may hear nothing for hours; the kernel then asks whether the other side is still there."""
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
