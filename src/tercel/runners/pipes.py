"""The pipes that take the outputs of the attempt under way.

The writing ends stay open in the spawner, or the end of each attempt would wake it three times: for either pipe and for
the process. So the end of an output is never seen as the end of a file; it is the end of the attempt's processes.

Pipes cost as much to make as anything else that a spawner does for an attempt. Those that an attempt has certainly
left as it found them serve the next one: it ended well and at once, wrote nothing, and left no process that could.
"""

import fcntl
import os
import select
from collections.abc import Callable

READ_BYTES = 64 * 1024
DRAIN_READS_MOST = 64

Take = Callable[[int, bytes, bytes], None]
"""Called with the stream's number, what was written to it, and the lane's directory."""


class Pipes:
    """stdout's and stderr's, registered in `poll` while they are open."""

    __slots__ = ("_directory", "_poll", "readers", "writers")

    def __init__(self, poll: select.poll, directory: bytes) -> None:
        """`directory` is the lane's."""
        self._directory = directory
        self._poll = poll
        self.readers: tuple[int, ...] = ()
        self.writers: tuple[int, ...] = ()

    def open(self) -> None:
        """Raises OSError."""
        out_reader, out = os.pipe()
        try:
            err_reader, err = os.pipe()
        except OSError:
            os.close(out_reader)
            os.close(out)
            raise
        self.readers = (out_reader, err_reader)
        self.writers = (out, err)
        for reader in self.readers:
            self._poll.register(reader, select.POLLIN)

    def close(self) -> None:
        for reader in self.readers:
            self._poll.unregister(reader)
        for fd in (*self.readers, *self.writers):
            os.close(fd)
        self.readers = self.writers = ()

    def read(self, reader: int, take: Take) -> None:
        take(self.readers.index(reader), os.read(reader, READ_BYTES), self._directory)

    def drain(self, take: Take) -> None:
        """Until they are empty; not forever, for a process that cannot be killed may go on writing."""
        for _ in range(DRAIN_READS_MOST):
            full = [fd for fd, _event in self._poll.poll(0) if fd in self.readers]
            for reader in full:
                self.read(reader, take)
            if not full:
                return

    def untouched(self) -> bool:
        """Whether they are as they were opened: a task may have made its outputs non-blocking, for others too."""
        out, err = self.writers
        return fcntl.fcntl(out, fcntl.F_GETFL) == os.O_WRONLY == fcntl.fcntl(err, fcntl.F_GETFL)
