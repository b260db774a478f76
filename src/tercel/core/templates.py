"""Commands with holes: `svm -C {C} -out '{name}.txt'`, and what stands in them for one task.

A hole is `{name}`; `{{` and `}}` are braces; `{name:raw}` is filled with the value as it is. In a word of an argv every
hole is filled so. In a line for the shell, a value is quoted as its place asks, so that it stays one piece of text
whatever is in it:

    outside quotes   {x}      'it'"'"'s'     plain where the shell sees nothing in it: 0.25
    in double ones   "{x}"    "5 \\$"
    in single ones   '{x}'    'it'\\''s'

Where no quoting is right in every shell (comments, here-documents, command substitution, behind a backslash) a hole is
refused rather than filled wrongly.
"""

import re
from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import NamedTuple

from tercel.core.errors import UsageError
from tercel.core.shell import Refused, Shell, Within

TASK = "task"
"""The hole that every template may have: the task's number."""
RAW = "raw"

_NAME = re.compile(r"[\w.\-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+:./\-]+")
"""Means itself outside quotes. (`,` and `=` have a meaning in some places.)"""
_RESERVED = frozenset(
    "if then else elif fi for while until do done case esac in function select time coproc".split()
)
_IN_DOUBLE = re.compile(r'([\\"$`])')
_BRACKETS = re.compile(r"\[(\d+)\]")
_APART = frozenset(" \t\n;|&()<>")
"""Ends a word outside quotes."""


class Place(Enum):
    AS_IS = auto()
    ALONE = auto()
    """A word of its own, outside quotes: plain, unless it is one that the shell takes for its grammar."""
    WITHIN = auto()
    """A part of a word that cannot be such a one, as in `--kernel={k}`."""
    QUOTED = auto()
    """Outside quotes, where even a plain value could have a meaning, as in `{n}>file`."""
    DOUBLE = auto()
    SINGLE = auto()


class Hole(NamedTuple):
    name: str
    place: Place
    at: int
    """Which character of the text it begins at, counted from 0."""


class Template:
    """A text with holes."""

    __slots__ = ("_field", "_parts", "_text")

    def __init__(self, text: str, parts: tuple[str | Hole, ...], field: str) -> None:
        self._text = text
        self._parts = parts
        self._field = field

    @property
    def holes(self) -> list[Hole]:
        return [part for part in self._parts if isinstance(part, Hole)]

    @property
    def literal(self) -> str:
        """All but the holes."""
        return "".join(part for part in self._parts if isinstance(part, str))

    def check_names(self, known: Collection[str], where: str) -> None:
        """Raises UsageError if there is a hole for which `known` has no value."""
        for hole in self.holes:
            if hole.name not in known and hole.name != TASK:
                what = f"nothing is called {hole.name!r} in {where} ({_listed(known)})"
                raise _wrong(self._text, hole.at, f"{what}; write {{{{ and }}}} for braces", self._field)

    def filled(self, values: Mapping[str, str]) -> str:
        """Raises KeyError for a name without a value."""
        return "".join(
            part if isinstance(part, str) else quoted(values[part.name], part.place) for part in self._parts
        )


def word_template(text: str, field: str = "argv") -> Template:
    """One argument of a program that is started without a shell."""
    parts = [
        part if isinstance(part, str) else Hole(part.name, Place.AS_IS, part.at)
        for part in _split(text, field)
    ]
    return Template(text, tuple(parts), field)


def line_template(text: str, field: str = "line") -> Template:
    """A command line for /bin/sh."""
    shell = Shell()
    parts: list[str | Hole] = []
    split = _split(text, field)
    for index, part in enumerate(split):
        if isinstance(part, str):
            shell.read(part)
            parts.append(part)
            continue
        place = Place.AS_IS
        if not part.raw:
            try:
                within = shell.within()
            except Refused as refused:
                hint = f"{refused}; use {{{part.name}:{RAW}}}, or the variable TERCEL_POINT, and mind the quoting"
                raise _wrong(text, part.at, hint, field) from None
            place = _place(within, _last(split, index), _next(split, index))
        shell.skip_hole()
        parts.append(Hole(part.name, place, part.at))
    return Template(text, tuple(parts), field)


