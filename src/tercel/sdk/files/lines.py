"""Files that bring commands, a line each."""

import codecs
import sys
from pathlib import Path
from typing import NamedTuple

from tercel.core.errors import UsageError

STDIN = "-"


class Lines(NamedTuple):
    """What each task has of its own: a command, or an item of JSON."""

    lines: list[str]
    numbers: list[int]
    """Of each one's line in the file; none, if they are not lines there."""
    skipped: int
    """Blank and comment lines."""
    name: str
    """Of the file, for people."""

    def place(self, index: int) -> str:
        """`cmds.txt:7`"""
        return f"{self.name}:{self.numbers[index]}" if self.numbers else f"{self.name}: item {index}"

    def remark(self) -> str:
        if not self.skipped:
            return ""
        what = "1 blank or comment line" if self.skipped == 1 else f"{self.skipped:,} blank or comment lines"
        return f"{what} of {self.name} skipped"


def read_text(file: Path) -> str:
    """A file's text. Raises UsageError."""
    try:
        return _decode(file.read_bytes(), str(file))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except ValueError:  # a NUL byte in its name
        raise UsageError(f"there is no file {str(file)!r}") from None


def read_source(source: str, base: Path) -> tuple[str, str]:
    """(its name for people, its text). Raises UsageError."""
    if source == STDIN:
        return "stdin", _decode(sys.stdin.buffer.read(), STDIN)
    return source, read_text(base / source)


def read_lines(source: str, base: Path) -> Lines:
    """Of a file, or of stdin for '-'. Raises UsageError."""
    name, text = read_source(source, base)
    every = text.removesuffix("\n").split("\n") if text else []
    lines: list[str] = []
    numbers: list[int] = []
    for number, raw in enumerate(every, start=1):
        line = raw.strip()
        if line and not line.startswith("#"):
            lines.append(line)
            numbers.append(number)
    if not lines:
        raise UsageError(f"{name} has no lines to run")
    return Lines(lines, numbers, len(every) - len(lines), name)


def _decode(data: bytes, name: str) -> str:
    data = data.removeprefix(codecs.BOM_UTF8)  # which some editors write, and no shell understands
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{number} is not UTF-8 text") from None
