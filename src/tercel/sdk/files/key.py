"""What a key of the table in `keys` is, and how values that many keys have are read."""

from collections.abc import Callable
from typing import Any, NamedTuple

from tercel.core.commands import parse_size, parse_time
from tercel.core.errors import UsageError
from tercel.sdk.files.kinds import Kind, Text


class Key(NamedTuple):
    name: str
    kind: Kind
    help: str
    field: str = ""
    """Of Submission. Empty: several keys make a field together (see drafts)."""
    read: Callable[[Any], Any] = lambda value: value
    """From a value of the kind to the field's. Raises UsageError."""
    flags: tuple[str, ...] = ()
    """As options: the words; none: it is not an option."""
    metavar: str = ""
    from_text: Callable[[str], Any] = lambda text: text
    """From an option's text to a value of the kind. Raises UsageError."""
    default: str = ""
    """For people."""
    repeatable: bool = False
    """As an option it may be given several times: values are lists or tables, and are put together."""
    is_file: bool = False
    """It names a file here: shells complete it."""


def size_of(name: str) -> Callable[[str], int]:
    return lambda text: parse_size(text, name)


def time_of(name: str) -> Callable[[str], float]:
    return lambda text: parse_time(text, name)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a whole number") from None


SIZE = Text(r"\s*\d+(\.\d+)?\s*[KMGTPkmgtp]?([iI]?[bB])?\s*", lambda text: parse_size(text, ""))
TIME = Text(
    r"\s*(\d+|(\d+(\.\d+)?[smhdSMHD])+|(\d{1,6}-)?\d{1,9}:\d{1,2}(:\d{1,2})?)\s*",
    lambda text: parse_time(text, ""),
)
