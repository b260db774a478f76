"""Outputs: of ended tasks from the store, of running ones live from their worker.

Read a few pieces at a time: an output of a gigabyte is never in memory as a whole, packed or unpacked. What is kept was
sent by workers, so a piece is unpacked to a segment's size at most, and one that cannot be is left out.
"""

import asyncio
import math
import zlib
from collections.abc import AsyncGenerator

from tercel.core.flights import Flight
from tercel.core.model import JobRow
from tercel.core.reports import Outcome, Output, Report
from tercel.core.states import TERMINAL
from tercel.manager.service import Manager
from tercel.wire.messages import SEGMENT_BYTES, Tail

QUIET_S = 0.5
"""Without `follow`, a running task's output is over when nothing more came for so long ..."""
SO_FAR_S = 5.0
"""... and after so long in any case: some tasks are never quiet."""
PIECES_AT_ONCE = 16
"""Segments read from the store in one go: up to 4 MiB."""
TEXT_BYTES = 16 * 2**20
"""The most of one stream that is given as text inside a document; of longer ones the tail."""


async def read(
    manager: Manager, row: JobRow, task: int, stream: str, follow: bool
) -> AsyncGenerator[bytes, None]:
    """The task's output as far as there is any; with `follow` until the task has ended."""
    attempt = sent = 0
    while True:
        job = manager.machine.jobs.get(row.id)
        flight = job.flights.get(task) if job is not None else None
        if flight is not None and flight.worker.online:
            if flight.attempt != attempt:
                attempt, sent = flight.attempt, 0
            async for offset, piece in _live(manager, flight, stream, follow, sent):
                sent = offset + len(piece)
                yield piece
        if job is None or not follow or (state := job.state_of(task)) is None or state in TERMINAL:
            break
        await _moved(manager, row.id)
    outcome = await outcome_of(manager, row.id, task)
    if flight is None and (outcome is None or not outcome.report.attempt):
        outcome = await _last_try(manager, row.id, task)
    if outcome is None:
        return
    output = outcome.report.out if stream == "out" else outcome.report.err
    if output is None:
        return
    if outcome.report.attempt != attempt:
        sent = 0  # another attempt decided: what was shown is not the beginning of its output
    at = output.total_bytes - output.kept_bytes
    async for piece in kept(manager, outcome.report.attempt, stream, output):
        if at + len(piece) > sent:
            yield piece[max(0, sent - at) :]
        at += len(piece)


async def text(manager: Manager, attempt: int, stream: str, output: Output | None) -> str:
    """What is kept of a stream, undecodable bytes replaced."""
    if output is None:
        return ""
    first = max(0, output.segments - TEXT_BYTES // SEGMENT_BYTES)
    pieces = [piece async for piece in kept(manager, attempt, stream, output, first)]
    return b"".join(pieces).decode("utf-8", "replace")


async def last_words(manager: Manager, report: Report) -> tuple[str, str]:
    """The last piece of what it wrote to either stream."""
    found = []
    for stream, output in (("out", report.out), ("err", report.err)):
        pieces = []
        if output is not None:
            last = max(0, output.segments - 1)
            pieces = [piece async for piece in kept(manager, report.attempt, stream, output, last)]
        found.append(b"".join(pieces).decode("utf-8", "replace"))
    return found[0], found[1]


async def kept(
    manager: Manager, attempt: int, stream: str, output: Output, first: int = 0
) -> AsyncGenerator[bytes, None]:
    """What is kept of a stream, in pieces; of one in segments from the given one on."""
    if not output.segments:
        yield output.inline
        return
    for number in range(first, output.segments, PIECES_AT_ONCE):
        last = min(number + PIECES_AT_ONCE, output.segments) - 1
        for piece in await asyncio.to_thread(_read, manager, attempt, stream, number, last):
            yield piece


def _read(manager: Manager, attempt: int, stream: str, first: int, last: int) -> list[bytes]:
    return [
        unpacked(piece) for piece in manager.store.output_segments(attempt, stream, first=first, last=last)
    ]


def unpacked(piece: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(piece, SEGMENT_BYTES)
    except zlib.error:
        return b""


async def outcome_of(manager: Manager, job: int, task: int) -> Outcome | None:
    await manager.settled()
    found = await asyncio.to_thread(manager.store.outcomes, job, ranges=[(task, task)], limit=1)
    return found[0] if found else None


async def _last_try(manager: Manager, job: int, task: int) -> Outcome | None:
    """Of a task that waits, is blocked, or ended without an attempt of its own: what its last attempt wrote is all there is."""
    tried = await asyncio.to_thread(manager.store.history, job, task)
    return tried[-1] if tried else None


async def _live(
    manager: Manager, flight: Flight, stream: str, follow: bool, sent: int
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Pieces of a running attempt's output behind the first `sent` bytes, with their offsets, until it ends or its
    worker goes.
    """
    conversation = manager.telling.conversation_with(flight.worker.id)
    if conversation is None:
        return
    arrived = asyncio.Event()
    tail = manager.hub.open_tail(flight.attempt, arrived)
    moves = manager.hub.subscribe([flight.job.id], arrived)
    conversation.post(Tail(flight.attempt, True))
    clock = asyncio.get_running_loop().time
    until = clock() + (math.inf if follow else SO_FAR_S)
    try:
        while flight.job.flights.get(flight.task) is flight and flight.worker.online and clock() < until:
            arrived.clear()
            moves.take()
            while (piece := tail.take()) is not None:
                name, offset, data = piece
                # When another reader joins, the worker begins anew: what was seen is not shown again.
                if name == stream and offset + len(data) > sent:
                    yield max(offset, sent), data[max(0, sent - offset) :]
                    sent = offset + len(data)
            try:
                async with asyncio.timeout(None if follow else QUIET_S):
                    await arrived.wait()
            except TimeoutError:
                return
    finally:
        manager.hub.unsubscribe(moves)
        if manager.hub.close_tail(flight.attempt, tail):
            conversation.post(Tail(flight.attempt, False))


async def _moved(manager: Manager, job: int) -> None:
    """Until something happened to the job."""
    subscription = manager.hub.subscribe([job])
    try:
        await subscription.next()
    finally:
        manager.hub.unsubscribe(subscription)
