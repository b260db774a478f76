"""A snapshot's file on its way to be restored: from a client, or one of the manager's own.

It has a place of its own until it is restored, though the client may have left, and leaves the store room on the disk.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import BinaryIO

from tercel.core.errors import NotFound
from tercel.manager.access import Identity
from tercel.manager.restoring import restore, to_the_end
from tercel.manager.service import Manager
from tercel.manager.snapshots import check_room, unwritten
from tercel.wire.api_snapshots import Restoration

RECEIVED_BYTES = 2**22


async def take(
    manager: Manager, who: Identity, content: AsyncIterator[bytes], size_bytes: int, *, again: bool
) -> Restoration:
    """Restore what a client sends, of this size as far as it is known before."""
    async with AsyncExitStack() as stack:
        path = await stack.enter_async_context(manager.snapshots.passing())
        await _receive(path, content, size_bytes)
        staying = stack.pop_all()
    return await _to_the_end(manager, who, path, staying, again=again)


async def take_own(manager: Manager, who: Identity, number: int, *, again: bool) -> Restoration:
    """Restore what the manager saved by itself."""
    path = await asyncio.to_thread(manager.snapshots.path, who, number)
    async with AsyncExitStack() as stack:
        copy = await stack.enter_async_context(manager.snapshots.passing())
        await asyncio.to_thread(_keep, path, copy)
        staying = stack.pop_all()
    return await _to_the_end(manager, who, copy, staying, again=again)


def _keep(path: Path, copy: Path) -> None:
    """Under a name of its own: the snapshot may be the next to be pruned."""
    try:
        copy.hardlink_to(path)
    except FileNotFoundError:
        raise NotFound(
            "this snapshot was removed a moment ago: see `tercel snapshot list`", "number"
        ) from None
    except OSError:  # not every file system has links
        try:
            check_room(copy, path.stat().st_size)
            shutil.copyfile(path, copy)
        except OSError as error:
            raise unwritten(error, copy) from None


async def _receive(path: Path, content: AsyncIterator[bytes], size_bytes: int) -> None:
    gathered = bytearray()
    try:
        await asyncio.to_thread(check_room, path, size_bytes)
        with path.open("xb") as file:
            async for chunk in content:
                gathered += chunk
                if len(gathered) >= RECEIVED_BYTES:
                    await asyncio.to_thread(_append, file, bytes(gathered), path)
                    gathered.clear()
            await asyncio.to_thread(_append, file, bytes(gathered), path)
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise
        raise unwritten(error, path) from None


def _append(file: BinaryIO, data: bytes, path: Path) -> None:
    check_room(path, len(data))
    file.write(data)


async def _to_the_end(
    manager: Manager, who: Identity, path: Path, staying: AsyncExitStack, *, again: bool
) -> Restoration:
    """`staying` is closed when the file is of no more use."""

    async def done() -> Restoration:
        async with staying:
            return await restore(manager, who, path, again=again)

    return await to_the_end(done())
