"""One request, with what its handler needs: who asks, what is asked for, checked.

Bodies are bounded in size and in time, and large ones are taken few at a time, because a body is held several
times over while it is understood: neither a slow client nor many large ones may cost the others the manager.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TypeVar

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from tercel.core.errors import PassingFault, UsageError
from tercel.core.model import JobRow
from tercel.manager import finding
from tercel.manager.access import Identity, Tokens, Visits
from tercel.manager.openapi import MAX_NUMBER, Operation
from tercel.manager.problems import Refusal
from tercel.manager.server import Connection
from tercel.manager.service import Manager

T = TypeVar("T")
SMALL_BYTES = 4 * 2**20
LARGE_AT_ONCE = 2
SILENCE_S = 30.0
"""The longest a client may be silent in the middle of a body."""
LARGE_S = 600.0
"""The longest a large body may take, since it keeps other large ones waiting."""
TURN_S = 60.0
"""The longest a large body waits for its turn."""

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NAMED_FIELD = re.compile(r"(?:unknown|required) field `(.*)`", re.DOTALL)
_encode = msgspec.json.Encoder().encode
MSGPACK = "application/msgpack"


class Bodies:
    """Reads the bodies of all requests."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(LARGE_AT_ONCE)

    async def read(self, request: web.Request, most_bytes: int, turn: AsyncExitStack) -> bytes:
        """If it is large, its turn lasts until `turn` is closed."""
        if "Content-Encoding" in request.headers:
            raise Refusal(415, "not understood", "the request must not be compressed", "Content-Encoding")
        if (request.content_length or 0) > most_bytes:
            raise _too_large(most_bytes)
        data = bytearray()
        try:
            if await self._fill(data, request, min(SMALL_BYTES, most_bytes)):
                return bytes(data)
            if most_bytes <= SMALL_BYTES:
                raise _too_large(most_bytes)
            await self._take_turn(turn)
            async with asyncio.timeout(LARGE_S):
                if not await self._fill(data, request, most_bytes):
                    raise _too_large(most_bytes)
        except TimeoutError:
            raise Refusal(408, "too slow", "the request did not arrive in time", "body") from None
        except RequestPayloadError as error:
            raise UsageError(f"the request's body cannot be read: {error}", "body") from None
        except ConnectionError:
            raise Refusal(400, "incomplete", "the connection ended before the request did", "body") from None
        return bytes(data)

    async def stream(self, request: web.Request, most_bytes: int) -> AsyncIterator[bytes]:
        """As it arrives, for what is not held whole: so it need not wait for a turn."""
        if "Content-Encoding" in request.headers:
            raise Refusal(415, "not understood", "the request must not be compressed", "Content-Encoding")
        size = 0
        try:
            while (request.content_length or 0) <= most_bytes and size <= most_bytes:
                async with asyncio.timeout(SILENCE_S):
                    piece = await request.content.readany()
                if not piece:
                    return
                size += len(piece)
                yield piece
        except TimeoutError:
            raise Refusal(408, "too slow", "the request did not arrive in time", "body") from None
        except RequestPayloadError as error:
            raise UsageError(f"the request's body cannot be read: {error}", "body") from None
        except ConnectionError:
            raise Refusal(400, "incomplete", "the connection ended before the request did", "body") from None
        raise _too_large(most_bytes)

    async def _fill(self, data: bytearray, request: web.Request, most_bytes: int) -> bool:
        """Read until the end (True) or until there is more than the most (False)."""
        while len(data) <= most_bytes:
            async with asyncio.timeout(SILENCE_S):
                piece = await request.content.readany()
            if not piece:
                return True
            data += piece
        return False

    async def _take_turn(self, turn: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(TURN_S):
                await turn.enter_async_context(self._turns)
        except TimeoutError:
            raise PassingFault("several large requests are being taken: try again in a minute") from None


def _too_large(most_bytes: int) -> Refusal:
    return Refusal(413, "too large", f"the request is larger than {most_bytes:,} bytes", "body")


class Call:
    """One request."""

    def __init__(
        self,
        operation: Operation,
        request: web.Request,
        who: Identity,
        manager: Manager,
        tokens: Tokens,
        visits: Visits,
        bodies: Bodies,
        ending: AsyncExitStack,
    ) -> None:
        self.operation = operation
        self.request = request
        self.who = who
        self.manager = manager
        self.tokens = tokens
        self.visits = visits
        self._bodies = bodies
        self._ending = ending
        """Closed when the request is answered."""

    async def body(self, type_: type[T]) -> T:
        data = await self._bodies.read(self.request, self.operation.most_bytes, self._ending)
        packed = self.operation.packed and self.request.content_type == MSGPACK
        try:
            return (
                msgspec.msgpack.decode(data, type=type_) if packed else msgspec.json.decode(data, type=type_)
            )
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
            field = path.rstrip("`").lstrip(".")
            if named := _NAMED_FIELD.search(text):
                field = f"{field}.{named[1]}".lstrip(".")
            raise UsageError(f"{field[:200] or 'the request'}: {text}", field or "body") from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise UsageError(
                f"the request is not {'msgpack' if packed else 'JSON'}: {error}", "body"
            ) from None

    def content(self) -> AsyncIterator[bytes]:
        """The body as it arrives, whatever it is."""
        return self._bodies.stream(self.request, self.operation.most_bytes)

    def text(self, name: str) -> str | None:
        return self.request.query.get(name)

    def texts(self, name: str) -> list[str]:
        return self.request.query.getall(name, [])

    def number(self, name: str, least: int, most: int = MAX_NUMBER) -> int | None:
        text = self.text(name)
        return None if text is None else whole_number(text, name, least, most)

    def flag(self, name: str) -> bool:
        text = self.request.query.get(name, "false")
        if text not in ("true", "false"):
            raise UsageError(f"{name} is true or false, not {text[:40]!r}", name)
        return text == "true"

    async def job(self) -> JobRow:
        """With nothing of it still on its way to the disk."""
        id = whole_number(self.request.match_info["job"], "job", 0)
        await self.manager.settled()
        return await finding.standing(self.manager, self.who, id)

    def task(self) -> int:
        return whole_number(self.request.match_info["task"], "task", 0)

    @contextmanager
    def visit(self) -> Iterator[None]:
        """For what lasts: ended when the client goes or its token is revoked, wherever it waits."""
        connection = self.request.protocol
        assert isinstance(connection, Connection)
        with self.visits.visit(self.who.token) as task:
            connection.at_loss(task.cancel)
            try:
                yield
            finally:
                connection.at_loss(None)


def whole_number(text: str, name: str, least: int, most: int = MAX_NUMBER) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise UsageError(f"{name} is a whole number from {least} to {most}, not {text[:40]!r}", name)
    return int(text)


def answer(value: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=_encode(value), status=status, content_type="application/json")