def quoted(value: str, place: Place) -> str:
    match place:
        case Place.AS_IS:
            return value
        case Place.DOUBLE:
            return _IN_DOUBLE.sub(r"\\\1", value)
        case Place.SINGLE:
            return value.replace("'", "'\\''")
        case Place.ALONE if _PLAIN.fullmatch(value) and value not in _RESERVED:
            return value
        case Place.WITHIN if _PLAIN.fullmatch(value):
            return value
    return "'" + value.replace("'", "'\"'\"'") + "'"


def from_brackets(text: str) -> str:
    """The Beanstalks form: `[1]` is a hole, and braces are braces."""
    return _BRACKETS.sub(r"{\1}", text.replace("{", "{{").replace("}", "}}"))


# -- reading ----------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    name: str
    raw: bool
    at: int


def _split(text: str, field: str) -> list[str | _Found]:
    """Literal text (braces undoubled, never two pieces in a row) and holes."""
    parts: list[str | _Found] = []
    literal = ""
    at = 0
    while at < len(text):
        char = text[at]
        if char not in "{}":
            literal += char
            at += 1
        elif text.startswith(char * 2, at):
            literal += char
            at += 2
        elif char == "}":
            raise _wrong(text, at, "a } without its {; write }} for a brace", field)
        else:
            if literal:
                parts.append(literal)
            literal = ""
            end = text.find("}", at)
            if end < 0:
                raise _wrong(text, at, "an unclosed {; write {{ for a brace", field)
            parts.append(_found(text, at, text[at + 1 : end], field))
            at = end + 1
    return [*parts, literal] if literal else parts


def _found(text: str, at: int, inside: str, field: str) -> _Found:
    name, colon, how = inside.partition(":")
    if not name:
        raise _wrong(text, at, "a hole without a name; write {{ and }} for braces", field)
    if not _NAME.fullmatch(name):
        raise _wrong(text, at, f"{_short(inside)} is not a name; write {{{{ and }}}} for braces", field)
    if colon and how != RAW:
        raise _wrong(text, at, f"after the name there may be :{RAW}, not :{_short(how)}", field)
    return _Found(name, bool(colon), at)


def _last(parts: list[str | _Found], index: int) -> str | None:
    """The character before a hole: "" at the beginning, None if another hole is there."""
    before = parts[index - 1] if index else ""
    return before[-1:] if isinstance(before, str) else None


def _next(parts: list[str | _Found], index: int) -> str | None:
    after = parts[index + 1] if index + 1 < len(parts) else ""
    return after[:1] if isinstance(after, str) else None


def _place(within: Within, before: str | None, after: str | None) -> Place:
    if within is not Within.BARE:
        return Place.DOUBLE if within is Within.DOUBLE else Place.SINGLE
    if after in {"<", ">", "=", "(", "}"} or before in {"~", "{"}:
        return Place.QUOTED  # 2>file, NAME=value, f() and ~user are grammar; so is {1..3} to some shells
    starts = before == "" or before in _APART
    ends = after == "" or after in _APART
    if starts and ends:
        return Place.ALONE
    spoilt = any(side and side not in _APART and not side.isalpha() for side in (before, after))
    return Place.WITHIN if spoilt else Place.QUOTED


def _wrong(text: str, at: int, what: str, field: str) -> UsageError:
    beginning = "" if at <= 20 else "..."
    near = f"{beginning}{text[max(0, at - 20) : at + 20]}"
    return UsageError(f"template: {what} (at character {at + 1}, near {near!r})", field)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:10]
    return (
        f"there is {', '.join(shown)}{', ...' if len(names) > len(shown) else ''}"
        if shown
        else "it has no names"
    )
