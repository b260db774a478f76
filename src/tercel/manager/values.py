"""Values by key: what clients uploaded (`b` and its SHA-256) and what functions returned (`t37.4`).

    a client   uploads one, or reads one, as a stream
    a worker   asks for one piece after the other (Fetch), for calls that it holds

However large a value is, a few pieces of it are in memory at a time. What is uploaded becomes a value with its last piece,
which is kept only when all of it had the digest that its key says.
"""

import asyncio
import hashlib
import logging
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tercel.core.changes import ValueKept
from tercel.core.commands import parse_key
from tercel.core.errors import NotFound, PassingFault, UsageError
from tercel.core.intervals import IntervalSet
from tercel.core.model import Call
from tercel.core.states import TaskState
from tercel.stores.contract import Store
from tercel.wire.messages import SEGMENT_BYTES, Fetch, Piece

if TYPE_CHECKING:
    from tercel.manager.conversation import Conversation
    from tercel.manager.service import Manager

log = logging.getLogger("tercel.manager")

PIECES_AT_ONCE = 16
"""Kept by one commit, or read in one go: up to 4 MiB."""
AGAIN_S = 1.0
"""After the store could not be read."""


NAMED_S = 3600.0
"""Whoever uploads a value, or is told that it is there, refers to it in a job within that time."""


