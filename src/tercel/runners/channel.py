"""How a lane's two ends talk: lists of messages over a socket pair, in both directions, never blocking.

A frame is its length (4 bytes) and a marshalled list of tuples, each a kind and its fields:

    pool -> spawner     ("setup", job, argv, line, cwd, env, task id argument, time limit, grace, output limit,
                         limits, the lane's variables, warning, isolation, image)
                        ("start", task, attempt, argv, line)      of the job of the last setup
                        ("files", attempt, links, gathers, gather_dir)      of the last start
                        ("kill", attempts) · ("withdraw", attempts) · ("follow", attempt, on)
                        ("warn", attempts) · ("exceeded", attempt, what, note)
    spawner -> pool     ("Started", attempt, pid, started at) · ("Ended", reports)
                        ("Tail", attempt, stream, offset, data)

    lane -> interpreter ("setup", job, function's code, its value's key, path, cwd, output limit)
                        ("start", task, attempt, arguments, inputs)      of the job of the last setup
                        ("files", attempt, links, gathers, gather_dir)      of the last start
                        ("withdraw", attempts) · ("go", bar)
    interpreter -> lane ("Ended", reports)

Both ends are one release under one interpreter, started by each other, so marshal serves: against msgspec it saves
a spawner two thirds of its start-up time and half of its memory. A stream and not SEQPACKET, because a job's arguments
and environment together may be larger than the largest packet that an ordinary user's socket takes.
"""

import marshal
import os

_READ_BYTES = 64 * 1024

Message = tuple[object, ...]


class Channel:
    """One end. The descriptor stays its owner's to close."""

    __slots__ = ("_in", "_out", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._in = bytearray()
        self._out = bytearray()
        os.set_blocking(fd, False)

    @property
    def unsent(self) -> bool:
        """Whether something waits for the other end to make room: call `flush` when it has."""
        return bool(self._out)

    def send(self, messages: list[Message]) -> None:
        self.send_marshalled(marshal.dumps(messages))

    def send_marshalled(self, body: bytes) -> None:
        """A list of messages that was marshalled already."""
        frame = len(body).to_bytes(4, "little") + body
        if self._out:
            self._out += frame
            return
        sent = self._write(frame)
        if sent < len(frame):
            self._out += memoryview(frame)[sent:]

    def flush(self) -> None:
        del self._out[: self._write(self._out)]

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError):
            return len(data)  # nobody is there to read it; `receive` tells the owner

    def receive(self) -> list[Message]:
        """What has arrived. Raises EOFError once the other end is gone."""
        self._in += self._read()
        return self._messages()

    def receive_all(self) -> list[Message]:
        """All that has arrived, also from an end that is gone."""
        try:
            while data := self._read():
                self._in += data
        except EOFError:
            pass
        return self._messages()

    def _read(self) -> bytes:
        """Empty: nothing is there now."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return b""
        except ConnectionResetError:
            data = b""
        if not data:
            raise EOFError
        return data

    def _messages(self) -> list[Message]:
        messages: list[Message] = []
        at = 0
        while len(self._in) - at >= 4:
            end = at + 4 + int.from_bytes(self._in[at : at + 4], "little")
            if end > len(self._in):
                break
            messages += marshal.loads(memoryview(self._in)[at + 4 : end])  # noqa: S302  # our own other end
            at = end
        del self._in[:at]
        return messages
