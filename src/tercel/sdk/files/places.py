"""Where things stand in a TOML file: which line each key and each member of a list is on.

tomllib tells values and not places. This walks over the text of a document that tomllib has accepted, so it need not
find mistakes; it only must not be confused by what strings, comments and lists of several lines contain. It is done
when a place is first asked for, which is when something is wrong.
"""

import re
import tomllib
from bisect import bisect_right

from tercel.sdk.files.kinds import Path

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'  # up to two quotes may stand before the closing three
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


class Places:
    """Lines by path, counted from 1."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: dict[Path, int] | None = None

    def line(self, path: Path) -> int:
        """Of a key or a list's member; of what surrounds it, if it has no place of its own."""
        if self._lines is None:
            self._lines = _Scanner(self._text).scan()
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        """How many tables each array of tables has so far."""

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            table = self._header() if self._text[self._at] == "[" else self._pair(table)
            self._skip(_BLANK)
        return self._lines

    def _header(self) -> Path:
        """`[a.b]` or `[[a.b]]` -> the path of the table that follows."""
        many = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if many else 1
        keys = self._keys()
        self._at += 2 if many else 1
        path: Path = ()
        for key in keys[:-1]:
            path = self._newest((*path, key))
            self._note(path, start)
        path = (*path, keys[-1])
        if many:
            self._note(path, start)
            count = self._counts.get(path, 0)
            self._counts[path] = count + 1
            path = (*path, count)
        self._note(path, start)
        return path

    def _newest(self, path: Path) -> Path:
        """An array of tables, named in a header, means its last table."""
        return (*path, self._counts[path] - 1) if path in self._counts else path

    def _pair(self, table: Path) -> Path:
        """`a.b = value`; the table stays the same."""
        start = self._at
        path = table
        for key in self._keys():
            path = (*path, key)
            self._note(path, start)
        self._at += 1  # =
        self._skip(_SPACE)
        self._value(path)
        return table

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip(_SPACE)
            if match := _BARE.match(self._text, self._at):
                keys.append(match[0])
            else:
                match = _STRING.match(self._text, self._at)
                assert match is not None, "tomllib accepted this document"
                keys.append(tomllib.loads(f"k = {match[0]}")["k"])
            self._at = match.end()
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        match self._text[self._at]:
            case "[":
                self._list(path)
            case "{":
                self._inline_table(path)
            case "'" | '"':
                self._skip(_STRING)
            case _:
                self._skip(_SCALAR)

    def _list(self, path: Path) -> None:
        self._at += 1
        count = 0
        self._skip(_BLANK)
        while self._text[self._at] != "]":
            member = (*path, count)
            self._note(member, self._at)
            self._value(member)
            count += 1
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != "}":
            self._pair(path)
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        assert match is not None, "tomllib accepted this document"
        self._at = match.end()

    def _note(self, path: Path, at: int) -> None:
        """The first mention counts."""
        if path not in self._lines:
            self._lines[path] = bisect_right(self._starts, at)
