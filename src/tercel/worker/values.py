"""Fetching values from the manager, piece by piece, into memory or into files.

    <dir>/values/<n>     a value larger than SMALL_BYTES; the directory is cleared when a worker starts

Of each value a few pieces are under way at a time, so that neither a slow line nor a large value fills anybody's
memory. What has arrived outlives a link: on the next one only the rest is asked for.
"""

import errno
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tercel.core.errors import PeerError
from tercel.wire.messages import SEGMENT_BYTES, Fetch, Piece
from tercel.worker.staging import Place

log = logging.getLogger("tercel.worker")

SMALL_BYTES = 64 * 1024
"""Kept in memory."""
WINDOW = 4
"""Pieces of one value that are asked for and have not come. Of a value's first piece, one: most have no other."""


class _Incoming:
    """A value that is on its way."""

    __slots__ = ("asked", "early", "file", "next", "path", "size_bytes", "start")

    def __init__(self) -> None:
        self.next = 0
        """The piece that is to be written next."""
        self.asked = 0
        """How many were asked for on this link, or had come before."""
        self.early: dict[int, Piece] = {}
        self.start = b""
        """All that has come, while it is small."""
        self.file: BinaryIO | None = None
        self.path = ""
        self.size_bytes = 0


class Values:
    def __init__(
        self,
        dir: Path,
        *,
        awaits: Callable[[str], bool],
        on_here: Callable[[str, Place, int], None],
        on_gone: Callable[[str, str, str], None],
    ) -> None:
        """Told: a value that is here, with its size; or the key of one that cannot be had, why, and the system's name for that."""
        self._dir = dir
        self._awaits = awaits
        self._on_here = on_here
        self._on_gone = on_gone
        self._incoming: dict[str, _Incoming] = {}
        self._files = 0

    def clear(self) -> None:
        """What an earlier process fetched. Raises OSError."""
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._dir.chmod(0o700)
        for path in self._dir.iterdir():
            path.unlink()

    def remove(self, paths: list[str]) -> None:
        for path in paths:
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as error:
                log.warning("Cannot remove %s: %s.", path, error)

    # -- asking -------------------------------------------------------------------------------------------

    def fetch(self, keys: list[str]) -> list[Fetch]:
        """What to say in order to have these."""
        for key in keys:
            self._incoming.setdefault(key, _Incoming())
        return self._ask(keys)

    def fetch_again(self) -> list[Fetch]:
        """What to say on a new link, which knows nothing of what was asked."""
        for key, incoming in list(self._incoming.items()):
            incoming.asked = incoming.next
            incoming.early.clear()
            if not self._awaits(key):
                self._discard(key)
        return self._ask(list(self._incoming))

    def _ask(self, keys: list[str]) -> list[Fetch]:
        fetches: list[Fetch] = []
        for key in keys:
            incoming = self._incoming[key]
            until = incoming.next + WINDOW if incoming.next else 1
            fetches += [Fetch(key, number) for number in range(incoming.asked, until)]
            incoming.asked = max(incoming.asked, until)
        return fetches

    # -- what comes ---------------------------------------------------------------------------------------

    def on_piece(self, piece: Piece) -> list[Fetch]:
        """Returns what to ask next. Pieces that nobody waits for are no fault: there may have been no so many."""
        incoming = self._incoming.get(piece.key)
        if incoming is None or not incoming.next <= piece.number < incoming.asked:
            return []
        if not self._awaits(piece.key):
            self._discard(piece.key)
            return []
        incoming.early[piece.number] = piece
        try:
            while (current := incoming.early.pop(incoming.next, None)) is not None:
                if current.gone:
                    self._give_up(piece.key, current.gone)
                    return []
                self._write(incoming, _unpacked(current))
                incoming.next += 1
                if current.last:
                    self._finish(piece.key, incoming)
                    return []
        except OSError as error:
            why = f"no room for value {piece.key}: {error.strerror}"
            self._give_up(piece.key, why, errno.errorcode.get(error.errno or 0, ""))
            return []
        return self._ask([piece.key])

    def _write(self, incoming: _Incoming, data: bytes) -> None:
        incoming.size_bytes += len(data)
        if incoming.file is None:
            incoming.start += data
            if len(incoming.start) <= SMALL_BYTES:
                return
            incoming.path = str(self._dir / str(self._files))
            self._files += 1
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            incoming.file = os.fdopen(os.open(incoming.path, flags, 0o600), "wb")
            data, incoming.start = incoming.start, b""
        incoming.file.write(data)

    def _finish(self, key: str, incoming: _Incoming) -> None:
        if incoming.file is not None:
            incoming.file.close()
        del self._incoming[key]
        self._on_here(key, incoming.path or incoming.start, incoming.size_bytes)

    def _give_up(self, key: str, why: str, errno_name: str = "") -> None:
        self._discard(key)
        self._on_gone(key, why, errno_name)

    def _discard(self, key: str) -> None:
        incoming = self._incoming.pop(key)
        if incoming.file is not None:
            try:
                incoming.file.close()
            except OSError as error:  # it could not be written to its end, and need not be
                log.debug("Closing %s: %s.", incoming.path, error)
            self.remove([incoming.path])


def _unpacked(piece: Piece) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(piece.data, SEGMENT_BYTES)
    except zlib.error as error:
        raise PeerError(f"the manager sent a piece of value {piece.key} that cannot be unpacked") from error
    if not unpacker.eof:
        raise PeerError(f"the manager sent a piece of value {piece.key} that is too large or not whole")
    return data
