"""The handlers of snapshots: a file as it is made goes out, a file that comes in is restored."""

import asyncio
import contextlib
import os
from pathlib import Path

from aiohttp import web

from tercel.core.errors import UsageError
from tercel.manager import receiving, requests
from tercel.manager.calls import Call, answer, whole_number
from tercel.stores.snapshot.saving import Choice
from tercel.wire.api import Selection

READ_BYTES = 2**20


async def get_snapshot(call: Call) -> web.StreamResponse:
    """Made first, sent then: a slow reader must not hold one state of the store for long."""
    select = call.texts("select")
    jobs: frozenset[int] | None = None
    if select:
        chosen = await requests.resolve(call.manager, call.who, Selection(select=select))
        if any(tasks is not None for _, tasks in chosen):
            raise UsageError("a snapshot has whole jobs: write 37, not 37.4", "select")
        jobs = frozenset(id for id, _ in chosen)
    choice = Choice(jobs=jobs, owner=call.who.sees_only, why=f"saved by {call.who.user}")
    async with call.manager.snapshots.saved(call.who.user, choice) as path:
        return await _sent(call, path)


async def get_snapshots(call: Call) -> web.Response:
    return answer(await asyncio.to_thread(call.manager.snapshots.listed, call.who))


async def get_own_snapshot(call: Call) -> web.StreamResponse:
    path = await asyncio.to_thread(call.manager.snapshots.path, call.who, _number(call))
    return await _sent(call, path)


async def post_restore(call: Call) -> web.Response:
    again = call.flag("again")
    size_bytes = call.request.content_length or 0
    return answer(await receiving.take(call.manager, call.who, call.content(), size_bytes, again=again))


async def post_own_restore(call: Call) -> web.Response:
    again = call.flag("again")
    return answer(await receiving.take_own(call.manager, call.who, _number(call), again=again))


def _number(call: Call) -> int:
    return whole_number(call.request.match_info["number"], "number", 0)


async def _sent(call: Call, path: Path) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    with path.open("rb") as file:
        response.content_length = os.fstat(file.fileno()).st_size
        with call.visit(), contextlib.suppress(ConnectionError):  # the reader went away: nobody to tell
            await response.prepare(call.request)
            while piece := await asyncio.to_thread(file.read, READ_BYTES):
                await response.write(piece)
            await response.write_eof()
    return response
