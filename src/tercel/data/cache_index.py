"""What is in a cache, as all processes that share it know it: a file of lines, and what was read of it.

    ["+", digest, size, when]    it is about to come
    ["-", digest]                it went
    ["=", url, validator, digest]    what a URL had when it was last asked; its SHA-256, for a URL may have a secret in it

Lines are added under the cache's lock only, and read without. A file's `+` is written before the file is moved in, its `-`
after it was taken away: whoever is killed in between leaves a line too many, never a file that nobody counts. What
the lines say is checked against the files when a cache is opened, and could be made from them alone.

The file is written anew when most lines are of no more use. Who reads it sees by its inode that it is another.
"""

# ruff: noqa: PTH105, PTH116
import errno
import heapq
import logging
import os
from collections.abc import Iterable, Iterator

import msgspec

from tercel.core.files import is_digest

log = logging.getLogger("tercel.data")

COMPACT_LINES = 4096
"""Fewer are not worth rewriting."""


class Came(msgspec.Struct, frozen=True, array_like=True, tag="+"):
    digest: str
    size_bytes: int
    used_ns: int
    """When it came; of a file that was there when the index was written anew: used at that time, or later."""


class Went(msgspec.Struct, frozen=True, array_like=True, tag="-"):
    digest: str


class Seen(msgspec.Struct, frozen=True, array_like=True, tag="="):
    url: str
    validator: str
    digest: str


Line = Came | Went | Seen
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


class Index:
    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._at = 0
        """Read so far: always to the end of a line."""
        self._lines = 0
        self.sizes: dict[str, int] = {}
        self.total_bytes = 0
        self._used: dict[str, int] = {}
        self._by_use: list[tuple[int, str]] = []
        """A heap. None was used before the time that stands here; many were used later."""
        self._urls: dict[str, tuple[str, str]] = {}
        self._urls_of: dict[str, set[str]] = {}
        self._news: dict[str, int | None] = {}

    def open(self) -> None:
        vars(self).update(vars(Index(self._path)))  # what was read before it was closed may be of another
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.refresh()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # -- reading ------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what was added since. Two system calls if nothing was. Raises OSError."""
        now = os.stat(self._path, follow_symlinks=False)
        if not os.path.samestat(now, os.fstat(self._fd)):
            self._reopen()
            return
        if now.st_size == self._at:
            return
        data = os.pread(self._fd, now.st_size - self._at, self._at)
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in _lines_of(whole):
            self._apply(line)

    def _reopen(self) -> None:
        """It was written anew by another: what is not in it any more went."""
        fresh = Index(self._path)
        fresh.open()
        self.close()
        news = self._news
        news.update((digest, None) for digest in self.sizes.keys() - fresh.sizes.keys())
        news.update((digest, fresh.sizes[digest]) for digest in fresh.sizes.keys() - self.sizes.keys())
        vars(self).update(vars(fresh))
        self._news = news

    def _apply(self, line: Line) -> None:
        self._lines += 1
        match line:
            case Came(digest, size_bytes, used_ns):
                if self.sizes.get(digest) != size_bytes:
                    self._news[digest] = size_bytes
                self.total_bytes += size_bytes - self.sizes.get(digest, 0)
                self.sizes[digest] = size_bytes
                self.used(digest, used_ns)
            case Went(digest):
                if digest in self.sizes:
                    self.total_bytes -= self.sizes.pop(digest)
                    self._used.pop(digest, None)
                    self._news[digest] = None
                for url in self._urls_of.pop(digest, ()):
                    del self._urls[url]
            case Seen(url, validator, digest):
                self._forget(url)
                if digest in self.sizes:
                    self._urls[url] = validator, digest
                    self._urls_of.setdefault(digest, set()).add(url)

    def _forget(self, url: str) -> None:
        if (known := self._urls.pop(url, None)) is not None:
            of = self._urls_of[known[1]]
            of.discard(url)
            if not of:
                del self._urls_of[known[1]]

    def url(self, url: str) -> tuple[str, str] | None:
        return self._urls.get(url)

    def take_news(self) -> tuple[list[tuple[str, int]], list[str]]:
        news, self._news = self._news, {}
        came = [(digest, size_bytes) for digest, size_bytes in news.items() if size_bytes is not None]
        return came, [digest for digest, size_bytes in news.items() if size_bytes is None]

    # -- by use -------------------------------------------------------------------------------------------

    def used(self, digest: str, at_ns: int) -> None:
        if self._used.get(digest) != at_ns:  # else it would come up twice, and count twice
            self._used[digest] = at_ns
            heapq.heappush(self._by_use, (at_ns, digest))

    def longest_unused(self) -> Iterator[tuple[str, int]]:
        """Each with the time of its last use as far as is known. Whoever takes one says when it was used, or that it went."""
        while self._by_use:
            at_ns, digest = heapq.heappop(self._by_use)
            if self._used.get(digest) == at_ns:
                del self._used[digest]
                yield digest, at_ns

    # -- writing, under the cache's lock ------------------------------------------------------------------

    def write(self, lines: Iterable[Line]) -> None:
        """Raises OSError, and then nothing was written."""
        self.refresh()
        lines = list(lines)
        data = b"".join(_encoder.encode(line) + b"\n" for line in lines)
        try:
            os.ftruncate(self._fd, self._at)  # half a line, of who was killed in writing it
            if os.pwrite(self._fd, data, self._at) < len(data):
                raise OSError(errno.ENOSPC, "no room for a line of the cache's index", self._path)
        except OSError:
            os.ftruncate(self._fd, self._at)
            raise
        self._at += len(data)
        for line in lines:
            self._apply(line)
        if self._lines > COMPACT_LINES + 4 * (len(self.sizes) + len(self._urls)):
            self._compact()

    def _compact(self) -> None:
        """Through a second file, so that nobody reads half of it."""
        lines: list[Line] = [
            Came(digest, size, self._used.get(digest, 0)) for digest, size in self.sizes.items()
        ]
        lines += [Seen(url, *known) for url, known in self._urls.items()]
        data = b"".join(_encoder.encode(line) + b"\n" for line in lines)
        fresh = f"{self._path}.new"
        try:
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if os.pwrite(fd, data, 0) < len(data):
                    raise OSError(errno.ENOSPC, "no room to write the cache's index anew", fresh)
                os.replace(fresh, self._path)
            except OSError:
                os.close(fd)
                raise
        except OSError as error:
            log.warning("Cannot shorten %s: %s. It stays in use as it is.", self._path, error)
            return
        os.close(self._fd)
        self._fd, self._at, self._lines = fd, len(data), len(lines)


def _lines_of(data: bytes) -> Iterator[Line]:
    """What is no line (after a power failure, say) is passed over: the files themselves tell."""
    for text in data.splitlines():
        try:
            line = _decoder.decode(text)
        except msgspec.MsgspecError:
            continue
        if is_digest(line.digest):
            yield line
