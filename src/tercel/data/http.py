"""`http://…`, `https://…`: GET with ranges, PUT, DELETE. And `tercel:…`, which is the same with the manager's token.

A server takes a PUT whole or not at all: half a body is no request of HTTP.
"""

import http.client
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tercel.core.files import KEPT, Trouble, is_digest
from tercel.data.contract import Reading, Seen, TransferFailed
from tercel.data.http_client import Credentials, answered, own_credentials
from tercel.data.urls import note_of, shown
from tercel.data.watches import Watch

_CHUNK_BYTES = 1 << 18
"""About what the processor's cache holds: it is hashed and written while it is there."""
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class HttpScheme:
    puts_whole = True
    unquotes = True

    def __init__(self, credentials: Credentials = own_credentials) -> None:
        self._credentials = credentials

    def stat(self, url: str, watch: Watch) -> Seen:
        try:
            with answered("HEAD", url, watch, {}, self._credentials) as response:
                return _seen(response)
        except TransferFailed as failed:
            if failed.trouble not in (Trouble.REFUSED, Trouble.DENIED):
                raise
        # Some servers know no HEAD, and a URL that is signed for GET is for nothing else.
        with self.read(url, watch) as reading:
            return reading.seen

    @contextmanager
    def read(
        self, url: str, watch: Watch, begin: int = 0, end: int = -1, same_as: str = ""
    ) -> Iterator[Reading]:
        headers = {}
        if begin or end >= 0:
            headers["Range"] = f"bytes={begin}-{end - 1 if end >= 0 else ''}"
            if same_as:
                headers["If-Range"] = same_as
        with answered("GET", url, watch, headers, self._credentials) as response:
            if response.status == 416:
                raise _corrupt(url, f"has no bytes from {begin:,} on")
            seen = _seen(response)
            got = _range_of(response) if response.status == 206 else (0, -1)
            if response.status == 206 and (got[0] != begin or (same_as and seen.validator != same_as)):
                raise _corrupt(url, "answers with another part than was asked for")
            yield Reading(seen, got[0], _chunks(response, watch, url))

    def write(self, path: str, url: str, watch: Watch) -> None:
        with Path(path).open("rb") as body:
            size_bytes = Path(path).stat().st_size
            with answered("PUT", url, watch, {}, self._credentials, body, size_bytes):
                pass

    def rename(self, url: str, to: str, watch: Watch) -> None:  # noqa: ARG002
        raise TransferFailed(Trouble.REFUSED, shown(url), "HTTP has no word for renaming")

    def remove(self, url: str, watch: Watch) -> None:
        try:
            with answered("DELETE", url, watch, {}, self._credentials):
                pass
        except TransferFailed as failed:
            if failed.trouble is not Trouble.MISSING:
                raise


class KeptScheme:
    """What the manager keeps, by its digest: `{manager}/v1/contents/{digest}`."""

    puts_whole = True
    unquotes = False

    def __init__(self, base: str, token: str) -> None:
        self._base = base.rstrip("/")
        self._token = token
        self._pages = HttpScheme(self._credentials)

    def _credentials(self, scheme: str, netloc: str) -> str:
        """For nobody else, wherever the manager redirects to: also not for another port of its host."""
        base = urlsplit(self._base)
        is_own = (base.scheme, base.netloc) == (scheme, netloc)
        return f"Bearer {self._token}" if is_own and self._token else ""

    def _page(self, url: str) -> str:
        digest = url.removeprefix(KEPT)
        if not self._base or not is_digest(digest):
            why = (
                "is no digest; write tercel:blake3:…"
                if self._base
                else "is kept at a manager, and none is known here"
            )
            raise TransferFailed(Trouble.REFUSED, shown(url), note_of(f"{shown(url)} {why}"))
        return f"{self._base}/v1/contents/{digest}"

    @contextmanager
    def _asked(self, url: str) -> Iterator[str]:
        """Its page. What went wrong there is told of what is kept: only the manager can do something about that."""
        page = self._page(url)
        try:
            yield page
        except TransferFailed as failed:
            failed.url, failed.note = url, failed.note.replace(shown(page), url)
            raise

    def stat(self, url: str, watch: Watch) -> Seen:
        with self._asked(url) as page:
            return self._pages.stat(page, watch)

    @contextmanager
    def read(
        self, url: str, watch: Watch, begin: int = 0, end: int = -1, same_as: str = ""
    ) -> Iterator[Reading]:
        with self._asked(url) as page, self._pages.read(page, watch, begin, end, same_as) as reading:
            yield reading

    def write(self, path: str, url: str, watch: Watch) -> None:
        with self._asked(url) as page:
            self._pages.write(path, page, watch)

    def rename(self, url: str, to: str, watch: Watch) -> None:
        self._pages.rename(url, to, watch)

    def remove(self, url: str, watch: Watch) -> None:  # noqa: ARG002
        """The manager forgets what nobody names any more by itself: others may have kept the same bytes."""
        self._page(url)


def _seen(response: http.client.HTTPResponse) -> Seen:
    headers = response.headers
    size = headers.get("Content-Length") or ""
    size_bytes = int(size) if size.isascii() and size.isdecimal() and len(size) < 20 else -1
    ranges = "bytes" in (headers.get("Accept-Ranges") or "")
    if response.status == 206:
        match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range") or "")
        size_bytes = int(match[3]) if match is not None and match[3] != "*" else -1
        ranges = True
    if response.chunked and response.status != 206:
        size_bytes = -1
    etag = headers.get("ETag") or ""
    # A weak one is of the same meaning, not of the same bytes.
    validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified") or ""
    return Seen(size_bytes, validator, ranges)


def _range_of(response: http.client.HTTPResponse) -> tuple[int, int]:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range") or "")
    return (int(match[1]), int(match[2]) + 1) if match is not None and match[1] else (-1, -1)


def _chunks(response: http.client.HTTPResponse, watch: Watch, url: str) -> Iterator[bytes | memoryview]:
    """As they come: who waits until a chunk is full takes a slow server for one that is silent."""
    if response.chunked or response.length is None:
        while chunk := response.read1(_CHUNK_BYTES):
            watch.check()
            yield chunk
        return
    size, left = response.length, response.length
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    while left:
        count = response.fp.readinto1(buffer[: min(left, _CHUNK_BYTES)])
        watch.check()
        if not count:
            note = f"{shown(url)}: cut after {size - left:,} of {size:,} bytes"
            raise TransferFailed(Trouble.DOWN, shown(url), note_of(note))
        left -= count
        yield buffer[:count]


def _corrupt(url: str, what: str) -> TransferFailed:
    return TransferFailed(Trouble.CORRUPT, shown(url), note_of(f"{shown(url)} {what}"))
