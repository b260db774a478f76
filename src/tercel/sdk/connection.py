"""Connection: how a client speaks with one manager. Every family of questions (job, value, pool, event) is built on it.

The address and the token are those of the arguments, else of the environment, else of the access file; they are
looked up again after the manager was unreachable, because a restarted one may listen elsewhere.
"""

from collections.abc import Iterable
from typing import Self, TypeVar

import msgspec

from tercel.core.errors import TercelError, Unreachable, UsageError
from tercel.links.access import NoToken, find_server
from tercel.sdk.answers import Query, decode, problem, target
from tercel.sdk.http import ANSWER_TIMEOUT_S, Answer, Stream, Transport

T = TypeVar("T")


class Connection:
    """To one manager, from one event loop. Questions may be asked at the same time."""

    def __init__(self, server: str | None = None, token: str | None = None) -> None:
        self._server = server
        self._token = token
        self._transport: Transport | None = None
        self._doubtful = False
        """Whether address and token must be looked up again before anything is sent."""
        self._answered = False
        """Whether a manager ever did: then one that is gone is worth waiting for."""

    @property
    def url(self) -> str:
        """The manager's address."""
        return self._connected().url

    @property
    def answered(self) -> bool:
        """Whether a manager ever did."""
        return self._answered

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. The client may be used again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        query: Query | None = None,
        *,
        body: msgspec.Struct | None = None,
        packed: bool = False,
        repeatable: bool = True,
    ) -> T:
        encode = msgspec.msgpack.encode if packed else msgspec.json.encode
        answer = await self._fetch(
            method,
            target(path, query or {}),
            b"" if body is None else encode(body),
            media="application/msgpack" if packed else "application/json",
            repeatable=repeatable,
        )
        return decode(answer.body, kind)

    async def _fetch(
        self,
        method: str,
        target: str,
        content: bytes = b"",
        *,
        media: str = "application/json",
        repeatable: bool = True,
    ) -> Answer:
        """Raises the problem that the answer tells of."""
        try:
            transport = self._connected()
        except NoToken as missing:
            await _must_answer(missing.url)  # where nobody is, no token would help
            raise
        try:
            answer = await transport.fetch(method, target, content, media=media, repeatable=repeatable)
        except Unreachable:
            self._doubtful = True
            raise
        if answer.status >= 300:
            raise problem(answer)
        self._answered = True
        return answer

    async def _stream(
        self, target: str, silence_s: float | None, head_s: float | None = ANSWER_TIMEOUT_S
    ) -> Stream:
        """Of an answer that comes piece by piece. Raises the problem that it tells of."""
        stream = await self._connected().stream(target, silence_s, head_s)
        if stream.status != 200:
            with stream as chunks:
                raise problem(Answer(stream.status, b"".join([chunk async for chunk in chunks])))
        return stream

    async def _upload(
        self, target: str, size_bytes: int, pieces: Iterable[bytes], method: str = "POST"
    ) -> Answer:
        """Raises the problem that the answer tells of."""
        answer = await self._connected().upload(target, size_bytes, pieces, method)
        if answer.status >= 300:
            raise problem(answer)
        return answer

    def _connected(self) -> Transport:
        old = self._transport
        if old is not None and not self._doubtful:
            return old
        try:
            url, token = find_server(self._server, self._token)
        except UsageError:
            if old is None:
                raise
            return old  # a named manager, whose token stood in an access file that is gone by now
        if not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError(f"the token for {url} is not a token: it has characters that no token has")
        new = Transport(url, token)
        self._doubtful = False
        if old is not None and new.same_as(old):
            return old
        if old is not None:
            old.close_idle()
        self._transport = new
        return new

    def _has_moved(self) -> bool:
        """Whether address or token are others by now."""
        old = self._transport
        self._doubtful = True
        try:
            return self._connected() is not old
        except TercelError:
            return True


async def _must_answer(url: str) -> None:
    """Raises Unreachable if nobody does; asks for what needs no token."""
    transport = Transport(url, "")
    try:
        await transport.fetch("GET", "/v1/health", repeatable=True)
    finally:
        await transport.aclose()
