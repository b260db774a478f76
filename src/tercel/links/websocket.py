"""The default link: binary WebSocket messages, one frame each, on the manager's HTTP port.

    worker                                          manager
    WebSocketDialer.dial() --GET /v1/link, token--> new_socket().prepare(request), WebSocketManagerEnd(socket)

Frames are not compressed: outputs already are, and the rest is small. aiohttp's own heartbeat is off, for the
messages above beat both ways. What this module adds is that no call waits for ever on a peer that has gone
without a word: a frame that the peer has not taken within SEND_LIMIT_S ends the link, and closing is bounded.
"""

import asyncio
import os
from contextlib import suppress
from typing import Generic, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from aiohttp import web

from tercel.core.errors import Forbidden, PeerError, TercelError, Unreachable, UsageError
from tercel.links.access import is_loopback
from tercel.links.contract import LinkClosed
from tercel.wire.messages import MAX_FRAME_BYTES, FromManager, FromWorker
from tercel.wire.session import Heard, ManagerSession, Sent, Session, WorkerSession

PATH = "/v1/link"
DIAL_LIMIT_S = 10.0
SEND_LIMIT_S = 30.0
"""The longest a frame waits for the peer to take what was sent before it."""
CLOSE_LIMIT_S = 2.0
"""The longest an end that closes waits for the other's farewell."""

_PROTOCOL_ERROR = aiohttp.WSCloseCode.PROTOCOL_ERROR

_Socket: TypeAlias = aiohttp.ClientWebSocketResponse | web.WebSocketResponse


def new_socket() -> web.WebSocketResponse:
    """What the manager's HTTP handler prepares for a worker that dials."""
    return web.WebSocketResponse(
        timeout=CLOSE_LIMIT_S, autoping=True, heartbeat=None, compress=False, max_msg_size=MAX_FRAME_BYTES
    )


class _End(Generic[Sent, Heard]):
    """What both ends have in common: frames out, frames in, and a reason once it is over."""

    def __init__(self, socket: _Socket, peer: str, session: Session[Sent, Heard]) -> None:
        self._socket = socket
        self._peer = peer
        self._session = session
        self._over = ""
        self._farewell = (int(aiohttp.WSCloseCode.OK), b"")

    async def send(self, messages: list[Sent]) -> None:
        await self._push(self._session.encode(messages))

    async def receive(self) -> list[Heard]:
        while True:
            data = await self._pull()
            try:
                messages = self._session.decode(data)
            except PeerError as error:
                raise self._broken(str(error)) from error
            if messages:
                return messages

    async def _push(self, data: bytes) -> None:
        if self._over:
            raise LinkClosed(self._over)
        try:
            if self._takes_at_once(len(data)):
                await self._socket.send_bytes(data)
            else:
                async with asyncio.timeout(SEND_LIMIT_S):
                    await self._socket.send_bytes(data)
        except TimeoutError:
            raise self._ended(f"the {self._peer} has taken nothing for {SEND_LIMIT_S:g} s") from None
        except (OSError, aiohttp.ClientError) as error:
            raise self._ended(f"the connection to the {self._peer} broke: {_words(error)}") from error

    async def _pull(self) -> bytes:
        if self._over:
            raise LinkClosed(self._over)
        message = await self._socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            data: bytes = message.data
            return data
        if message.type is aiohttp.WSMsgType.TEXT:
            raise self._broken(f"the {self._peer} sent text where a frame should be")
        if message.type is aiohttp.WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            raise self._broken(f"the {self._peer} broke the WebSocket protocol: {message.data}")
        if message.type is aiohttp.WSMsgType.ERROR:
            raise self._ended(f"the connection to the {self._peer} broke: {_words(message.data)}")
        reason = f": {message.extra}" if message.extra else ""
        raise self._ended(f"the {self._peer} closed the link{reason}")

    def _broken(self, reason: str) -> PeerError:
        self._farewell = (int(_PROTOCOL_ERROR), reason.encode()[:120])
        return PeerError(reason)

    def _ended(self, reason: str) -> LinkClosed:
        self._over = self._over or reason
        self._abort()
        return LinkClosed(self._over)

    async def close(self) -> None:
        self._over = self._over or "this end closed the link"
        code, message = self._farewell
        transport = self._transport()
        if (
            transport is not None
            and transport.get_write_buffer_size() > transport.get_write_buffer_limits()[1]
        ):
            transport.abort()  # a peer that takes nothing would not take a farewell either
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._socket.close(code=code, message=message)
        self._abort()

    def _abort(self) -> None:
        """Whoever waits in send or receive is woken; nothing more is written."""
        transport = self._transport()
        if transport is not None:
            transport.abort()

    def _takes_at_once(self, size_bytes: int) -> bool:
        """Whether so much fits where nobody has to wait: then no timer is needed, and most frames are like that."""
        transport = self._transport()
        if transport is None:
            return False
        low, _ = transport.get_write_buffer_limits()
        return transport.get_write_buffer_size() + size_bytes < low

    def _transport(self) -> asyncio.Transport | None:
        # aiohttp has no public way to a client socket's transport; the conformance suite would notice a change.
        writer = self._socket._writer
        return None if writer is None else writer.transport


