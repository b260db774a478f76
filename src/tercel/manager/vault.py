"""Contents that the manager keeps itself, by their digests: what clients upload, and outputs with a name and no place.

    contents/passing-…     on its way in
    contents/ab/ab12…      whole, checked, and on the disk: there is nothing else under such a name, whoever is killed

A file of the catalogue refers to one as `tercel:blake3:ab12…`. One that no file refers to goes after GRACE_S, in which whoever
uploaded it, or was told that it is there, has named it.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from tercel.core.errors import NotFound, PassingFault, StoreFull, UsageError
from tercel.core.files import KEPT, is_digest
from tercel.manager.snapshots import check_room
from tercel.stores.sqlite.faults import NO_ROOM

log = logging.getLogger("tercel.manager")

DIRECTORY = "contents"
GRACE_S = 3600.0
PIECE_BYTES = 2**22
"""Hashed and written at a time."""
ASKED_AT_ONCE = 1000
"""Contents, of which the store is asked whether any file refers to them."""
_PASSING = "passing-"
_ALGORITHM = "blake3:"


class Vault:
    """For any thread, but for `keep` and `sweep`."""

    def __init__(self, data: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory = data / DIRECTORY
        self._clock = clock
        self._passing: set[str] = set()
        """Names of what is on its way in."""
        self._lock = threading.Lock()
        """Held while one is found to be there, or to be of no use: not both at once."""

    def path(self, digest: str) -> Path:
        """Raises UsageError for what is no digest of ours: it may lead anywhere."""
        if not is_digest(digest) or not digest.startswith(_ALGORITHM):
            raise UsageError(f"{digest[:100]!r} is not blake3: and 64 hex digits", "digest")
        hex_digits = digest.removeprefix(_ALGORITHM)
        return self._directory / hex_digits[:2] / hex_digits

    def holds(self, digest: str) -> bool:
        """Whether it is here; if so, it stays for GRACE_S at least, so that it can be named."""
        if not is_digest(digest) or not digest.startswith(_ALGORITHM):
            return False
        now = self._clock()
        path = self.path(digest)
        with self._lock:
            try:
                os.utime(path, (now, now))
            except FileNotFoundError:
                return False
            except OSError as error:
                raise self._unreadable(error) from None
        return True

    def size(self, digest: str) -> int:
        file, size_bytes = self.opened(digest)
        file.close()
        return size_bytes

    def opened(self, digest: str) -> tuple[BinaryIO, int]:
        """With its size. From then on it can be read, whoever removes it."""
        try:
            file = self.path(digest).open("rb")
        except FileNotFoundError:
            raise NotFound(
                f"there is no content {digest}: it was never uploaded, or no file had it", "digest"
            ) from None
        except OSError as error:
            raise self._unreadable(error) from None
        return file, os.fstat(file.fileno()).st_size

    def _unreadable(self, error: OSError) -> PassingFault:
        return PassingFault(f"cannot read contents in {self._directory}: {error.strerror}")

    # -- in -----------------------------------------------------------------------------------------------

    async def keep(self, digest: str, content: AsyncIterator[bytes], size_bytes: int) -> bool:
        """Whether it was there before: then nothing is read. `size_bytes`: of what comes, as far as it is known before."""
        if await asyncio.to_thread(self.holds, digest):
            return True
        name = f"{_PASSING}{os.urandom(8).hex()}"
        self._passing.add(name)
        path = self._directory / name
        try:
            await self._receive(path, digest, content, size_bytes)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise self._unwritten(error) from None
        finally:
            await asyncio.to_thread(_remove, path)
            self._passing.discard(name)
        return False

    def _unwritten(self, error: OSError) -> PassingFault:
        if error.errno in NO_ROOM:
            return StoreFull(f"no room on the manager's disk for contents ({self._directory})")
        return PassingFault(f"cannot write contents to {self._directory}: {error.strerror}")

    async def _receive(self, path: Path, digest: str, content: AsyncIterator[bytes], size_bytes: int) -> None:
        file = await asyncio.to_thread(_made, path, size_bytes)
        hasher = blake3()
        gathered = bytearray()
        with file:
            async for chunk in content:
                gathered += chunk
                if len(gathered) >= PIECE_BYTES:
                    await asyncio.to_thread(_append, file, hasher, bytes(gathered), path)
                    gathered.clear()
            await asyncio.to_thread(_append, file, hasher, bytes(gathered), path)
            came = f"{_ALGORITHM}{hasher.hexdigest()}"
            if came != digest:
                raise UsageError(
                    f"what came is not what its digest says: it is {came}. It was changed on its way, or while it was "
                    "read: upload it again",
                    "digest",
                )
            await asyncio.to_thread(self._put, file, path, digest)

    def _put(self, file: BinaryIO, path: Path, digest: str) -> None:
        file.flush()
        os.fsync(file.fileno())
        now = self._clock()
        os.utime(path, (now, now))
        place = self.path(digest)
        if not place.parent.is_dir():
            place.parent.mkdir(mode=0o700, exist_ok=True)
            _sync(self._directory)
        path.replace(place)
        _sync(place.parent)

    # -- out ----------------------------------------------------------------------------------------------

    def sweep(self, referred: Callable[[Collection[str]], Collection[str]]) -> int:
        """Remove what nobody refers to, and what a manager that was killed left on its way. Returns how many went.

        `referred`: which of some URLs are replicas of a file. Raises PassingFault.
        """
        try:
            return self._swept(referred)
        except OSError as error:
            raise self._unreadable(error) from None

    def _swept(self, referred: Callable[[Collection[str]], Collection[str]]) -> int:
        gone = 0
        for left in self._left_passing():
            _remove(left)
        for some in self._old():
            kept = set(referred([f"{KEPT}{_ALGORITHM}{path.name}" for path in some]))
            unused = [path for path in some if f"{KEPT}{_ALGORITHM}{path.name}" not in kept]
            gone += sum(map(self._remove_if_old, unused))
        return gone

    def _left_passing(self) -> list[Path]:
        found = self._directory.glob(f"{_PASSING}*")
        return [path for path in found if path.name not in self._passing]

    def _old(self) -> Iterator[list[Path]]:
        found: list[Path] = []
        for path in sorted(self._directory.glob("[0-9a-f][0-9a-f]/*")):
            if self._is_old(path):
                found.append(path)
            if len(found) == ASKED_AT_ONCE:
                yield found
                found = []
        if found:
            yield found

    def _is_old(self, path: Path) -> bool:
        try:
            return path.stat().st_mtime < self._clock() - GRACE_S
        except OSError:  # it went a moment ago
            return False

    def _remove_if_old(self, path: Path) -> bool:
        """Unless somebody was told meanwhile that it is there."""
        with self._lock:
            return self._is_old(path) and _remove(path)


def _made(path: Path, size_bytes: int) -> BinaryIO:
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _sync(path.parent.parent)
    check_room(path, size_bytes, "what is uploaded")
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _append(file: BinaryIO, hasher: blake3, data: bytes, path: Path) -> None:
    check_room(path, len(data), "what is uploaded")
    hasher.update(data)
    file.write(data)


def _sync(directory: Path) -> None:
    """Names in it are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error.strerror)
        return False
    return True
