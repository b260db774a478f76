"""A log to stderr that never keeps a service waiting.

    whoever logs --[ at most WAITING_MOST lines ]--> one thread --> stderr

A terminal that is paused, or a pipe that nobody reads, takes no more lines at some time; written on the event loop, the
next one would stop the manager. Here lines are lost instead, and how many is told when there is room again.
"""

import logging
import os
import queue
import sys
import threading

WAITING_MOST = 10_000
FLUSH_S = 1.0
"""The longest the end of the process waits for lines to be written."""
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(level: int) -> None:
    logging.basicConfig(level=level, format=FORMAT, handlers=[Logbook(sys.stderr.fileno())], force=True)


class Logbook(logging.Handler):
    """Writes to the descriptor itself: a stream has a lock, at which the end of the process would wait for ever."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._lines: queue.Queue[str] = queue.Queue(WAITING_MOST)
        self._lost = 0
        threading.Thread(target=self._write_all, name="tercel-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._lost += 1
        except Exception:  # as every handler: a line that cannot be formatted is a mistake of its own
            self.handleError(record)

    def flush(self) -> None:
        """Also called at the end of the process."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, FLUSH_S)

    def _write_all(self) -> None:
        while True:
            self._write(self._lines.get())
            if lost := self._take_lost():
                self._write(f"... and {lost:,} lines that were not read in time")
            self._lines.task_done()

    def _take_lost(self) -> int:
        self.acquire()  # held by whoever logs
        lost, self._lost = self._lost, 0
        self.release()
        return lost

    def _write(self, line: str) -> None:
        data = f"{line}\n".encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            pass  # nobody is there to read it, nor to be told
