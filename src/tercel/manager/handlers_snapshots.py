"""The handlers of snapshots: a file as it is made goes out, a file that comes in is restored."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from tercel.core.errors import NotFound, PassingFault, UsageError
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
    file, response.content_length = await asyncio.to_thread(_opened, path)
    with file, call.visit(), contextlib.suppress(ConnectionError):  # the reader went away: nobody to tell
        await response.prepare(call.request)
        while piece := await asyncio.to_thread(file.read, READ_BYTES):
            await response.write(piece)
        await response.write_eof()
    return response


def _opened(path: Path) -> tuple[BinaryIO, int]:
    """With its size. From then on it can be sent, whoever removes it."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFound(
            "this snapshot was removed a moment ago: see `tercel snapshot list`", "number"
        ) from None
    except OSError as error:
        raise PassingFault(f"cannot read a snapshot in {path.parent}: {error.strerror}") from None
    return file, os.fstat(file.fileno()).st_size
