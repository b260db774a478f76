"""`http://…`, `https://…`: a GET is answered with 2xx or 3xx. Only the headers are read, and no redirect is followed.

`https://store.lab/api<500`: with less than 500 will do. Whoever may see the page only with a token, or only POST to it, waits so
until the server is well again: what it answers to strangers (401, 405) is an answer.
"""

import re
import ssl
import time
from email.utils import parsedate_to_datetime
from functools import cache
from urllib.parse import SplitResult, urlsplit

import h11

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers.addresses import connected, join_host_port, reason, split_host_port
from tercel.testers.contract import Surroundings
from tercel.testers.verdicts import not_cleared, why

HEADERS_MOST_BYTES = 64 * 1024
_READ_BYTES = 16 * 1024
_PORTS = {"http": 80, "https": 443}
_LATER = (429, 503)
"""Statuses with which a server may say when to come back."""
_FINE = 400
"""Answers below are taken for good ones, unless another bound is given."""
_BOUND = re.compile(r"(?P<url>[^<]*?)\s*<\s*(?P<below>[345][0-9][0-9])")
"""No `<` is in any URL: it would be written as %3C."""
_SAFE = re.compile(r"[!-~]*")


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the system's certificates takes a while."""
    return ssl.create_default_context()


class HttpTester:
    place = Place.SITE

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.summary = f"a GET is answered with 2xx or 3xx: {kind}://store.lab/health"

    def normalise(self, text: str) -> str:
        text, below = _bounded(text.strip())
        if "<" in text:
            raise UsageError(
                f"{self.kind}:{text[:100]}: below what its answer has cleared is written as <500, at the end"
            )
        url = self._split(text)
        if "@" in url.netloc:
            raise UsageError(
                f"{self.kind}: no user or password in a URL: everybody who sees the job would see them; "
                "test with command: and a file that only you can read"
            )
        host, port = split_host_port(url.netloc, "a host in a URL", _PORTS[self.kind])
        netloc = join_host_port(host, port)
        if port == _PORTS[self.kind]:
            netloc = netloc.removesuffix(f":{port}")
        bound = f"<{below}" if below != _FINE else ""
        return f"//{netloc}{url.path or '/'}{'?' + url.query if url.query else ''}{bound}"

    def _split(self, text: str) -> SplitResult:
        try:
            url = urlsplit(f"{self.kind}:{text}")
        except ValueError:
            url = SplitResult("", "", "", "", "")
        if not text.startswith("//") or not url.netloc:
            raise UsageError(f"{self.kind}:{text[:100]} is not a URL; write {self.kind}://store.lab/health")
        if not _SAFE.fullmatch(url.path + url.query):
            raise UsageError(
                f"{self.kind}:{text[:100]}: blanks and letters beyond ASCII in a URL are written as %20"
            )
        return url

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        text, below = _bounded(text)
        url = self._split(text)
        host, port = split_host_port(url.netloc, "a host", _PORTS[self.kind])
        of = f"{self.kind}:{text}"
        try:
            async with connected(host, port, _tls() if self.kind == "https" else None) as (reader, writer):
                client = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADERS_MOST_BYTES)
                writer.write(client.send(_request(url)))
                await writer.drain()
                left = HEADERS_MOST_BYTES
                while not isinstance(event := client.next_event(), h11.Response):
                    if event is h11.NEED_DATA:
                        data = await reader.read(min(_READ_BYTES, left))
                        if not data:
                            return not_cleared(f"{of}: the server closed the connection before it answered")
                        left -= len(data)
                        client.receive_data(data)
                    if left <= 0:
                        return not_cleared(
                            f"{of}: the server's headers are larger than {HEADERS_MOST_BYTES:,} bytes"
                        )
        except OSError as error:
            return not_cleared(reason(error, of))
        except h11.RemoteProtocolError as error:
            return not_cleared(f"{of}: that is no answer in HTTP: {why(error)}")
        return _verdict(of, event, below)


def _bounded(text: str) -> tuple[str, int]:
    """The URL, and below what its answer has cleared."""
    match = _BOUND.fullmatch(text)
    return (match["url"], int(match["below"])) if match is not None else (text, _FINE)


def _request(url: SplitResult) -> h11.Request:
    target = f"{url.path or '/'}{'?' + url.query if url.query else ''}"
    headers = [
        ("Host", url.netloc),
        ("User-Agent", "tercel"),
        ("Accept", "*/*"),
        ("Connection", "close"),
    ]
    return h11.Request(method="GET", target=target, headers=headers)


def _verdict(of: str, response: h11.Response, below: int) -> Verdict:
    status = response.status_code
    said = f"{of} answers {status}"
    if 200 <= status < below and status not in _LATER:
        return Verdict(True, note=said)
    later = dict(response.headers).get(b"retry-after", b"") if status in _LATER else b""
    return Verdict(False, note=said, not_before_s=_seconds(later.decode(errors="replace").strip()))


def _seconds(retry_after: str) -> float:
    """`120`, or a date; what is neither says nothing."""
    if retry_after.isascii() and retry_after.isdecimal():
        return float(retry_after[:10])
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0
