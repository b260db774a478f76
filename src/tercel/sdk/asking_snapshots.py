"""What is asked about snapshots: files go through without being held in memory."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

from tercel.core.errors import UsageError
from tercel.sdk.answers import decode, target
from tercel.sdk.connection import Connection
from tercel.sdk.http import ANSWER_TIMEOUT_S
from tercel.wire.api_snapshots import Restoration, SnapshotList

PIECE_BYTES = 2**18

Heard = Callable[[int], None]
"""Told how many bytes have gone through so far."""


class AsksSnapshots(Connection):
    async def save_snapshot(
        self,
        path: str | os.PathLike[str],
        select: Iterable[str] = (),
        *,
        number: int = 0,
        heard: Heard | None = None,
    ) -> int:
        """Save jobs (none named: all) with what they need into a file, or the manager's own snapshot of this number.

        The file is there when it is whole. Returns its size.
        """
        chosen = urlencode([("select", text) for text in select])
        asked = f"/v1/snapshots/{number}" if number else f"/v1/snapshot{'?' if chosen else ''}{chosen}"
        files = _files()
        size = 0
        place = Path(path)
        try:
            with (
                files.writing(place) as file,
                await self._stream(asked, ANSWER_TIMEOUT_S, None) as chunks,
            ):
                size = await _kept(file, chunks, heard)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise UsageError(f"cannot write {place}: {error.strerror}", "path") from None
        return size

    async def restore_snapshot(
        self, path: str | os.PathLike[str], *, again: bool = False, heard: Heard | None = None
    ) -> Restoration:
        """Restore a file: its jobs go on at this manager. `again`: also if they were restored here before."""
        place = Path(path)
        try:
            with await asyncio.to_thread(place.open, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                asked = target("/restore", {"again": again or None})
                answer = await self._upload(asked, size, _pieces(file, size, heard))
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise UsageError(f"cannot read {place}: {error.strerror}", "path") from None
        return decode(answer.body, Restoration)

    async def restore_own_snapshot(self, number: int, *, again: bool = False) -> Restoration:
        """Restore one that the manager took by itself."""
        asked = target(f"/snapshots/{number}/restore", {"again": again or None})
        answer = await self._upload(asked, 0, ())
        return decode(answer.body, Restoration)

    async def snapshots(self) -> SnapshotList:
        """Those that the manager took by itself, newest first."""
        return await self._ask("GET", "/snapshots", SnapshotList)


def _files() -> Any:
    """Late: most commands have no use for compression and threads."""
    return import_module("tercel.stores.snapshot.files")


async def _kept(file: BinaryIO, chunks: AsyncIterator[bytes], heard: Heard | None) -> int:
    size = 0
    async for chunk in chunks:
        await asyncio.to_thread(file.write, chunk)
        size += len(chunk)
        if heard is not None:
            heard(size)
    return size


def _pieces(file: BinaryIO, size: int, heard: Heard | None) -> Iterator[bytes]:
    """No more than was announced, should it grow meanwhile."""
    left = size
    while left and (piece := file.read(min(PIECE_BYTES, left))):
        yield piece
        left -= len(piece)
        if heard is not None:
            heard(size - left)
