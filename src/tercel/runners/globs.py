"""Patterns of paths, part by part: `hist_*.root`, `run?/[a-c]*.txt`, `logs/**/*.log`, or just a name.

As shells have it: `*` and `?` stay within a part, `**` stands for any number of directories (as the last part: for all
files below), and a name that begins with a dot is only met by a part that begins with one.
"""

import re
from fnmatch import translate
from functools import lru_cache

ANY_DEPTH = "**"
_WILD = frozenset("*?[")


class Part:
    """One part of a pattern."""

    __slots__ = ("_match", "any_depth", "is_plain", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.any_depth = text == ANY_DEPTH
        self.is_plain = _WILD.isdisjoint(text)
        # Most parts are plain, and of those there may be thousands.
        self._match = None if self.is_plain else re.compile(translate(text)).match

    def matches(self, name: str) -> bool:
        if self._match is None:
            return name == self.text
        if name.startswith(".") and not self.text.startswith("."):
            return False
        return self.any_depth or self._match(name) is not None


@lru_cache(maxsize=64)
def parts_of(pattern: str) -> tuple[Part, ...] | None:
    """None: it is no path below a directory."""
    if pattern.startswith("/") or any(
        character == "\0" or "\ud800" <= character <= "\udfff" for character in pattern
    ):
        return None
    texts = [text for text in pattern.split("/") if text not in ("", ".")]
    if not texts or ".." in texts:
        return None
    return tuple(map(Part, texts))
