"""One request of HTTP and its answer: redirects bounded, credentials to their own host only, ended from outside at any time.

Credentials are the worker's: `TERCEL_BEARER_STORE_LAB` in its environment for store.lab (`STORE__1_LAB` for store-1.lab), or else its `~/.netrc` (or `NETRC`).
"""

import base64
import http.client
import netrc
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO
from urllib.parse import quote, urljoin, urlsplit

from tercel.core.files import Trouble
from tercel.data.contract import TransferFailed
from tercel.data.faults import of_status
from tercel.data.urls import note_of, parse, shown
from tercel.data.watches import Watch

REDIRECTS_MOST = 10
CONNECT_S = 20.0
BEARER = "TERCEL_BEARER_"
_REDIRECTS = (301, 302, 303, 307, 308)
_BODY_BYTES = 1 << 18
_KEPT = "!#$%&'()*+,/:;=?@[]~"
"""Of a target, as it is written: the rest is quoted."""

Credentials = Callable[[str, str], str]
"""Scheme and host (with its port) to what is said in `Authorization`; empty: nothing."""


@cache
def tls() -> ssl.SSLContext:
    """Made once: reading the system's certificates takes a while."""
    return ssl.create_default_context()


def own_credentials(scheme: str, netloc: str) -> str:
    host = netloc.rpartition(":")[0] if re.search(r":[0-9]+$", netloc) else netloc
    if token := os.environ.get(_variable(host)):
        return f"Bearer {token.strip()}"
    path = os.environ.get("NETRC") or str(Path("~/.netrc").expanduser())
    try:
        found = netrc.netrc(path).authenticators(host.strip("[]"))
    except FileNotFoundError:
        return ""
    except (OSError, netrc.NetrcParseError) as error:
        note = note_of(f"{path} cannot be read for what is to be said to {host}: {error}")
        raise TransferFailed(Trouble.DENIED, f"{scheme}://{netloc}", note) from error
    if found is None:
        return ""
    return "Basic " + base64.b64encode(f"{found[0]}:{found[2]}".encode()).decode()


def _variable(host: str) -> str:
    """Of no two hosts the same: data-lab.org is anybody's who pays for it, data.lab.org is not."""
    return BEARER + re.sub(r"[^A-Z0-9_]", "_", host.strip("[]").upper().replace("-", "__"))


@contextmanager
def answered(
    method: str,
    url: str,
    watch: Watch,
    headers: Mapping[str, str],
    credentials: Credentials = own_credentials,
    body: IO[bytes] | None = None,
    size_bytes: int = 0,
) -> Iterator[http.client.HTTPResponse]:
    """The last answer, after all redirects. TransferFailed if it is none of 2xx, or 416."""
    been: list[str] = []
    while True:
        if url in been or len(been) > REDIRECTS_MOST:
            why = "redirects in a circle" if url in been else f"redirects more than {REDIRECTS_MOST} times"
            raise TransferFailed(Trouble.REFUSED, shown(been[0]), note_of(f"{shown(been[0])} {why}"))
        been.append(url)
        with _asked(method, url, watch, headers, credentials, body, size_bytes) as response:
            if response.status not in _REDIRECTS:
                if response.status >= 300 and response.status != 416:
                    raise of_status(response.status, response.headers.get("Retry-After") or "", url)
                yield response
                return
            url = _target(url, response.headers.get("Location") or "")
            if body is not None:
                body.seek(0)


def _target(url: str, location: str) -> str:
    target = urljoin(url, location)
    if not location or not target.startswith(("http://", "https://")):
        raise TransferFailed(
            Trouble.REFUSED,
            shown(url),
            note_of(f"{shown(url)} redirects to what is no page: {shown(location)}"),
        )
    return target.partition("#")[0]


@contextmanager
def _asked(
    method: str,
    url: str,
    watch: Watch,
    headers: Mapping[str, str],
    credentials: Credentials,
    body: IO[bytes] | None,
    size_bytes: int,
) -> Iterator[http.client.HTTPResponse]:
    parse(url)  # also a redirect may hold a password
    parts = urlsplit(url)
    if "@" in parts.netloc or not parts.hostname:
        raise TransferFailed(
            Trouble.REFUSED,
            shown(url),
            note_of(f"{shown(url)} has a user in it, or no host; who asks stands in ~/.netrc"),
        )
    said = {"User-Agent": "tercel", "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
    said |= headers
    if authorization := credentials(parts.scheme, parts.netloc):
        said["Authorization"] = authorization
    if body is not None:
        said["Content-Length"] = str(size_bytes)
    watch.check()
    connection = _connected(parts.scheme, parts.hostname, parts.port)
    try:
        sock = connection.sock
        with watch.ending(lambda: sock.shutdown(socket.SHUT_RDWR)):
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.putrequest(method, quote(target, safe=_KEPT), skip_accept_encoding=True)
            for name, value in said.items():
                connection.putheader(name, value)
            connection.endheaders()
            if body is not None:
                with suppress(ConnectionError):  # it does not want all of it: its answer says why
                    _send(connection, body, watch)
            with connection.getresponse() as response:
                watch.alive()
                yield response
    finally:
        connection.close()


def _connected(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        made: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=CONNECT_S, context=tls()
        )
    else:
        made = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
    made.connect()
    made.sock.settimeout(None)  # from now on the watch ends it
    return made


def _send(connection: http.client.HTTPConnection, body: IO[bytes], watch: Watch) -> None:
    while chunk := body.read(_BODY_BYTES):
        connection.send(chunk)
        watch.step(len(chunk))
