"""The end of what a program says, however much it is."""

import asyncio
import os
from typing import Self

_KEPT_BYTES = 4096
_LINE_MOST = 200


class LastWords:
    """A pipe of which the end is kept; nobody waits for its writers to close it."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._said = b""
        self.size_bytes = 0
        """Of all that was said so far."""

    def __enter__(self) -> Self:
        os.set_blocking(self._reader, False)
        asyncio.get_running_loop().add_reader(self._reader, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)
        os.close(self.writer)

    def _read(self) -> bool:
        try:
            more = os.read(self._reader, 65536)
        except BlockingIOError:
            return False
        self._said = (self._said + more)[-_KEPT_BYTES:]
        self.size_bytes += len(more)
        return bool(more)

    def line(self) -> str:
        """The last that is not empty. For when its writers have ended: it reads all that is there."""
        while self._read():
            pass
        lines = self._said.decode(errors="replace").split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return "".join(c if c.isprintable() else " " for c in words)[:_LINE_MOST]
