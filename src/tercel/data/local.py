"""`file:///data/x` and plain absolute paths: what the worker's node has mounted."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tercel.core.files import Trouble
from tercel.data.contract import Reading, Seen, TransferFailed
from tercel.data.urls import note_of, parse, shown
from tercel.data.watches import Watch

CHUNK_BYTES = 1 << 20


class LocalScheme:
    puts_whole = False
    unquotes = True

    def stat(self, url: str, watch: Watch) -> Seen:
        watch.check()
        return _seen(_path(url).stat(), url)

    @contextmanager
    def read(
        self, url: str, watch: Watch, begin: int = 0, end: int = -1, same_as: str = ""
    ) -> Iterator[Reading]:
        # Not blocking: a FIFO would be waited for by whoever opens it.
        fd = os.open(_path(url), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            seen = _seen(os.fstat(fd), url)
            if same_as and seen.validator != same_as:
                begin, end = 0, -1
            yield Reading(seen, begin, chunks_of(fd, begin, end, watch))
            if _seen(os.fstat(fd), url) != seen:
                raise TransferFailed(
                    Trouble.CORRUPT, shown(url), note_of(f"{shown(url)} changed while it was read")
                )
        finally:
            os.close(fd)

    def write(self, path: str, url: str, watch: Watch) -> None:
        to = _path(url)
        to.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            out = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                for chunk in chunks_of(fd, 0, -1, watch):
                    write_all(out, chunk)
                    watch.step(len(chunk))
                os.fsync(out)
            finally:
                os.close(out)
        finally:
            os.close(fd)

    def rename(self, url: str, to: str, watch: Watch) -> None:
        watch.check()
        _path(url).replace(_path(to))
        sync_directory(_path(to).parent)

    def remove(self, url: str, watch: Watch) -> None:
        watch.check()
        _path(url).unlink(missing_ok=True)


def chunks_of(fd: int, begin: int, end: int, watch: Watch) -> Iterator[memoryview]:
    """Of an open file. Each is good until the next is taken."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    while end < 0 or begin < end:
        watch.check()
        wanted = CHUNK_BYTES if end < 0 else min(CHUNK_BYTES, end - begin)
        count = os.preadv(fd, [buffer[:wanted]], begin)
        if not count:
            return
        begin += count
        yield buffer[:count]


def write_all(fd: int, chunk: bytes | memoryview, at: int | None = None) -> None:
    """A system writes less than it was given when a disk is nearly full, and says why the next time."""
    view = memoryview(chunk)
    while view:
        count = os.write(fd, view) if at is None else os.pwrite(fd, view, at)
        view = view[count:]
        at = None if at is None else at + count


def sync_directory(directory: Path) -> None:
    """A new name is there after a power cut as well."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _path(url: str) -> Path:
    parsed = parse(url)
    if parsed.host not in ("", "localhost"):
        raise TransferFailed(
            Trouble.REFUSED,
            shown(url),
            note_of(f"{shown(url)} names a host; a file of the worker's is file:///data/x"),
        )
    return Path(parsed.path)


def _seen(status: os.stat_result, url: str) -> Seen:
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "no file"
        raise TransferFailed(Trouble.REFUSED, shown(url), note_of(f"{shown(url)} is {what}"))
    return Seen(status.st_size, f"{status.st_mtime_ns}-{status.st_ino}-{status.st_size}", ranges=True)
