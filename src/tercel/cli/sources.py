"""Files that say what is run: lines, one JSON object per task, a sweep's values."""

import codecs
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tercel.core.errors import UsageError

_PLACE = re.compile(r"(?:lines|items)\[(\d+)\]")
_BLANK = re.compile(r"\s*")


def called(source: str) -> str:
    return "stdin" if source == "-" else source


def read_text(source: str, field: str) -> str:
    """Of a file, or of stdin if it is called '-'. Raises UsageError."""
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read {source}: {why}", field) from None
    data = data.removeprefix(codecs.BOM_UTF8)  # which some editors write, and no shell understands
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{source}:{number} is not UTF-8 text", field) from None


def read_lines(source: str, field: str = "each_line") -> tuple[list[str], list[int], int]:
    """(lines, the number of each one in the file, how many were skipped as blank or comments)."""
    text = read_text(source, field)
    every = text.removesuffix("\n").split("\n") if text else []
    lines: list[str] = []
    numbers: list[int] = []
    for number, raw in enumerate(every, start=1):
        line = raw.strip()
        if line and not line.startswith("#"):
            lines.append(line)
            numbers.append(number)
    if not lines:
        raise UsageError(f"{called(source)} has no lines to run", field)
    return lines, numbers, len(every) - len(lines)


def read_items(source: str) -> tuple[list[str], list[int]]:
    """(JSON texts, the number of each one's line): of a file of lines, or of one array."""
    text = read_text(source, "from_json")
    if text.lstrip().startswith("["):
        found = _of_array(text, source)
    else:
        lines = enumerate(text.split("\n"), start=1)
        found = [(line.strip(), number) for number, line in lines if line.strip()]
    if not found:
        raise UsageError(f"{called(source)} has no items", "from_json")
    return [item for item, _ in found], [number for _, number in found]


def _of_array(text: str, source: str) -> list[tuple[str, int]]:
    """Each element as it is written, so that its numbers stay as they are."""
    found: list[tuple[str, int]] = []
    at, counted, line = text.index("[") + 1, 0, 1
    decode = json.JSONDecoder().raw_decode
    while True:
        at = _skip(text, at)
        line, counted = line + text.count("\n", counted, at), at
        if text.startswith("]", at) and not found:
            break
        try:
            _, end = decode(text, at)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{called(source)}:{line} is not valid JSON: {error}", "from_json") from None
        found.append((text[at:end], line))
        at = _skip(text, end)
        if not text.startswith(",", at):
            break
        at += 1
    if not text.startswith("]", at) or _skip(text, at + 1) != len(text):
        line += text.count("\n", counted, at)
        raise UsageError(f"{called(source)}:{line}: here , or the array's ] and the end are due", "from_json")
    return found


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def named_by_line(error: UsageError, source: str, numbers: Sequence[int], field: str) -> UsageError:
    """The same complaint with the line's number in the user's file instead of the task's."""
    match = _PLACE.search(str(error))
    if match is None or not numbers:
        return error
    where = f"{called(source)}:{numbers[int(match[1])]}"
    return UsageError(str(error).replace(match[0], where, 1), field)
