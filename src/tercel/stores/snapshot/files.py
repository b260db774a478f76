"""The file: magic, version, then blocks, each compressed and with its own checksum. The last block has the trailer.

    TERCEL+snap | version u32 | block | block | … | block with the Trailer | end of file
    block = stored length u32 | raw length u32 | CRC-32 of the stored bytes u32 | zlib of msgpack [part, …]

Lengths are bounded, and checked before anything is read or unpacked: a block may be damaged, or made to do harm. A file is
written under another name and gets its own when it is whole and on the disk.
"""

import hashlib
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from tercel.core.errors import TercelError, UsageError
from tercel.stores.snapshot.records import FORMAT, Header, Part, Trailer, decode, encode

MAGIC = b"TERCEL+snap\n"
_VERSION = struct.Struct(">I")
_BLOCK = struct.Struct(">III")
BLOCK_BYTES = 2**20
"""Parts are gathered up to about so much, raw."""
MOST_BYTES = 2**26
"""Of one block, raw or stored."""
LEVEL = 1
"""Of compression. On rows of outcomes 6 took three times as long, for a file that was no smaller."""
AHEAD = 4
"""Blocks that are being compressed while others are made."""
_ARRAY32 = struct.Struct(">BI")


class Damaged(UsageError):
    """The file is no snapshot, or not whole, or was changed. Nothing of it was used."""


def damaged(name: str, problem: str) -> Damaged:
    return Damaged(f"{name} {problem}; nothing was changed", "snapshot")


# -- writing ----------------------------------------------------------------------------------------------


class Writer:
    """Takes parts one after the other. What compresses runs beside it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._gathered: list[bytes] = []
        self._size = 0
        self._parts = 0
        self._ahead: deque[Future[bytes]] = deque()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tercel-snapshot")
        self._put(MAGIC + _VERSION.pack(FORMAT))

    def add(self, part: Part) -> None:
        packed = encode(part)
        if len(packed) > MOST_BYTES - 16:
            raise TercelError(f"a record of {len(packed):,} bytes is too large for a snapshot")
        if self._size + len(packed) > BLOCK_BYTES:
            self._flush()
        self._gathered.append(packed)
        self._size += len(packed)
        self._parts += 1

    def finish(self) -> None:
        self._flush()
        while self._ahead:
            self._put(self._ahead.popleft().result())
        self.add(Trailer(self._parts, self._digest.digest()))
        self._put(_packed(self._gathered))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _flush(self) -> None:
        if not self._gathered:
            return
        self._ahead.append(self._pool.submit(_packed, self._gathered))
        self._gathered, self._size = [], 0
        while len(self._ahead) > AHEAD:
            self._put(self._ahead.popleft().result())

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


def _packed(parts: list[bytes]) -> bytes:
    raw = b"".join([_ARRAY32.pack(0xDD, len(parts)), *parts])
    stored = zlib.compress(raw, LEVEL)
    return _BLOCK.pack(len(stored), len(raw), zlib.crc32(stored)) + stored


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that gets this name when all of it is on the disk; else nothing is left of it."""
    passing = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    descriptor = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        passing.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            passing.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


# -- reading ----------------------------------------------------------------------------------------------


def parts(path: Path, name: str = "") -> Iterator[Part]:
    """All parts but the trailer. Raises Damaged as soon as something is wrong; only at the end is all known to be right.

    `name`: what it is called where people read of it, if not by its file's.
    """
    try:
        with path.open("rb") as file:
            yield from _parts(name or path.name, file)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "snapshot") from None


def _parts(name: str, file: BinaryIO) -> Iterator[Part]:
    start = file.read(len(MAGIC) + _VERSION.size)
    if not start.startswith(MAGIC):
        raise damaged(name, "is not a snapshot of Tercel's")
    if len(start) < len(MAGIC) + _VERSION.size:
        raise damaged(name, "is cut off")
    (version,) = _VERSION.unpack(start[len(MAGIC) :])
    if version > FORMAT:
        raise damaged(
            name, f"was written by a newer Tercel (format {version}; this one reads up to {FORMAT}): use that"
        )
    digest = hashlib.sha256(start)
    count = 0
    while True:
        before = digest.digest()
        for part in _block(name, file, digest):
            if isinstance(part, Trailer):
                if part.digest != before or part.parts != count:
                    raise damaged(name, "was changed: its checksum is not that of its content")
                if file.read(1):
                    raise damaged(name, "has something behind its end")
                return
            if (count == 0) is not isinstance(part, Header):
                raise damaged(name, "is damaged: it does not begin as it should")
            count += 1
            yield part


def _block(name: str, file: BinaryIO, digest: "hashlib._Hash") -> list[Part]:
    head = file.read(_BLOCK.size)
    if len(head) < _BLOCK.size:
        raise damaged(name, "is cut off")
    stored_bytes, raw_bytes, checksum = _BLOCK.unpack(head)
    if stored_bytes > MOST_BYTES or raw_bytes > MOST_BYTES:
        raise damaged(name, "is damaged: a block of it is absurdly large")
    stored = file.read(stored_bytes)
    if len(stored) < stored_bytes:
        raise damaged(name, "is cut off")
    if zlib.crc32(stored) != checksum:
        raise damaged(name, "is damaged: the checksum of a block is wrong")
    digest.update(head)
    digest.update(stored)
    found = _unpacked(stored, raw_bytes)
    if isinstance(found, str):
        del stored  # whoever keeps the error keeps this frame
        raise damaged(name, f"is damaged: a block of it {found}")
    return found


def _unpacked(stored: bytes, raw_bytes: int) -> list[Part] | str:
    """Or what is wrong with it: an error from here would hold what was unpacked for as long as anybody has it."""
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(stored, raw_bytes + 1)
        if len(raw) != raw_bytes or not unpacker.eof or unpacker.unused_data:
            return "has another length than it says"
        return decode(raw)
    except (zlib.error, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return f"cannot be understood ({error})"


def header(path: Path) -> Header:
    """Its first part. The rest is not looked at."""
    reading = parts(path)
    try:
        for part in reading:
            if isinstance(part, Header):
                return part
            break
    finally:
        reading.close()  # type: ignore[attr-defined]  # it is a generator
    raise damaged(path.name, "is damaged: it has no header")
