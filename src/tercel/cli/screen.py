"""What goes where: results to stdout, everything else to stderr.

For people a result is text; with --json it is one document, or JSON lines where it is a stream, and every document
has "schema": 1. Notes for people ("tercel: …") and progress go to stderr in both cases, so that stdout can be piped.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import click
import msgspec

SCHEMA = 1
"""As tercel.wire.api.SCHEMA, which costs too much to import for `tercel --help`; a test keeps them equal."""

_COLOURS = {
    "running": "cyan",
    "available": "green",
    "busy": "green",
    "finished": "green",
    "failed": "red",
    "blocked": "magenta",
    "cancelled": "yellow",
    "draining": "yellow",
    "offline": "red",
}


class Unwritable(Exception):
    """What was to be printed cannot be: a full disk under `> file`. Nobody's bug, and not the manager's fault."""


class Screen:
    """Where a command's words go. Also carries the options that every command takes."""

    def __init__(self) -> None:
        self.server: str | None = None
        self.json = False
        self.quiet = False
        self.clear: Callable[[], None] | None = None
        """Takes a progress bar off the terminal, while there is one."""

    def tell(self, lines: str | Iterable[str]) -> None:
        """A result, for people."""
        if not self.json:
            with _writing("stdout"):
                click.echo(lines if isinstance(lines, str) else "\n".join(lines))

    def emit(self, document: msgspec.Struct | Mapping[str, object], **more: object) -> None:
        """A result, for programs: one line of JSON."""
        if self.json:
            write_stdout(
                msgspec.json.encode({"schema": SCHEMA, **msgspec.to_builtins(document), **more}) + b"\n"
            )

    def note(self, text: str) -> None:
        """Something that people may want to know, but that is not the result."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Something that must be known."""
        if self.clear is not None:
            self.clear()
        click.echo(f"tercel: {text}", err=True)

    @property
    def lively(self) -> bool:
        """Whether a moving progress bar makes sense."""
        return not self.quiet and not self.json and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """Of the terminal, or as COLUMNS says; 0 where nothing limits a line."""
        return shutil.get_terminal_size((0, 0)).columns

    def state(self, state: str, width: int = 0) -> str:
        """A state's name, coloured where colours are wanted."""
        text = state.ljust(width)
        return click.style(text, fg=_COLOURS[state]) if state in _COLOURS and self._coloured else text

    @property
    def _coloured(self) -> bool:
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write_stdout(data: bytes) -> None:
    """Bytes as they are, at once: whoever follows a task wants to see them now."""
    with _writing("stdout"):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def write_stderr(data: bytes) -> None:
    with _writing("stderr"):
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


@contextmanager
def _writing(stream: str) -> Iterator[None]:
    """A reader that left is another matter: see `main`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(f"cannot write to {stream}: {error.strerror}") from None
