"""Hosts and ports as people write them, and connections to them that are closed whatever happens."""

import asyncio
import contextlib
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Sequence

from tercel.core.errors import UsageError
from tercel.testers.threads import LOOKUPS, Threads
from tercel.testers.verdicts import why

NAME_MOST = 253
_ADDRESSES_MOST = 4
"""Of one name, tried together."""
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def split_host_port(text: str, what: str, default_port: int = 0) -> tuple[str, int]:
    """`host:port`, `[::1]:port` -> both, as they are always written. Without a default, the port must be there."""
    match = re.fullmatch(r"\[([^\[\]]{1,60})\](?::([^:]*))?|([^:\[\]]*)(?::([^:]*))?", text)
    if match is None:
        raise UsageError(f"{text[:100]!r} is not {what}; an IPv6 address stands in brackets, as in [::1]:22")
    host, port = (match[1], match[2]) if match[1] is not None else (match[3], match[4])
    if port is None and default_port:
        return check_host(host, match[1] is not None), default_port
    if not port or not port.isascii() or not port.isdecimal() or len(port) > 5 or not 1 <= int(port) <= 65535:
        raise UsageError(f"{text[:100]!r} is not {what}: its port must be 1 to 65535")
    return check_host(host, match[1] is not None), int(port)


def check_host(host: str, in_brackets: bool = False) -> str:
    """A name or an address in the one way in which it is written."""
    if in_brackets or ":" in host:
        with contextlib.suppress(ValueError):
            if "%" not in host:  # an interface means something on one machine only
                return str(ipaddress.IPv6Address(host))
        raise UsageError(f"{host[:100]!r} is not an IPv6 address")
    name = host.rstrip(".").lower()
    if not name.isascii():
        with contextlib.suppress(UnicodeError):
            name = name.encode("idna").decode()
    if len(name) > NAME_MOST or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise UsageError(f"{host[:100]!r} is not the name of a host, nor an address")
    if name.rpartition(".")[2].isdecimal():
        with contextlib.suppress(ValueError):
            return str(ipaddress.IPv4Address(name))
        raise UsageError(f"{host[:100]!r} is not an IPv4 address")
    return name


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolve(host: str, threads: Threads = LOOKUPS) -> list[str]:
    """The addresses of a name. OSError if it has none."""
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    domain = ".".join(host.split(".")[-2:])
    found = await threads.call(
        f"looking up names in {domain}", socket.getaddrinfo, host, None, 0, socket.SOCK_STREAM
    )
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@contextlib.asynccontextmanager
async def connected(host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Streams]:
    """To whichever of the name's addresses answers first. OSError if none does."""
    addresses = (await resolve(host))[:_ADDRESSES_MOST]
    attempts = [asyncio.ensure_future(_connect(address, port, tls, host)) for address in addresses]
    streams: Streams | None = None
    try:
        streams = await _first(attempts)
        yield streams
    finally:
        for attempt in attempts:
            if not attempt.cancel() and not attempt.cancelled() and attempt.exception() is None:
                attempt.result()[1].transport.abort()


async def _first(attempts: Sequence["asyncio.Future[Streams]"]) -> Streams:
    error: OSError = OSError("it has no address")
    for attempt in asyncio.as_completed(attempts):
        try:
            return await attempt
        except OSError as raised:
            error = raised
    raise error


async def _connect(address: str, port: int, tls: ssl.SSLContext | None, host: str) -> Streams:
    name = host if tls is not None else None
    streams = await asyncio.open_connection(address, port, ssl=tls, server_hostname=name, limit=65536)
    own, peer = (streams[1].get_extra_info(of) for of in ("sockname", "peername"))
    if (
        own is not None and own == peer
    ):  # on one machine a port that nobody listens at can be met by ourselves
        streams[1].transport.abort()
        raise ConnectionRefusedError("nobody listens there")
    return streams


def reason(error: OSError, of: str) -> str:
    """Why it cannot be reached, for people."""
    if isinstance(error, socket.gaierror):
        return f"{of} cannot be found: {error.strerror}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{of}: its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"{of}: no encrypted connection: {error.reason or why(error)}"
    return f"{of}: {why(error).lower()}"
