"""What the commands about snapshots have in common."""

import asyncio
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Self

from tercel.cli.lazy import late
from tercel.cli.progress import LINE_EVERY_S
from tercel.cli.screen import Screen
from tercel.cli.words import size
from tercel.core.errors import UsageError

PIECE_BYTES = 2**20
_OWN = re.compile(r"@([0-9]{1,9})")


def own_number(text: str) -> int:
    """3 of @3, a snapshot that the manager took by itself; 0 if it is none."""
    match = _OWN.fullmatch(text)
    return int(match[1]) if match is not None else 0


class Passing:
    """Says every few seconds how much has gone through, of what takes so long."""

    def __init__(self, screen: Screen, words: Callable[[str], str]) -> None:
        self._screen = screen
        self._words = words
        self._bytes = 0
        self._ticker: asyncio.Task[None] | None = None

    def heard(self, size_bytes: int) -> None:
        self._bytes = size_bytes

    async def __aenter__(self) -> Self:
        self._ticker = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LINE_EVERY_S)
            self._screen.note(self._words(size(self._bytes)))


@contextmanager
def whole_file(text: str) -> Iterator[Path]:
    """FILE as a file that can be measured: what comes through a pipe (-, /dev/stdin, <(...)) is copied first.

    Raises UsageError if there is nothing to read.
    """
    with ExitStack() as stack:
        try:
            path = _whole(text, stack)
        except OSError as error:
            raise UsageError(f"cannot read {text}: {error.strerror}", "file") from None
        yield path


def _whole(text: str, stack: ExitStack) -> Path:
    path = Path(text)
    piped = sys.stdin.buffer if text == "-" else stack.enter_context(path.open("rb"))
    if text != "-" and path.is_file():
        _check_begun(text, piped.read(1))
        return path
    # With a name of its own: to open /dev/fd/N is to read from the beginning only on Linux.
    copy = Path(stack.enter_context(TemporaryDirectory(prefix="tercel-"))) / "copy"
    with copy.open("wb") as file:
        _copy(piped, file, "stdin" if text == "-" else text)
    return copy


def _copy(piped: BinaryIO, copy: BinaryIO, name: str) -> None:
    """Not more than its beginning, if that is not a snapshot's: a device may go on for ever."""
    begun = piped.read(PIECE_BYTES)
    _check_begun(name, begun)
    magic: bytes = late("tercel.stores.snapshot.files", "MAGIC")
    if not begun.startswith(magic):
        raise UsageError(f"{name} is not a snapshot of Tercel's; nothing was changed", "file")
    try:
        copy.write(begun)
        shutil.copyfileobj(piped, copy, PIECE_BYTES)
        copy.flush()
    except OSError as error:
        raise UsageError(f"cannot copy {name} to {copy.name} first: {error.strerror}", "file") from None


def _check_begun(name: str, begun: bytes) -> None:
    if not begun:
        raise UsageError(f"{name} is empty: there is no snapshot in it", "file")