class Uploads:
    """One at a time of each key: two that are not alike must not mix."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._named: dict[str, float] = {}
        """When a client last had to do with which; the oldest first."""

    def turn(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    def name(self, keys: Iterable[str], now: float) -> None:
        for key in keys:
            self._named.pop(key, None)
            self._named[key] = now
        while self._named and next(iter(self._named.values())) < now - NAMED_S:
            del self._named[next(iter(self._named))]

    def named_lately(self, now: float) -> Collection[str]:
        """Values that a job may be about to refer to: they are not cleaned away. For any thread."""
        return {key for key, at in self._named.copy().items() if at >= now - NAMED_S}


# -- for clients ------------------------------------------------------------------------------------------


async def keep(manager: "Manager", key: str, content: AsyncIterator[bytes]) -> bool:
    """Whether it was there before. Raises StoreFull or PassingFault if it cannot be kept."""
    if parse_key(key) is not None:
        raise UsageError(
            "what a task returned cannot be uploaded: a key is b and the content's SHA-256", "key"
        )
    turn = manager.uploads.turn(key)
    manager.uploads.name([key], manager.clock())
    async with turn:
        if await asyncio.to_thread(manager.store.value_piece_count, key):
            async for _ in content:
                pass  # read to its end, so that the connection can go on
            # It may be about to go since no job refers to it: after a restart nobody knows who was told that it is there.
            await manager.on_disk(partial(manager.store.put_unnamed, [key], manager.clock()))
            return True
        await _keep(manager, key, content)
        return False


async def _keep(manager: "Manager", key: str, content: AsyncIterator[bytes]) -> None:
    digest = hashlib.sha256()
    gathered = bytearray()
    number = 0
    async for chunk in content:
        digest.update(chunk)
        gathered += chunk
        if len(gathered) > PIECES_AT_ONCE * SEGMENT_BYTES:  # more than: something is left for the last
            number = await _save(manager, key, number, gathered, last=False)
    if f"b{digest.hexdigest()}" != key:
        raise UsageError(f"the content has another digest than its key says: b{digest.hexdigest()}", "key")
    await _save(manager, key, number, gathered, last=True)


async def _save(manager: "Manager", key: str, number: int, gathered: bytearray, *, last: bool) -> int:
    """Keep whole pieces, or with the last one all that is there; returns the next number."""
    end = len(gathered) if last else len(gathered) // SEGMENT_BYTES * SEGMENT_BYTES
    packed = await asyncio.to_thread(_packed, bytes(gathered[:end]))
    del gathered[:end]
    manager.check_saving()
    manager.machine.changes += [
        ValueKept(key, number + at, piece, last and at == len(packed) - 1) for at, piece in enumerate(packed)
    ]
    await manager.settled()
    manager.check_saving()
    return number + len(packed)


def _packed(data: bytes) -> list[bytes]:
    starts = range(0, len(data), SEGMENT_BYTES) or (0,)
    return [zlib.compress(data[at : at + SEGMENT_BYTES], 1) for at in starts]


async def uploaded(manager: "Manager", key: str) -> AsyncGenerator[bytes, None]:
    """A value that a client uploaded. Raises NotFound before anything is yielded."""
    count = await asyncio.to_thread(manager.store.value_piece_count, key)
    if not count:
        raise NotFound(f"there is no value {key}", "key")
    for first in range(0, count, PIECES_AT_ONCE):
        last = min(first + PIECES_AT_ONCE, count) - 1
        for piece in await asyncio.to_thread(manager.store.value_pieces, key, first, last):
            yield zlib.decompress(piece)


def missing(store: Store, keys: set[str]) -> str:
    """The first of these keys of uploaded values that there is no value of; empty if all are there."""
    return next((key for key in sorted(keys) if not store.value_piece_count(key)), "")


# -- for workers ------------------------------------------------------------------------------------------


async def answer(manager: "Manager", conversation: "Conversation", fetches: list[Fetch]) -> list[Piece]:
    while True:
        try:
            may = [await _may_have(manager, conversation, fetch.key) for fetch in fetches]
            return await asyncio.to_thread(_pieces, manager.store, fetches, may)
        except PassingFault as fault:
            log.warning("cannot read values: %s; it is tried again", fault)
            await asyncio.sleep(AGAIN_S)


async def _may_have(manager: "Manager", conversation: "Conversation", key: str) -> bool:
    if conversation.may_fetch(key):
        return True
    # It may hold attempts that were offered over an earlier link.
    held: dict[int, IntervalSet] = {}
    for flight in manager.machine.workers[conversation.worker].flights.values():
        function = flight.job.row.spec.function
        if function is not None:
            held.setdefault(flight.job.id, IntervalSet()).add(flight.task)
            conversation.allow(flight.job.id, [function.value])
    for job, tasks in held.items():
        calls = await asyncio.to_thread(manager.store.calls, job, tasks.ranges())
        conversation.allow(job, named(calls))
    return conversation.may_fetch(key)


def named(calls: list[Call]) -> list[str]:
    return [key for call in calls if call.values for key in call.values]


def _pieces(store: Store, fetches: list[Fetch], may: list[bool]) -> list[Piece]:
    return [
        _piece(store, fetch) if allowed else _gone(fetch, "no attempt of this worker refers to it")
        for fetch, allowed in zip(fetches, may, strict=True)
    ]


def _piece(store: Store, fetch: Fetch) -> Piece:
    task = parse_key(fetch.key)
    if task is not None:
        return _returned_piece(store, fetch, *task)
    count = store.value_piece_count(fetch.key)
    if not 0 <= fetch.number < count:
        return _gone(fetch, "it was never uploaded" if not count else "it has no such piece")
    (data,) = store.value_pieces(fetch.key, fetch.number, fetch.number)
    return Piece(fetch.key, fetch.number, data, fetch.number == count - 1)


def _returned_piece(store: Store, fetch: Fetch, job: int, task: int) -> Piece:
    found = store.outcomes(job, ranges=[(task, task)], limit=1)
    if not found or found[0].state is not TaskState.FINISHED:
        return _gone(fetch, f"task {job}.{task} " + (f"is {found[0].state}" if found else "has not ended"))
    report = found[0].report
    if report.value is None:
        return _gone(fetch, f"task {job}.{task} returned no value: it is no function's")
    if not report.value.segments:
        return Piece(fetch.key, 0, zlib.compress(report.value.inline, 1), True)
    pieces = store.output_segments(report.attempt, "value", first=fetch.number, last=fetch.number)
    if not pieces:
        return _gone(fetch, "it has no such piece")
    return Piece(fetch.key, fetch.number, pieces[0], fetch.number == report.value.segments - 1)


def _gone(fetch: Fetch, why: str) -> Piece:
    return Piece(fetch.key, fetch.number, b"", True, f"value {fetch.key[:80]}: {why}")
