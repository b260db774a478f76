"""What is kept of one stream of one attempt: its last bytes, however much is written.

The first 64 KiB stay in memory, so that an ordinary task touches no file. Beyond that a file of at most the limit
is used as a ring (byte n of the stream stands at n modulo the limit), so that a task which prints without end costs
a bounded file and no memory. The file has no name and vanishes with this process.

    0 ........ begin ................ total
               |<- kept, <= limit ->|
"""

# ruff: noqa: PTH108
# (Descriptors, and pathlib would double a spawner's start-up time.)

import os

MEMORY_BYTES = 64 * 1024


class Written:
    """What is kept of a stream that went straight into a file, as the calls of an interpreter have it.

    The file is its owner's to empty and to close.
    """

    __slots__ = ("_fd", "begin", "fault", "total")

    def __init__(self, fd: int, limit_bytes: int) -> None:
        self._fd = fd
        self.total = os.lseek(fd, 0, os.SEEK_END)
        self.begin = max(0, self.total - limit_bytes)
        self.fault = ""

    def read(self, offset: int, most: int) -> bytes:
        return os.pread(self._fd, min(most, self.total - offset), offset)

    def close(self) -> None:
        """Nothing is held."""


class Capture:
    __slots__ = ("_directory", "_limit", "_memory", "_ring", "begin", "fault", "total")

    def __init__(self, limit_bytes: int, directory: bytes) -> None:
        self.total = 0
        """Bytes written by the task so far."""
        self.begin = 0
        """How many of them, from the start, are no longer kept."""
        self.fault = ""
        """Why less is kept than the limit allows, if so."""
        self._limit = limit_bytes
        self._directory = directory
        self._memory = bytearray()
        self._ring = -1

    def add(self, data: bytes) -> None:
        offset = self.total
        self.total += len(data)
        if self._ring >= 0:
            self._write_ring(offset, data)
            return
        self._memory += data
        if len(self._memory) > MEMORY_BYTES < self._limit:
            self._open_ring()
        elif len(self._memory) > self._limit:
            self._trim(self._limit)

    def read(self, offset: int, most: int) -> bytes:
        """Up to `most` kept bytes from `offset` of the stream on; `begin <= offset <= total`."""
        size = min(most, self.total - offset)
        if self._ring < 0:
            at = offset - self.begin
            return bytes(self._memory[at : at + size])
        at = offset % self._limit
        first = os.pread(self._ring, min(size, self._limit - at), at)
        if len(first) == size:
            return first
        return first + os.pread(self._ring, size - len(first), 0)

    def close(self) -> None:
        if self._ring >= 0:
            os.close(self._ring)
            self._ring = -1

    def _trim(self, size: int) -> None:
        del self._memory[: len(self._memory) - size]
        self.begin = self.total - len(self._memory)

    def _open_ring(self) -> None:
        path = b"%s/ring.%d" % (self._directory, id(self))
        try:
            self._ring = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.unlink(path)
        except OSError as error:
            self._do_without_ring(error, b"")
            return
        memory, self._memory = bytes(self._memory), bytearray()
        self._write_ring(self.begin, memory)

    def _write_ring(self, offset: int, data: bytes) -> None:
        self.begin = max(self.begin, self.total - self._limit)
        at = offset % self._limit
        first = min(len(data), self._limit - at)
        try:
            self._pwrite(memoryview(data)[:first], at)
            self._pwrite(memoryview(data)[first:], 0)
        except OSError as error:
            self._do_without_ring(error, data)

    def _pwrite(self, data: memoryview, at: int) -> None:
        while data:
            written = os.pwrite(self._ring, data, at)
            data = data[written:]
            at += written

    def _do_without_ring(self, error: OSError, data: bytes) -> None:
        """The disk is full, say: that is not the task's fault, and it goes on with what fits into memory."""
        self.close()
        self.fault = error.strerror or str(error)
        self._limit = MEMORY_BYTES
        self._memory += data
        self._trim(min(len(self._memory), MEMORY_BYTES))
