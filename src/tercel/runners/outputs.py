"""Outputs too large for a report: files of compressed pieces, one per attempt and stream.

A spawner writes them, the pool reads and removes them. They outlive both, because the report that announces them may
wait in the spool of a worker that is restarted. A file is a sequence of lengths (4 bytes) and zlib pieces.
"""

# ruff: noqa: PTH104, PTH108, PTH123, PTH208
# (A spawner imports this, and pathlib would double its start-up time.)

import os
import zlib
from collections.abc import Iterator

from tercel.runners.capture import Capture

STREAMS = ("out", "err")
_LEVEL = 1
"""The lane waits for it: 10 MiB of text take about 0.1 s."""

OutputRow = tuple[int, int, bytes, int]
"""The fields of core.model.Output, which a spawner does not import."""


def path_of(directory: bytes, attempt: int, stream: str) -> bytes:
    return b"%s/%d.%s" % (directory, attempt, stream.encode())


def settle(capture: Capture, path: bytes, inline_bytes: int, segment_bytes: int) -> OutputRow | None:
    """Turn what was captured into the report's part, with a file at `path` if it is too large for one."""
    if capture.total == 0:
        return None
    kept = capture.total - capture.begin
    pieces = 0
    if kept > inline_bytes:
        try:
            pieces = _write_pieces(capture, path, segment_bytes)
        except OSError as error:
            capture.fault = error.strerror or str(error)
            kept = inline_bytes
    inline = b"" if pieces else capture.read(capture.total - kept, kept)
    capture.close()
    return capture.total, kept, inline, pieces


def _write_pieces(capture: Capture, path: bytes, segment_bytes: int) -> int:
    """Returns how many. The file appears under its name only when it is whole."""
    part = path + b".part"
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            pieces = 0
            offset = capture.begin
            while offset < capture.total:
                data = capture.read(offset, segment_bytes)
                piece = zlib.compress(data, _LEVEL)
                file.write(len(piece).to_bytes(4, "little"))
                file.write(piece)
                offset += len(data)
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
    return {int(attempt) for attempt, _, stream in names if stream in STREAMS and attempt.isdecimal()}


def remove(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
