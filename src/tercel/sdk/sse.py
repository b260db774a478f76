"""Server-sent events out of a stream of bytes, wherever the network cut it.

Only what Tercel's events need: `data` lines up to an empty line are one event; comments and other fields are
skipped. Lines end with LF, CRLF or CR.
"""

MAX_EVENT_BYTES = 64 * 2**20
"""Far above any real event: an endless line of a broken peer must not fill the memory."""


class SseParser:
    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that is complete now."""
        events: list[bytes] = []
        if not chunk:
            return events
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF
        self._after_cr = chunk.endswith(b"\r")
        *ended, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for end in ended:
            self._line += end
            self._take_line(bytes(self._line), events)
            self._line.clear()
        self._line += rest
        if len(self._line) + self._size > MAX_EVENT_BYTES:
            raise ValueError(f"an event is larger than {MAX_EVENT_BYTES:,} bytes")
        return events

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
            self._data.clear()
            self._size = 0
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
