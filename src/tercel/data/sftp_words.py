"""A session of SFTP (version 3, as OpenSSH speaks it) through the system's `ssh`: requests out, replies in, many under way.

    this process --stdin--> ssh -s HOST sftp --network--> sshd: sftp-server
                 <-stdout--

    packet    length (4 bytes) · kind (1) · number of the request (4) · what its kind says

Replies come in any order. Of one session one thread makes use at a time.
"""

import struct
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from tercel.core.errors import TercelError

VERSION = 3
PACKET_MOST_BYTES = 1 << 20
INIT, OPEN, CLOSE, READ, WRITE, LSTAT, REMOVE, MKDIR, STAT, EXTENDED = 1, 3, 4, 5, 6, 7, 13, 14, 17, 200
IS_VERSION, IS_STATUS, IS_HANDLE, IS_DATA, IS_ATTRS, IS_EXTENDED = 2, 101, 102, 103, 105, 201
OPEN_READ, OPEN_WRITE, OPEN_CREATE, OPEN_TRUNCATE = 0x01, 0x02, 0x08, 0x10
OK, EOF, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, UNSUPPORTED = 0, 1, 2, 3, 4, 8
_HEAD = struct.Struct("!IBI")
_NUMBER = struct.Struct("!I")
_STDERR_MOST_BYTES = 4096
_END_S = 5.0


class Status(TercelError):
    """The server's answer to a request that it did not do."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said or f"status {code}")
        self.code = code


class Broken(TercelError):
    """The session is over. The text is what `ssh` said of it, if it said anything."""


class Attributes:
    """Of a file, as far as they are of interest."""

    def __init__(self, data: bytes) -> None:
        self.size_bytes, self.mode, self.modified_s = -1, 0, 0
        flags, at = _NUMBER.unpack_from(data)[0], 4
        if flags & 0x1:
            (self.size_bytes,) = struct.unpack_from("!Q", data, at)
            at += 8
        if flags & 0x2:
            at += 8
        if flags & 0x4:
            (self.mode,) = _NUMBER.unpack_from(data, at)
            at += 4
        if flags & 0x8:
            (self.modified_s,) = _NUMBER.unpack_from(data, at + 4)


def text(value: str | bytes) -> bytes:
    data = value.encode(errors="surrogateescape") if isinstance(value, str) else value
    return _NUMBER.pack(len(data)) + data


class Session:
    def __init__(self, argv: Sequence[str]) -> None:
        """Broken if it does not come about."""
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  it is closed with the session
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=1 << 18
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._numbers = 0
        self._asked: set[int] = set()
        self._replies: dict[int, tuple[int, bytes]] = {}
        self.extensions: set[bytes] = set()

    def greet(self) -> None:
        try:
            self._send(_NUMBER.pack(5) + bytes([INIT]) + _NUMBER.pack(VERSION))
            kind, _, rest = self._packet()
        except BaseException:
            self.close()
            raise
        if kind != IS_VERSION:
            self.close()
            raise Broken("what answers is no server of SFTP")
        while rest:
            name, rest = _cut(rest)
            _, rest = _cut(rest)
            self.extensions.add(name)

    def ask(self, kind: int, body: bytes) -> int:
        """Send a request. Its number is what it is answered under."""
        self._numbers = (self._numbers + 1) & 0xFFFFFFFF
        self._send(_HEAD.pack(len(body) + 5, kind, self._numbers) + body)
        self._asked.add(self._numbers)
        return self._numbers

    def answer(self, number: int) -> tuple[int, bytes]:
        """Its kind, and the rest. Status if it is one that is not OK."""
        while number not in self._replies:
            kind, of, rest = self._packet()
            self._asked.discard(of)
            self._replies[of] = (kind, rest)
        kind, rest = self._replies.pop(number)
        if kind == IS_STATUS:
            code = _NUMBER.unpack_from(rest)[0]
            if code != OK:
                raise Status(code, _cut(rest[4:])[0].decode(errors="replace") if len(rest) > 4 else "")
        return kind, rest

    def do(self, kind: int, body: bytes) -> bytes:
        return self.answer(self.ask(kind, body))[1]

    def open(self, path: str, flags: int) -> bytes:
        """Its handle, as it stands in requests."""
        return text(_cut(self.do(OPEN, text(path) + struct.pack("!II", flags, 0)))[0])

    def extended(self, name: str, body: bytes) -> bytes:
        return self.do(EXTENDED, text(name) + body)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def is_quiet(self) -> bool:
        """All that was asked has been answered, and its answer was taken."""
        return not self._asked and not self._replies

    def kill(self) -> None:
        """From any thread: whoever waits for it is woken."""
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        for pipe in (self._in, self._out):
            with suppress(OSError):  # what was not sent yet cannot be sent any more
                pipe.close()
        self._process.wait(_END_S)
        self._said.close()

    def _send(self, data: bytes) -> None:
        try:
            self._in.write(data)
            self._in.flush()
        except (OSError, ValueError) as error:
            raise self._broken() from error

    def _packet(self) -> tuple[int, int, bytes]:
        try:
            length = _NUMBER.unpack(self._exactly(4))[0]
            if not 5 <= length <= PACKET_MOST_BYTES:
                raise Broken("what answers is no server of SFTP")
            data = self._exactly(length)
        except (OSError, ValueError) as error:
            raise self._broken() from error
        return data[0], _NUMBER.unpack_from(data, 1)[0], data[5:]

    def _exactly(self, count: int) -> bytes:
        data = self._out.read(count)
        if len(data) < count:
            raise self._broken()
        return data

    def _broken(self) -> Broken:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)  # until it has said why
        with suppress(ValueError):
            self._said.seek(0)
            lines = self._said.read(_STDERR_MOST_BYTES).decode(errors="replace").strip().splitlines()
            return Broken("; ".join(lines[-3:]) or "the connection was cut")
        return Broken("the connection was cut")


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """A text, and what follows it."""
    length = _NUMBER.unpack_from(data)[0]
    return data[4 : 4 + length], data[4 + length :]
