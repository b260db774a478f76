"""Outputs too large for a report: files of compressed pieces, one per attempt and stream.

A spawner writes them, the pool reads and removes them. They outlive both, because the report that announces them may
wait in the spool of a worker that is restarted. A file is a sequence of lengths (4 bytes) and zlib pieces.
"""

# ruff: noqa: PTH104, PTH108, PTH123, PTH208
# (A spawner imports this, and pathlib would double its start-up time.)

import os
import zlib
from collections.abc import Iterable, Iterator

from tercel.runners.capture import Capture, Written

STREAMS = ("out", "err")
VALUE = "value"
"""What a function returned: kept like an output, but never cut."""
_KEPT = (*STREAMS, VALUE)
_LEVEL = 1
"""The lane waits for it: 10 MiB of text take about 0.1 s."""
_WORTH = 0.9
"""A value's first piece that does not shrink below this is numbers or compressed already: so is the rest, and
level 1 would take twenty times as long as copying it (measured: 35 MB/s and 800 MB/s)."""

OutputRow = tuple[int, int, bytes, int]
"""The fields of core.reports.Output, which a spawner does not import."""


def path_of(directory: bytes, attempt: int, stream: str) -> bytes:
    return b"%s/%d.%s" % (directory, attempt, stream.encode())


def paths_of(directory: bytes, attempt: int) -> list[bytes]:
    """Of all that may be kept of it."""
    return [path_of(directory, attempt, stream) for stream in _KEPT]


def settle(
    capture: Capture | Written, path: bytes, inline_bytes: int, segment_bytes: int
) -> OutputRow | None:
    """Turn what was captured into the report's part, with a file at `path` if it is too large for one."""
    if capture.total == 0:
        return None
    kept = capture.total - capture.begin
    pieces = 0
    if kept > inline_bytes:
        try:
            pieces = _write_pieces(_slices(capture, segment_bytes), path)
        except OSError as error:
            capture.fault = error.strerror or str(error)
            kept = inline_bytes
    inline = b"" if pieces else capture.read(capture.total - kept, kept)
    capture.close()
    return capture.total, kept, inline, pieces


def settle_value(data: bytes, path: bytes, inline_bytes: int, segment_bytes: int) -> OutputRow:
    """As `settle`, but whole or not at all: raises OSError if there is no room."""
    size = len(data)
    if size <= inline_bytes:
        return size, size, data, 0
    view = memoryview(data)
    level = (
        _LEVEL if len(zlib.compress(view[:segment_bytes], _LEVEL)) < _WORTH * min(size, segment_bytes) else 0
    )
    slices = (view[at : at + segment_bytes] for at in range(0, size, segment_bytes))
    return size, size, b"", _write_pieces(slices, path, level)


def _slices(capture: Capture | Written, size: int) -> Iterator[bytes]:
    offset = capture.begin
    while offset < capture.total:
        data = capture.read(offset, size)
        yield data
        offset += len(data)


def _write_pieces(slices: Iterable[bytes | memoryview], path: bytes, level: int = _LEVEL) -> int:
    """Returns how many. The file appears under its name only when it is whole."""
    part = path + b".part"
    pieces = 0
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            for data in slices:
                piece = zlib.compress(data, level)
                file.write(len(piece).to_bytes(4, "little"))
                file.write(piece)
                pieces += 1
        os.rename(part, path)
    except OSError:
        remove(part)
        raise
    return pieces


def read_pieces(path: bytes) -> Iterator[bytes]:
    """The pieces of a file as they are asked for, or as many as there are of one that was damaged."""
    try:
        with open(path, "rb") as file:
            while len(head := file.read(4)) == 4:
                size = int.from_bytes(head, "little")
                piece = file.read(size)
                if len(piece) < size:
                    return
                yield piece
    except FileNotFoundError:
        return


def kept_attempts(directory: bytes) -> set[int]:
    """Whose outputs wait there."""
    names = (os.fsdecode(name).partition(".") for name in os.listdir(directory))
    return {int(attempt) for attempt, _, stream in names if stream in _KEPT and attempt.isdecimal()}


def remove(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
