"""Where in a shell line one stands: outside quotes, in double ones, in single ones, or where no value can be put.

As much of POSIX' grammar as that takes. Of what goes beyond (a `case` inside `$(...)`, a here-document) only is known
that one can no longer tell: better to refuse a hole than to quote for the wrong place.
"""

from enum import Enum, auto


class Within(Enum):
    BARE = auto()
    DOUBLE = auto()
    SINGLE = auto()


class Refused(Exception):
    """No value can be put here; the message says why."""


_OPEN = {
    "$(": "inside $(...) the quoting is another one",
    "(": "inside $(...) the quoting is another one",
    "${": "inside ${...} the quoting is another one",
    "`": "inside `...` the quoting is another one",
    "$'": "inside $'...' shells differ",
    "#": "a comment cannot hold a value",
}
_ENDS_WORD = frozenset(" \t\n;|&()<>")


class Shell:
    """Reads a line piece by piece, from its beginning."""

    def __init__(self) -> None:
        self._open: list[str] = []
        """What has been opened and not closed, innermost last: ' " # ` $( ( ${ $'"""
        self._escaped = False
        """The next character is escaped."""
        self._before = ""
        """The last character, if it was outside quotes or in double ones and not escaped."""
        self._naming = False
        """The last characters are $ and a variable's name, which might go on."""
        self._word = ""
        """Of the word under way outside quotes: what has been read of it."""
        self._unsure = ""

    def within(self) -> Within:
        """Where a hole at this point stands. Raises Refused."""
        if self._unsure:
            raise Refused(self._unsure)
        for opened in reversed(self._open):
            if opened in _OPEN:
                raise Refused(_OPEN[opened])
        if self._escaped:
            raise Refused("a backslash before a value would change it")
        if self._before == "$":
            raise Refused("$ before a value would change it; for a variable of the shell, write ${{name}}")
        if self._naming:
            raise Refused("a value here would become part of the variable's name; write ${{name}}")
        if not self._open:
            return Within.BARE
        return Within.DOUBLE if self._open[-1] == '"' else Within.SINGLE

    def skip_hole(self) -> None:
        self._escaped = self._naming = False
        self._before = ""
        self._word += "_"

    def read(self, text: str) -> None:
        for char in text:
            self._read(char)

    def _read(self, char: str) -> None:
        inmost = self._open[-1] if self._open else ""
        before, self._before = self._before, ""
        naming, self._naming = self._naming, False
        if self._escaped:
            self._escaped = False
            self._word += "_"
        elif inmost == "'":
            if char == "'":
                self._open.pop()
        elif inmost == "#":
            if char == "\n":
                self._open.pop()
        elif char == "\\":
            self._escaped = True
            if inmost == "${":
                self._unsure = "after a backslash in ${...} shells differ"
        elif inmost in {"`", "$'"}:
            if char == inmost[-1]:
                self._open.pop()
        else:
            self._before = "" if before == char == "$" else char  # $$ is a variable of its own
            self._naming = (naming or before == "$") and (char == "_" or char.isalnum())
            if not self._expansion(char, before, inmost):
                if inmost == '"':
                    if char == '"':
                        self._open.pop()
                elif inmost == "${":
                    self._in_braces(char)
                else:
                    self._bare(char, before, inmost)

    def _expansion(self, char: str, before: str, inmost: str) -> bool:
        """What begins alike inside and outside double quotes."""
        if char == "`":
            self._open.append("`")
        elif before == "$" and char in "({":
            self._open.append("$" + char)
            self._word = ""
        elif before == "$" and char == "'" and inmost != '"':
            self._open.append("$'")
            self._unsure = "after $'...' shells differ"
        else:
            return False
        self._before = ""
        return True

    def _in_braces(self, char: str) -> None:
        if char == "}":
            self._open.pop()
            self._word += "_"
        elif char in "'\"":
            self._unsure = "after quotes in ${...} shells differ"

    def _bare(self, char: str, before: str, inmost: str) -> None:
        nested = inmost in {"$(", "("}
        if char in _ENDS_WORD:
            if self._word == "case" and nested:
                self._unsure = "after a case in $(...) its end cannot be told"
            self._word = ""
            if char == "<" and before == "<":
                self._unsure = "in or after a here-document (<<) the quoting is another one"
            elif char == "(" and nested:
                self._open.append("(")
            elif char == ")" and nested:
                self._open.pop()
                self._word = "_" if inmost == "$(" else ""
            return
        if char == "#" and not self._word:
            self._open.append("#")
            return
        if char in "'\"":
            self._open.append(char)
        self._word += char
