"""The handlers of files and contents. Bytes go from the connection to the disk and back, few of them in memory at a time."""

import asyncio
import contextlib
import re
from typing import BinaryIO

from aiohttp import web

from tercel.core.errors import NotFound, UsageError
from tercel.core.intervals import IntervalSet
from tercel.core.selectors import parse_tasks
from tercel.manager import files
from tercel.manager.calls import Call, answer
from tercel.manager.handlers import MAX_PAGE
from tercel.manager.problems import problem
from tercel.wire.api import Stored
from tercel.wire.api_files import Checked, NewFile

PAGE = 100
READ_BYTES = 2**20
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_DIGEST = re.compile(r"blake3:[0-9a-f]{64}")


# -- files ------------------------------------------------------------------------------------------------


async def get_files(call: Call) -> web.Response:
    found = await files.listed(
        call.manager,
        prefix=_text(call, "prefix"),
        pattern=_text(call, "pattern"),
        after=_text(call, "after"),
        limit=call.number("limit", 1, MAX_PAGE) or PAGE,
    )
    return answer(found)


async def get_job_files(call: Call) -> web.Response:
    row = await call.job()
    asked = call.text("tasks")
    ranges = list(row.ranges) if asked is None else IntervalSet(parse_tasks(asked)).ranges()
    task = call.number("after_task", -1)
    after = (-1 if task is None else task, _text(call, "after"))
    limit = call.number("limit", 1, MAX_PAGE) or PAGE
    return answer(await files.made_by(call.manager, row.id, ranges, after, limit))


async def get_file(call: Call) -> web.Response:
    return answer(await files.standing(call.manager, _name(call)))


async def post_file(call: Call) -> web.Response:
    found, again = await files.register(call.manager, call.who, await call.body(NewFile))
    return answer(found, 200 if again else 201)


async def post_checked(call: Call) -> web.Response:
    return answer(await files.checked(call.manager, call.who, await call.body(Checked)))


async def delete_file(call: Call) -> web.Response:
    return answer(await files.remove(call.manager, call.who, _name(call), call.text("url")))


def _name(call: Call) -> str:
    name = _text(call, "name")
    if not name:
        raise UsageError("name is missing: which file?", "name")
    return name


def _text(call: Call, parameter: str) -> str:
    """What was no text where it came from is no part of any name."""
    text = call.text(parameter) or ""
    if not text.isprintable():
        raise UsageError(f"{parameter} has characters that no name has", parameter)
    return text


# -- contents ---------------------------------------------------------------------------------------------


async def put_content(call: Call) -> web.Response:
    digest = _digest(call)
    was_there = await call.manager.vault.keep(digest, call.content(), call.request.content_length or 0)
    response = answer(Stored(key=digest, repeated=was_there), 200 if was_there else 201)
    if was_there:
        response.force_close()  # what it still sends is of no use
    return response


async def head_content(call: Call) -> web.Response:
    digest = _digest(call)
    vault = call.manager.vault
    if not await asyncio.to_thread(vault.holds, digest):
        raise NotFound(f"there is no content {digest}", "digest")
    size_bytes = await asyncio.to_thread(vault.size, digest)
    return web.Response(headers={**_headers(digest), "Content-Length": str(size_bytes)})


async def get_content(call: Call) -> web.StreamResponse:
    digest = _digest(call)
    file, size_bytes = await asyncio.to_thread(call.manager.vault.opened, digest)
    with file:
        wanted = _wanted(call, digest, size_bytes)
        if wanted is None:
            there = {"Content-Range": f"bytes */{size_bytes}"}
            return problem(416, "not so many", f"{digest} has {size_bytes:,} bytes", "Range", there)
        first, behind = wanted
        response = web.StreamResponse(headers=_headers(digest))
        if behind - first < size_bytes:
            response.set_status(206)
            response.headers["Content-Range"] = f"bytes {first}-{behind - 1}/{size_bytes}"
        response.content_length = behind - first
        with call.visit(), contextlib.suppress(ConnectionError):  # the reader went away: nobody to tell
            await response.prepare(call.request)
            await _send(response, file, first, behind)
            await response.write_eof()
        return response


async def _send(response: web.StreamResponse, file: BinaryIO, first: int, behind: int) -> None:
    file.seek(first)
    while first < behind:
        piece = await asyncio.to_thread(file.read, min(READ_BYTES, behind - first))
        if not piece:
            raise ConnectionResetError("the content is shorter than it was")
        await response.write(piece)
        first += len(piece)


def _wanted(call: Call, digest: str, size_bytes: int) -> tuple[int, int] | None:
    """From which byte to before which; all of it, if no single part is asked for; None: that part is not there."""
    headers = call.request.headers
    asked = _RANGE.fullmatch(headers.get("Range", "").replace(" ", ""))
    condition = headers.get("If-Range")
    if asked is None or asked[0] == "bytes=-" or (condition is not None and condition != f'"{digest}"'):
        return 0, size_bytes
    if not asked[1]:
        last = int(asked[2])
        return (max(0, size_bytes - last), size_bytes) if last and size_bytes else None
    first = int(asked[1])
    behind = min(int(asked[2]) + 1, size_bytes) if asked[2] else size_bytes
    if asked[2] and int(asked[2]) < first:
        return 0, size_bytes  # not a range at all: as if it were not said
    return (first, behind) if first < size_bytes else None


def _headers(digest: str) -> dict[str, str]:
    return {"Content-Type": "application/octet-stream", "ETag": f'"{digest}"', "Accept-Ranges": "bytes"}


def _digest(call: Call) -> str:
    digest = call.request.match_info["digest"]
    if not _DIGEST.fullmatch(digest):
        raise UsageError(f"{digest[:100]!r} is not blake3: and 64 hex digits", "digest")
    return digest
