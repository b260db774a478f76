"""`database:…`: a server of PostgreSQL or MySQL answers as one, or a file of SQLite can be read and is not locked.

No user is named and nobody logs in: what is asked is whether there is a database again, not whether somebody may use it.
"""

import re
import sqlite3
import struct
from pathlib import Path
from urllib.parse import quote

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers.addresses import Streams, connected, join_host_port, reason, split_host_port
from tercel.testers.contract import Surroundings
from tercel.testers.files import absolute
from tercel.testers.mounts import mount_of
from tercel.testers.threads import DISKS, Threads
from tercel.testers.verdicts import not_cleared, printable

_PORTS = {"postgresql": 5432, "mysql": 3306}
_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""What every server of PostgreSQL answers with one letter before it asks who is there."""
_GREETING_MOST = 4096
_NAME = re.compile(r"[A-Za-z0-9_.$-]{0,128}")


class DatabaseTester:
    kind = "database"
    place = Place.SITE
    summary = "a database answers: database:postgresql://db.lab:5432/name, mysql://…, sqlite:///data/x.db"

    def __init__(self, threads: Threads = DISKS) -> None:
        self._threads = threads

    def normalise(self, text: str) -> str:
        scheme, _, rest = text.strip().partition("://")
        scheme = {"postgres": "postgresql", "mariadb": "mysql"}.get(scheme.lower(), scheme.lower())
        if scheme == "sqlite":
            return f"sqlite://{absolute(rest, 'database:sqlite:///data/x.db')}"
        if scheme not in _PORTS:
            raise UsageError(
                f"database:{text[:100]} is none that can be tested; write database:postgresql://db.lab:5432/name, "
                "database:mysql://db.lab or database:sqlite:///data/x.db"
            )
        place, slash, name = rest.partition("/")
        if "@" in place:
            raise UsageError("database: no user or password: everybody who sees the job would see them")
        if not _NAME.fullmatch(name):
            raise UsageError(f"database: {name[:100]!r} is not the name of a database")
        return f"{scheme}://{join_host_port(*split_host_port(place, 'a host', _PORTS[scheme]))}{slash}{name}"

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        scheme, _, rest = text.partition("://")
        if scheme == "sqlite":
            return await self._threads.call(mount_of(rest), _read_sqlite, rest)
        host, port = split_host_port(rest.partition("/")[0], "a host", _PORTS[scheme])
        try:
            async with connected(host, port) as streams:
                return await (_postgresql if scheme == "postgresql" else _mysql)(text, streams)
        except OSError as error:
            return not_cleared(reason(error, text))


async def _postgresql(text: str, streams: Streams) -> Verdict:
    reader, writer = streams
    writer.write(_SSL_REQUEST)
    await writer.drain()
    answer = await reader.read(1)
    if answer in (b"S", b"N"):
        return Verdict(True, note=f"{text} answers")
    return not_cleared(f"{text} accepts connections, but does not answer as PostgreSQL does")


async def _mysql(text: str, streams: Streams) -> Verdict:
    """A packet of 3 bytes of length and its number 0; then the version of the protocol, or 255 and an error."""
    head = await _exactly(streams, 4)
    length = int.from_bytes(head[:3], "little")
    if len(head) < 4 or head[3] != 0 or not 1 <= length <= _GREETING_MOST:
        return not_cleared(f"{text} accepts connections, but does not greet as MySQL does")
    greeting = await _exactly(streams, length)
    if greeting[:1] == b"\xff":
        return not_cleared(f"{text} refuses: {printable(greeting[3:].decode(errors='replace'))}")
    if greeting[:1] not in (b"\x09", b"\x0a"):
        return not_cleared(f"{text} accepts connections, but does not greet as MySQL does")
    version = greeting[1:].partition(b"\0")[0].decode(errors="replace")
    return Verdict(True, note=f"{text} answers: {printable(version)[:60]}")


async def _exactly(streams: Streams, count: int) -> bytes:
    """Less if it closes before."""
    data = b""
    while len(data) < count and (more := await streams[0].read(count - len(data))):
        data += more
    return data


def _read_sqlite(path: str) -> Verdict:
    if not Path(path).is_file():
        return not_cleared(f"{path} does not exist")
    try:
        database = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=0.0)
        try:
            database.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
        finally:
            database.close()
    except sqlite3.Error as error:
        return not_cleared(f"{path}: {error}")
    return Verdict(True, note=f"{path} can be read")