def _words(error: BaseException) -> str:
    """What happened, without aiohttp's ornaments."""
    if isinstance(error, aiohttp.ClientConnectorError) and (error.os_error.errno or 0) > 0:
        return os.strerror(error.os_error.errno or 0)
    return str(error) or type(error).__name__


class WebSocketManagerEnd(_End[FromManager, FromWorker]):
    """The manager's end of a link whose socket has been prepared."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        super().__init__(socket, "worker", ManagerSession())


class WebSocketWorkerEnd(_End[FromWorker, FromManager]):
    """The worker's end. It owns the HTTP client it came from."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, client: aiohttp.ClientSession) -> None:
        super().__init__(socket, "manager", WorkerSession())
        self._client = client

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._client.close()


class WebSocketDialer:
    """Reaches the manager at `url` (http://host:port or https://…) with a worker's or an admin's token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._target = _target(url)
        if not token.isascii() or not token.isprintable():
            raise UsageError("the token contains characters that no token has", "token")
        self._headers = {"Authorization": f"Bearer {token}"}
        # The environment's proxy is for the way out; nobody means it for this very machine.
        self._use_proxy = not is_loopback(url)

    async def dial(self) -> WebSocketWorkerEnd:
        client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), trust_env=self._use_proxy, headers=self._headers
        )
        try:
            async with asyncio.timeout(DIAL_LIMIT_S):
                socket = await client.ws_connect(
                    self._target,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_LIMIT_S),
                    heartbeat=None,
                    compress=0,
                    max_msg_size=MAX_FRAME_BYTES,
                )
        except BaseException as error:
            await client.close()
            if (explained := self._explained(error)) is not None:
                raise explained from error
            raise
        return WebSocketWorkerEnd(socket, client)

    def _explained(self, error: BaseException) -> TercelError | None:
        match error:
            case aiohttp.WSServerHandshakeError(status=401 | 403):
                return Forbidden(
                    f"the manager at {self._url} does not accept this token for a worker; "
                    "ask for one made with: tercel token create --role worker"
                )
            case aiohttp.WSServerHandshakeError(status=status):
                return Unreachable(f"{self._url} answers {status} instead of opening a link")
            case TimeoutError():
                return Unreachable(f"{self._url} has not answered within {DIAL_LIMIT_S:g} s")
            case aiohttp.InvalidURL() | UnicodeError():
                return _no_address(self._url)
            case aiohttp.ClientError() | OSError():
                return Unreachable(f"{self._url} cannot be reached: {_words(error)}")
        return None


def _target(url: str) -> str:
    """Where the link is, for a manager's address."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # looked at only to have it checked
    except ValueError as error:
        raise _no_address(url) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _no_address(url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + PATH, "", ""))


def _no_address(url: str) -> UsageError:
    return UsageError(f"{url!r} is no manager's address; write http://host:7717", "url")
