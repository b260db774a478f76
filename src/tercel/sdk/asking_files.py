"""What is asked about files of the catalogue. Bytes go through without being held in memory."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from tercel.core.errors import Forbidden, NotFound, PassingFault, TercelError, UsageError
from tercel.core.files import KEPT
from tercel.sdk.answers import decode, target
from tercel.sdk.connection import Connection
from tercel.sdk.http import ANSWER_TIMEOUT_S
from tercel.wire.api import Stored
from tercel.wire.api_files import Checked, FileList, FilesRemoved, FileStanding, NewFile

PIECE_BYTES = 2**20

Heard = Callable[[int], None]
"""Told how many bytes have gone through so far."""


class AsksFiles(Connection):
    async def files(
        self, prefix: str = "", *, pattern: str = "", after: str = "", limit: int | None = None
    ) -> FileList:
        """A page of the catalogue, by name: those that begin so and match, behind `after`."""
        query = {"prefix": prefix or None, "pattern": pattern or None, "after": after or None, "limit": limit}
        return await self._ask("GET", "/files", FileList, query)

    async def job_files(
        self, job: int, tasks: str = "", *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> FileList:
        """What tasks (0-9,12; none named: all) of a job made, behind (task, name)."""
        query = {"tasks": tasks or None, "after_task": after[0], "after": after[1] or None, "limit": limit}
        return await self._ask("GET", f"/jobs/{job}/files", FileList, query)

    async def file(self, name: str) -> FileStanding:
        """One file: where its bytes are, which task made it, which jobs read it."""
        return await self._ask("GET", "/files/one", FileStanding, {"name": name})

    async def register_file(self, file: NewFile) -> FileStanding:
        """Raises Conflict if other bytes have that name."""
        return await self._ask("POST", "/files", FileStanding, body=file)

    async def remove_file(self, name: str, url: str = "") -> FilesRemoved:
        """From the catalogue, or only that it is at `url`."""
        return await self._ask(
            "DELETE", "/files", FilesRemoved, {"name": name, "url": url or None}, repeatable=False
        )

    async def say_checked(self, name: str, url: str, bad: str = "") -> FileStanding:
        """What somebody found who read a replica."""
        return await self._ask(
            "POST", "/files/checked", FileStanding, body=Checked(name=name, url=url, bad=bad)
        )

    # -- bytes --------------------------------------------------------------------------------------------

    async def has_content(self, digest: str) -> bool:
        """Whether the manager keeps it; if so, it does for an hour at least."""
        try:
            await self._fetch("HEAD", f"/v1/contents/{digest}")
        except NotFound:
            return False
        return True

    async def upload_content(
        self, path: str | os.PathLike[str], heard: Heard | None = None
    ) -> tuple[str, int]:
        """The content of a file, once, to the manager. Returns its digest and its size."""
        place = Path(path)
        try:
            with await asyncio.to_thread(place.open, "rb") as file:
                passed = await asyncio.to_thread(_digested, file)
                if not await self.has_content(passed.digest):
                    file.seek(0)
                    sent = _sent(file, passed.size_bytes, heard)
                    asked = f"/v1/contents/{passed.digest}"
                    decode((await self._upload(asked, passed.size_bytes, sent, method="PUT")).body, Stored)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise UsageError(f"cannot read {place}: {error.strerror}", "path") from None
        return passed.digest, passed.size_bytes

    async def content(self, digest: str) -> AsyncGenerator[bytes, None]:
        """What the manager keeps under this digest, as it arrives. Whether it is whole, its digest says."""
        with await self._stream(target(f"/contents/{digest}", {}), ANSWER_TIMEOUT_S) as chunks:
            async for chunk in chunks:
                yield chunk

    async def add_file(
        self,
        name: str,
        source: str | os.PathLike[str],
        *,
        digest: str = "",
        size_bytes: int = -1,
        heard: Heard | None = None,
    ) -> FileStanding:
        """Register a file: a path, whose content the manager keeps from then on, or a URL, under which it is.

        What is at a URL is read once, unless its digest and size are given.
        """
        text = os.fspath(source)
        if not _sources().is_url(text):
            kept, size_bytes = await self.upload_content(text, heard)
            file = NewFile(name=name, digest=kept, size_bytes=size_bytes, urls=[f"{KEPT}{kept}"])
        else:
            if not digest or size_bytes < 0:
                digest, size_bytes = await _looked_at(text, digest, heard)
            file = NewFile(name=name, digest=digest, size_bytes=size_bytes, urls=[text])
        return await self.register_file(file)

    async def get_file(
        self, name: str, path: str | os.PathLike[str], heard: Heard | None = None
    ) -> FileStanding:
        """Bring a file. It is at `path` when it is whole and checked; what was there before is replaced."""
        found = await self.file(name)
        place = Path(path)
        why: list[str] = []
        good = [replica.url for replica in found.replicas if not replica.bad]
        for url in sorted(good, key=lambda url: not url.startswith(KEPT)):  # the manager is there
            try:
                await _fetched(self._bytes(url), found, place, heard)
                return found
            except TercelError as error:
                why.append(f"{url}: {error}" if url not in str(error) else str(error))
        told = "; ".join(why) or "no replica of it is known"
        raise UsageError(f"{name} cannot be had from here: {told}", "name")

    async def verify_file(self, name: str, heard: Heard | None = None) -> list[tuple[str, str, bool]]:
        """Read every replica that can be reached from here: (URL, what is wrong with it, whether that was put down).

        What cannot be reached is not put down: others may reach it.
        """
        found = await self.file(name)
        return [(replica.url, *await self._verified(found, replica.url, heard)) for replica in found.replicas]

    async def _verified(self, file: FileStanding, url: str, heard: Heard | None) -> tuple[str, bool]:
        passed = _digests().Passed(file.digest)
        try:
            await _passed_by(self._bytes(url), passed, heard, file.size_bytes)
            bad = passed.difference(file.digest, file.size_bytes)
        except NotFound as error:
            bad = "it is gone"
            if not url.startswith((KEPT, "http")):
                return str(error), False
        except (PassingFault, UsageError) as error:
            return str(error), False
        try:
            await self.say_checked(file.name, url, bad)
        except Forbidden:  # it is another's: who may say so is told what was found
            return bad, False
        return bad, True

    def _bytes(self, url: str) -> AsyncGenerator[bytes, None]:
        if url.startswith(KEPT):
            return self.content(url.removeprefix(KEPT))
        found: AsyncGenerator[bytes, None] = _sources().pieces(url)
        return found


def _sources() -> Any:
    """Late: most commands read no files."""
    return import_module("tercel.sdk.sources")


def _digests() -> Any:
    return import_module("tercel.sdk.digests")


def _digested(file: BinaryIO) -> Any:
    passed = _digests().Passed()
    while piece := file.read(PIECE_BYTES):
        passed.take(piece)
    return passed


def _sent(file: BinaryIO, size_bytes: int, heard: Heard | None) -> Iterator[bytes]:
    """No more than was announced, should it grow meanwhile; what shrank is noticed by its digest."""
    left = size_bytes
    while left and (piece := file.read(min(PIECE_BYTES, left))):
        yield piece
        left -= len(piece)
        if heard is not None:
            heard(size_bytes - left)
    if left:
        raise UsageError(
            "the file became shorter while it was read: add it again when nobody writes to it", "path"
        )


async def _looked_at(url: str, digest: str, heard: Heard | None) -> tuple[str, int]:
    """Its digest (of the algorithm of the one that is given) and its size."""
    passed = _digests().Passed(digest)
    try:
        await _passed_by(_sources().pieces(url), passed, heard)
    except _sources().Unspoken:
        raise UsageError(
            f"{url} is not read by clients: say what it is, with --digest blake3:… and --size BYTES", "source"
        ) from None
    if digest and passed.digest != digest:
        raise UsageError(f"{url}: its digest is {passed.digest}, not {digest}", "digest")
    return passed.digest, passed.size_bytes


async def _passed_by(
    pieces: AsyncGenerator[bytes, None], passed: Any, heard: Heard | None, most_bytes: int | None = None
) -> None:
    """To its end, or until it is longer than it should be: somebody may send for ever."""
    async with aclosing(pieces):
        async for piece in pieces:
            await asyncio.to_thread(passed.take, piece)
            if heard is not None:
                heard(passed.size_bytes)
            if most_bytes is not None and passed.size_bytes > most_bytes:
                return


async def _fetched(
    pieces: AsyncGenerator[bytes, None], file: FileStanding, place: Path, heard: Heard | None
) -> None:
    """Under a name of its own until it is whole, checked and on the disk."""
    passed = _digests().Passed(file.digest)
    part = place.with_name(f".{place.name[:200]}.{os.urandom(4).hex()}.part")
    try:
        with await asyncio.to_thread(part.open, "xb") as out:
            async with aclosing(pieces):
                async for piece in pieces:
                    await asyncio.to_thread(out.write, piece)
                    passed.take(piece)
                    if heard is not None:
                        heard(passed.size_bytes)
                    if passed.size_bytes > file.size_bytes:
                        break
            if bad := passed.difference(file.digest, file.size_bytes):
                raise PassingFault(f"what came is not {file.name}: {bad}")
            out.flush()
            await asyncio.to_thread(os.fsync, out.fileno())
        part.replace(place)
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise
        raise UsageError(f"cannot write {place}: {error.strerror}", "path") from None
    finally:
        part.unlink(missing_ok=True)
