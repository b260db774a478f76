"""The pipes that take the outputs of the attempt under way.

The writing ends stay open in the spawner, or the end of each attempt would wake it three times: for either pipe and for
the process. So the end of an output is never seen as the end of a file; it is the end of the attempt's processes.

Pipes cost as much to make as anything else that a spawner does for an attempt. Those that an attempt has certainly
left as it found them serve the next one: it ended well and at once, wrote nothing, and left no process that could.
"""

import fcntl
import os
import select


class Pipes:
    """stdout's and stderr's, registered in `poll` while they are open."""

    __slots__ = ("_poll", "readers", "writers")

    def __init__(self, poll: select.poll) -> None:
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

    def untouched(self) -> bool:
        """Whether they are as they were opened: a task may have made its outputs non-blocking, for others too."""
        out, err = self.writers
        return fcntl.fcntl(out, fcntl.F_GETFL) == os.O_WRONLY == fcntl.fcntl(err, fcntl.F_GETFL)
