"""Files of JSON objects, one per task: a line each, or the elements of one array."""

import json
import re
from pathlib import Path

from tercel.core.errors import UsageError
from tercel.sdk.files.lines import Lines, read_source

_BLANK = re.compile(r"\s*")


def read_items(source: str, base: Path) -> Lines:
    """Of a file, or of stdin for '-'. Raises UsageError."""
    name, text = read_source(source, base)
    if text.lstrip().startswith("["):
        found = _of_array(text, name)
    else:
        lines = enumerate(text.split("\n"), start=1)
        found = [(line.strip(), number) for number, line in lines if line.strip()]
    if not found:
        raise UsageError(f"{name} has no items")
    return Lines([item for item, _ in found], [number for _, number in found], 0, name)


def _of_array(text: str, name: str) -> list[tuple[str, int]]:
    """(element, its line). Each as it is written, so that its numbers stay as they are."""
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
            raise UsageError(f"{name}:{line} is not valid JSON: {error}") from None
        found.append((text[at:end], line))
        at = _skip(text, end)
        if not text.startswith(",", at):
            break
        at += 1
    if not text.startswith("]", at) or _skip(text, at + 1) != len(text):
        line += text.count("\n", counted, at)
        raise UsageError(f"{name}:{line}: here , or the array's ] and the end are due")
    return found


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
