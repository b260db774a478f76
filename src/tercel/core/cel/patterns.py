"""Patterns of `matches()`: what they may say. How they are matched: automaton.py.

    abc  .  [a-z_]  [^0-9]  \\d \\w \\s \\D \\W \\S  \\. \\n \\x41  ^ $ \\b \\B  ab|cd  (ab)  (?:ab)  a* a+ a? a{2} a{2,} a{2,5}  (?i)...

As in RE2, which CEL asks for: nothing that would need to go back (no \\1, no look-around), so that the time for a match grows
with the length of the text alone. Python's own `re` can take for ever on text of thirty characters, and the manager would wait.
"""

import re
from typing import TypeAlias

import msgspec

MAX_GROUPS = 20
"""Parentheses in one another."""
MAX_REPEAT = 1000

Range: TypeAlias = tuple[str, str]


class Letter(msgspec.Struct, frozen=True):
    """One character, of those in the ranges (or of all others)."""

    ranges: tuple[Range, ...]
    others: bool = False

    def fits(self, letter: str) -> bool:
        return any(low <= letter <= high for low, high in self.ranges) != self.others


class Edge(msgspec.Struct, frozen=True):
    """`^`, `$`, `b` or `B`: between two characters."""

    kind: str


class Row(msgspec.Struct, frozen=True):
    """One after the other."""

    parts: "tuple[Shape, ...]"


class Either(msgspec.Struct, frozen=True):
    choices: "tuple[Shape, ...]"


class Repeat(msgspec.Struct, frozen=True):
    of: "Shape"
    least: int
    most: int | None


Shape: TypeAlias = "Letter | Edge | Row | Either | Repeat"

_DIGIT: tuple[Range, ...] = (("0", "9"),)
WORD: tuple[Range, ...] = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: tuple[Range, ...] = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES = {"d": _DIGIT, "w": WORD, "s": _SPACE}
_EDGES = {"A": "^", "z": "$", "b": "b", "B": "B"}
_PLAIN = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST = chr(0x10FFFF)
_TIMES = re.compile(r"\{([0-9]{1,4})(,([0-9]{0,4}))?\}", re.ASCII)
_HEX = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}", re.ASCII)
_SIMPLE = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def is_word(letter: str) -> bool:
    """As `\\w` and `\\b` have it."""
    return any(low <= letter <= high for low, high in WORD)


def read_pattern(text: str) -> Shape:
    """Raises ValueError."""
    reader = _Reader(text)
    shape = reader.either()
    if reader.at < len(text):
        raise ValueError("there is a ) too many")
    return shape


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.folded = self.took("(?i)")
        """Whether capitals do not matter."""
        self.groups = 0

    def peek(self, word: str) -> bool:
        return self.text.startswith(word, self.at)

    def took(self, word: str) -> bool:
        found = self.peek(word)
        self.at += len(word) * found
        return found

    def letter(self) -> str:
        if self.at >= len(self.text):
            raise ValueError("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def either(self) -> Shape:
        choices = [self.row()]
        while self.took("|"):
            choices.append(self.row())
        return choices[0] if len(choices) == 1 else Either(tuple(choices))

    def row(self) -> Shape:
        parts: list[Shape] = []
        while self.at < len(self.text) and not self.peek("|") and not self.peek(")"):
            parts.append(self.repeated(self.atom()))
        return Row(tuple(parts))

    def repeated(self, shape: Shape) -> Shape:
        times = self.times()
        if times is None:
            return shape
        self.took("?")  # as few as possible: which characters it takes does not matter here
        if self.times() is not None:
            raise ValueError("two repetitions in a row")
        return Repeat(shape, *times)

    def times(self) -> tuple[int, int | None] | None:
        if self.at < len(self.text) and (simple := _SIMPLE.get(self.text[self.at])):
            self.at += 1
            return simple
        match = _TIMES.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        least = int(match[1])
        most = least if match[2] is None else int(match[3]) if match[3] else None
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise ValueError(
                f"{match[0]} is not a number of times: up to {MAX_REPEAT}, the smaller one first"
            )
        return least, most

    def atom(self) -> Shape:
        letter = self.letter()
        match letter:
            case "(":
                return self.group()
            case "[":
                return self.letters()
            case ".":
                return Letter((("\n", "\n"),), others=True)
            case "^" | "$":
                return Edge(letter)
            case "\\":
                return self.escaped()
            case "*" | "+" | "?":
                raise ValueError(f"nothing to repeat before {letter}")
        return self.one_of(((letter, letter),))

    def one_of(self, ranges: tuple[Range, ...], others: bool = False) -> Letter:
        return Letter((*ranges, *_other_case(ranges)) if self.folded else ranges, others)

    def group(self) -> Shape:
        self.groups += 1
        if self.groups > MAX_GROUPS:
            raise ValueError(f"more than {MAX_GROUPS} parentheses in one another")
        if not self.took("?:") and self.peek("?"):
            raise ValueError("after ( only ?: may follow, and (?i) only at the beginning")
        shape = self.either()
        if not self.took(")"):
            raise ValueError("a ) is missing")
        self.groups -= 1
        return shape

    def escaped(self) -> Shape:
        if self.at < len(self.text) and (edge := _EDGES.get(self.text[self.at])):
            self.at += 1
            return Edge(edge)
        return self.one_of(self.class_or_letter())

    def class_or_letter(self) -> tuple[Range, ...]:
        """What a backslash stands before."""
        if match := _HEX.match(self.text, self.at):
            self.at = match.end()
            code = int(match[1] or match[2], 16)
            if code > 0x10FFFF:
                raise ValueError(f"there is no character \\{match[0]}")
            return ((chr(code), chr(code)),)
        letter = self.letter()
        if letter.lower() in _CLASSES:
            ranges = _CLASSES[letter.lower()]
            return ranges if letter.islower() else _others(ranges)
        if letter.isalnum() and letter not in _PLAIN:
            raise ValueError(f"\\{letter} has no meaning here")
        letter = _PLAIN.get(letter, letter)
        return ((letter, letter),)

    def letters(self) -> Letter:
        """`[...]`"""
        others = self.took("^")
        ranges: list[Range] = []
        while not ranges or not self.took("]"):
            low = self.of_letters()
            if self.peek("-") and not self.peek("-]"):
                self.at += 1
                high = self.of_letters()
                single = all(len(side) == 1 and side[0][0] == side[0][1] for side in (low, high))
                if not single or low[0][0] > high[0][0]:
                    raise ValueError("a range in [] goes from a character to a later one")
                low = ((low[0][0], high[0][0]),)
            ranges += low
        return self.one_of(tuple(ranges), others)

    def of_letters(self) -> tuple[Range, ...]:
        if self.peek("[:"):
            raise ValueError("[: :] has no meaning here")
        letter = self.letter()
        return self.class_or_letter() if letter == "\\" else ((letter, letter),)


def _others(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """All other characters; the ranges are in order."""
    found: list[Range] = []
    after = "\0"
    for low, high in ranges:
        if low > after:
            found.append((after, chr(ord(low) - 1)))
        after = chr(ord(high) + 1)
    return (*found, (after, _LAST))


def _other_case(ranges: tuple[Range, ...]) -> list[Range]:
    """Capitals for small letters and the other way round; in ranges, for the letters from a to z."""
    found: list[Range] = []
    for low, high in ranges:
        if low == high:
            found += [(case, case) for case in (low.lower(), low.upper()) if len(case) == 1]
            continue
        for first, last in (("a", "z"), ("A", "Z")):
            begin, end = max(low, first), min(high, last)
            if begin <= end:
                found.append((begin.swapcase(), end.swapcase()))
    return found
