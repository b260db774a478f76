"""The words of an expression: names, numbers, strings, operators, each with its place."""

import math
import re
from typing import NamedTuple

from tercel.core.cel.mistakes import Mistake

MAX_TEXT = 4096
"""Characters of an expression."""
MAX_INT = 2**63 - 1
MIN_INT = -(2**63)

UNITS = {
    unit: 1024**power
    for power, units in enumerate(["KB KiB", "MB MiB", "GB GiB", "TB TiB"], start=1)
    for unit in units.split()
}
"""All binary, as in `--mem 8GB`."""
_MEANT = {written.upper(): unit for unit in UNITS for written in (unit, unit.removesuffix("B"))}

_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t\n\f\r]+|//[^\n]*)+)
  | (?P<string>[bBrR]{0,2}(?:\"{3}|'{3}|["']))
  | (?P<number>0[xX][0-9A-Za-z]*|(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<op>\|\||&&|[=!<>]=|[-+*/%!<>?:.,()\[\]])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(
    r"""\\(?:(?P<plain>[abfnrtv\\?"'`])|[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"""
    r"""|U(?P<U>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2}))"""
)
_PLAIN = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_INSTEAD = {
    "=": "compare with ==",
    "&": "write && for and",
    "|": "write || for or",
    "{": "maps cannot be written out",
}


class Token(NamedTuple):
    kind: str
    """`name`, `int`, `double`, `string`, `end`; an operator is its own kind."""
    value: str | int | float
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """Raises Mistake."""
    if not text.strip():
        raise Mistake("the expression is empty", 0, 0)
    if len(text) > MAX_TEXT:
        message = f"the expression is {len(text):,} characters long; at most {MAX_TEXT:,}"
        raise Mistake(message, MAX_TEXT, MAX_TEXT)
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unexpected(text, at)
        kind = match.lastgroup
        token = None
        if kind == "string":
            token = _string(text, match)
        elif kind == "number":
            token = _number(text, match)
        elif kind == "name":
            token = Token("name", match[0], at, match.end())
        elif kind == "op":
            token = Token(match[0], match[0], at, match.end())
        if token is not None:
            found.append(token)
        at = token.end if token is not None else match.end()
    return [*found, Token("end", "", len(text), len(text))]


def unit_meant(word: str) -> str:
    """`GB`, if it was written `G` or `gb`; empty if it is no unit. A small m may be minutes."""
    return _MEANT.get(word.upper(), "") if word != "m" else ""


def _unexpected(text: str, at: int) -> Mistake:
    letter = text[at]
    shown = letter if letter.isprintable() else f"U+{ord(letter):04X}"
    hint = _INSTEAD.get(letter)
    return Mistake(f"unexpected {shown}" + (f": {hint}" if hint else ""), at, at + 1)


def _number(text: str, match: re.Match[str]) -> Token:
    start, end = match.span()
    tail = re.compile(r"[A-Za-z0-9_]+").match(text, end)
    written = match[0]
    if written[:2] in ("0x", "0X"):
        if re.fullmatch("0[xX][0-9a-fA-F]+[uU]", written):
            raise _unsigned(start, end)
        if not re.fullmatch("0[xX][0-9a-fA-F]+", written) or tail:
            raise Mistake(f"{written[:40]} is not a hexadecimal number", start, end)
        return _int(int(written, 16), start, end)
    if tail:
        if unit := unit_meant(tail[0]):
            raise Mistake(f"{written}{tail[0]} is not a number: write {written}*{unit}", start, tail.end())
        if tail[0] in ("u", "U") and written.isdigit():
            raise _unsigned(start, tail.end())
        raise Mistake(f"{(written + tail[0])[:40]} is neither a number nor a name", start, tail.end())
    if written.isdigit():
        return _int(int(written), start, end)
    value = float(written)
    if math.isinf(value):
        raise Mistake("the number is too large: at most about 1.8e308", start, end)
    return Token("double", value, start, end)


def _unsigned(start: int, end: int) -> Mistake:
    return Mistake("unsigned numbers are not needed here: leave out the u", start, end)


def _int(value: int, start: int, end: int) -> Token:
    """One more than the largest is let through: `-9223372036854775808` is a minus and that."""
    if value > MAX_INT + 1:
        raise Mistake(f"the number is too large: whole numbers go up to {MAX_INT}", start, end)
    return Token("int", value, start, end)


def _string(text: str, match: re.Match[str]) -> Token:
    start, at = match.span()
    prefix = match[0].rstrip("\"'").lower()
    quote = match[0][len(prefix) :]
    if "b" in prefix or len(prefix) > 1:
        raise Mistake("there are no bytes here, only text: leave out the b", start, at)
    parts: list[str] = []
    while True:
        if at >= len(text) or (len(quote) == 1 and text[at] in "\r\n"):
            raise Mistake(f"the text that begins here has no closing {quote}", start, start + len(match[0]))
        if text.startswith(quote, at):
            return Token("string", "".join(parts), start, at + len(quote))
        if text[at] == "\\" and not prefix:
            letter, at = _escaped(text, at)
        else:
            letter, at = text[at], at + 1
            if "\ud800" <= letter <= "\udfff":
                raise Mistake("this character is not valid Unicode", at - 1, at)
        parts.append(letter)


def _escaped(text: str, at: int) -> tuple[str, int]:
    match = _ESCAPE.match(text, at)
    if match is None:
        raise Mistake("unknown escape: write \\\\ for a backslash, or r'...' for text as it is", at, at + 2)
    if match["plain"]:
        return _PLAIN.get(match["plain"], match["plain"]), match.end()
    digits = match["x"] or match["u"] or match["U"]
    code = int(digits, 16) if digits else int(match["octal"], 8)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise Mistake("there is no such character in Unicode", at, match.end())
    return chr(code), match.end()
