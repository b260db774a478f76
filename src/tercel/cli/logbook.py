"""The log of a service: to stderr or into a file, and never keeping the service waiting.

    whoever logs --[ at most WAITING_MOST lines ]--> one thread --> stderr, or a file (logfile)

A terminal that is paused, a pipe that nobody reads, or a disk that hangs takes no more lines at some time; written on
the event loop, the next one would stop the manager. Here lines are lost instead, and how many is told when there is
room again.
"""

import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from tercel.cli.codes import first_cause
from tercel.cli.logfile import LogFile
from tercel.core.errors import TercelError

F = TypeVar("F", bound=Callable[..., object])

WAITING_MOST = 10_000
FLUSH_S = 1.0
"""The longest the end of the process waits for lines to be written."""
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
_TOKEN = re.compile(r"(bearer\s+)\S+", re.IGNORECASE)
"""In the head of a request that cannot be read, which is shown as it came."""

_OPTIONS = (
    click.option(
        "--log",
        "log_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Log into this file (only warnings go to stderr then too). At 10 MiB it becomes FILE.1.gz; five are kept.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(list(LEVELS)),
        default="info",
        metavar="LEVEL",
        show_default=True,
        help="What is logged: debug (all), info or warning (least).",
    ),
)


def log_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class LogOptions(NamedTuple):
    """Where a service logs to, and how much."""

    file: Path | None
    level: str

    @contextmanager
    def kept(self, quiet: bool) -> Iterator[None]:
        """While the service runs. What ends it is in the file too. Raises UsageError if that cannot be written."""
        level = LEVELS[self.level]
        if self.file is None:
            log_to_stderr(max(level, logging.WARNING) if quiet else level)
            yield
            return
        book = Logbook(LogFile(self.file).write)
        book.setLevel(level)
        log_to_stderr(logging.WARNING, book)
        try:
            yield
        except Exception as error:  # it goes on to stderr
            cause = first_cause(error)
            trace = None if isinstance(cause, TercelError) else (type(cause), cause, cause.__traceback__)
            text = str(cause) or type(cause).__name__
            book.handle(  # to the file alone: the command says it on stderr
                logging.LogRecord("tercel", logging.ERROR, "", 0, "it ends: %s", (text,), trace, None)
            )
            book.flush()
            raise


def log_to_stderr(level: int, *others: logging.Handler) -> None:
    """And to others, each at its own level."""
    stderr = Logbook(descriptor(sys.stderr.fileno()))
    stderr.setLevel(level)
    least = min(handler.level for handler in (stderr, *others))
    logging.basicConfig(level=least, format=FORMAT, handlers=[stderr, *others], force=True)


def descriptor(fd: int) -> Callable[[bytes], None]:
    """Written itself: a stream has a lock, at which the end of the process would wait for ever."""

    def write(line: bytes) -> None:
        try:
            while line:
                line = line[os.write(fd, line) :]
        except OSError:
            pass  # nobody is there to read it, nor to be told

    return write


class Logbook(logging.Handler):
    """Hands lines to a thread that writes them with `write`, which may take its time but never raises."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._write_bytes = write
        self._lines: queue.Queue[str] = queue.Queue(WAITING_MOST)
        self._lost = 0
        threading.Thread(target=self._write_all, name="tercel-log", daemon=True).start()

    def format(self, record: logging.LogRecord) -> str:
        return _TOKEN.sub(r"\1(hidden)", super().format(record))

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
                self._write(f"... and {lost:,} lines that were not taken in time")
            self._lines.task_done()

    def _take_lost(self) -> int:
        self.acquire()  # held by whoever logs
        lost, self._lost = self._lost, 0
        self.release()
        return lost

    def _write(self, line: str) -> None:
        self._write_bytes(f"{line}\n".encode(errors="backslashreplace"))
