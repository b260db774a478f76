"""What people write to say which values: `C=0.001,0.01,1`, `g=0:1:0.25`, `seed=@seeds.txt`; and Beanstalks' grid files.

    C=a,b,c             these; a backslash before , : * ? @ or \\ makes it a character like any other
    g=0:1:0.25          from 0 to 1 in steps of 0.25, both ends included; n=1:1000 goes by 1 (or, downwards, by -1)
    C=0.001:100:x10     each 10 times the one before
    C=0.001:100:log6    six values, log-spaced;  x=0:1:lin5: five, evenly spaced
    seed=@seeds.txt     one per line of the file
    f=data/*.csv        files with such names, in natural order: run2 before run10

Parts of these between commas may be mixed. Files are read by the caller: this module is pure.
"""

import re
from collections.abc import Callable
from decimal import Context, Decimal
from typing import NamedTuple

from tercel.core.errors import UsageError
from tercel.core.grids import (
    MAX_COUNT,
    MAX_VALUES_BYTES,
    VALUE_BYTES,
    Axis,
    Grid,
    Rule,
    Span,
    check_values_size,
    plain_number,
)
from tercel.core.templates import from_brackets, line_template

MIXED_MOST = MAX_VALUES_BYTES // VALUE_BYTES
"""Values of a list, in which rules are written out: more cannot be small enough."""

_WORKING = Context(prec=60)
_MARK = "\0"
"""Stands before a character that was escaped, while a value is read."""
_NUMBER = re.compile(r"[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,2})?")
_NO_NUMBERS = frozenset({"nan", "inf", "infinity"})
_STEPS = re.compile(r"(x|log|lin)(.*)", re.DOTALL)
_GRID_LINE = re.compile(r"\[(\d+)\](.*)", re.DOTALL)


class Outside(NamedTuple):
    """What values may be taken from."""

    lines: Callable[[str], list[str]]
    """The values in a file. Raises UsageError."""
    names: Callable[[str], list[str]]
    """The files that fit a pattern."""


def parse_axis(text: str, outside: Outside) -> Axis:
    """`NAME=VALUES`."""
    name, equals, values = text.partition("=")
    if not equals:
        raise UsageError(f"{_cut(text)} is not NAME=VALUES, as in C=0.1,1,10", "grid")
    if not name:
        raise UsageError(f"{_cut(text)}: there is no name before =", "grid")
    if not values:
        raise UsageError(f"{name} has no values: write {name}=1,2,3", "grid")
    if "\0" in values:
        raise UsageError(f"a value of {name} contains a NUL byte", "grid")
    parts = _parts(name, values)
    if len(parts) == 1 and ":" in _unmarked(parts[0]) and (span := _span(name, parts[0])) is not None:
        return Axis(name=name, span=span)
    found: list[str] = []
    for part in parts:
        found += _values(name, part, outside)
        if len(found) > MIXED_MOST:
            check_values_size(found)  # before a list of ranges fills the memory
    return Axis(name=name, values=tuple(found))


def _parts(name: str, text: str) -> list[str]:
    """Between commas; escaped characters have a mark before them."""
    marked = re.sub(r"\\([,:*?@\\])", lambda match: _MARK + match[1], text)
    parts = re.split(rf"(?<!{_MARK}),", marked)
    if not all(parts):
        raise UsageError(f"{name}={_cut(text)} has an empty value between its commas", "grid")
    return parts


def _unmarked(part: str) -> str:
    """Without the characters that were escaped."""
    return re.sub(f"{_MARK}.", "", part, flags=re.DOTALL)


def _values(name: str, part: str, outside: Outside) -> list[str]:
    plain = part.replace(_MARK, "")
    special = _unmarked(part)
    if part.startswith("@"):
        values = outside.lines(plain[1:])
        if not values:
            raise UsageError(f"{name}: {plain[1:]} has no values", "grid")
        return values
    if "*" in special or "?" in special:
        # What was escaped is put into brackets, which is how a pattern says that a character means itself.
        pattern = re.sub(f"{_MARK}([*?])", r"[\1]", part).replace(_MARK, "")
        names = sorted(outside.names(pattern), key=natural)
        if not names:
            raise UsageError(f"{name}: no file fits {_cut(plain)}", "grid")
        return names
    span = _span(name, part) if ":" in special else None
    if span is None:
        return [plain]
    if span.count > MIXED_MOST:
        raise UsageError(f"{name}: a range of {span.count:,} values must stand alone, not in a list", "grid")
    return [span.value(index) for index in range(span.count)]


def natural(name: str) -> list[tuple[int, int, str]]:
    """To sort by: numbers in names count as numbers."""
    pieces = re.split(r"([0-9]+)", name)
    return [(0, int(piece), piece) if at % 2 else (1, 0, piece) for at, piece in enumerate(pieces) if piece]


# -- ranges -----------------------------------------------------------------------------------------------


def _span(name: str, part: str) -> Span | None:
    """A range; None if it does not begin as one (`a:b` and `http://x` are values like any other)."""
    where = f"{name}={_cut(part.replace(_MARK, ''))}"
    pieces = part.split(":")
    if pieces[0].lower().lstrip("+-") in _NO_NUMBERS:
        raise UsageError(f"{where}: a range cannot begin at {pieces[0]}", "grid")
    if not _is_number(pieces[0]):
        return None
    if len(pieces) > 3 or not _is_number(pieces[1]):
        hint = "FROM:TO, FROM:TO:STEP, FROM:TO:x10, FROM:TO:log6 or FROM:TO:lin5; a colon in a value is written \\:"
        raise UsageError(f"{where} is not a range: {hint}", "grid")
    start, end = Decimal(pieces[0]), Decimal(pieces[1])
    if len(pieces) == 2:
        return _stepped(where, start, end, Decimal(1 if end >= start else -1))
    steps = _STEPS.fullmatch(pieces[2])
    if steps is None:
        if not _is_number(pieces[2]):
            raise UsageError(
                f"{where}: the step {_cut(pieces[2])} is not a number, x10, log6 or lin5", "grid"
            )
        return _stepped(where, start, end, Decimal(pieces[2]))
    if steps[1] == "x":
        if not _is_number(steps[2]):
            raise UsageError(f"{where}: after x comes what to multiply by, as in x10", "grid")
        return _multiplied(where, start, end, Decimal(steps[2]))
    return _spaced(where, Rule.LOG if steps[1] == "log" else Rule.LINEAR, start, end, steps[2])


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _stepped(where: str, start: Decimal, end: Decimal, step: Decimal) -> Span:
    if not step:
        raise UsageError(f"{where}: a step of 0 leads nowhere", "grid")
    if (end - start) * step < 0:
        raise UsageError(f"{where}: a step of {plain_number(step)} does not lead from start to end", "grid")
    steps = _WORKING.divide(_WORKING.subtract(end, start), step)
    if steps >= MAX_COUNT:
        raise UsageError(f"{where} has more than {MAX_COUNT:,} values", "grid")
    return _ruled(Rule.PLUS, start, step, int(steps) + 1)


def _multiplied(where: str, start: Decimal, end: Decimal, factor: Decimal) -> Span:
    if factor <= 0 or factor == 1:
        raise UsageError(f"{where}: multiply by more than 0, and not by 1", "grid")
    if start * end <= 0:
        raise UsageError(f"{where}: multiplying needs two numbers of the same sign, neither 0", "grid")
    if start != end and (abs(end) > abs(start)) != (factor > 1):
        raise UsageError(
            f"{where}: multiplying by {plain_number(factor)} does not lead from start to end", "grid"
        )
    estimate = _WORKING.divide(
        _WORKING.ln(_WORKING.divide(end, start)), _WORKING.ln(factor)
    )  # off by less than one part in 10^50, so right unless the end is met exactly
    if estimate >= MAX_COUNT:
        raise UsageError(f"{where} has more than {MAX_COUNT:,} values", "grid")
    nearest = int(estimate.to_integral_value(context=_WORKING))
    reached = _WORKING.multiply(abs(start), _WORKING.power(factor, nearest))
    beyond = reached > abs(end) if factor > 1 else reached < abs(end)
    return _ruled(Rule.TIMES, start, factor, nearest + (0 if beyond else 1))


def _spaced(where: str, rule: Rule, start: Decimal, end: Decimal, count: str) -> Span:
    if not re.fullmatch("[0-9]{1,18}", count) or int(count) < 1:
        raise UsageError(
            f"{where}: after {rule.value[:3]} comes how many values there are, as in log6", "grid"
        )
    if rule is Rule.LOG and start * end <= 0:
        raise UsageError(f"{where}: log steps need two numbers of the same sign, neither 0", "grid")
    if int(count) == 1 and start != end:
        raise UsageError(f"{where}: one value cannot be at both ends", "grid")
    return _ruled(rule, start, end, int(count))


def _ruled(rule: Rule, start: Decimal, by: Decimal, count: int) -> Span:
    return Span(rule=rule, start=plain_number(start), by=plain_number(by), count=count)


# -- Beanstalks' grid files -------------------------------------------------------------------------------


def parse_grid_file(text: str, source: str) -> tuple[str, Grid]:
    """A line with the command, in which `[1]` and `[2]` stand for values; then lines `[1] 0.001, 0.01`."""
    axes: list[Axis] = []
    lines = [(f"{source}:{number}", line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    lines = [(where, line) for where, line in lines if line and not line.startswith("#")]
    if not lines:
        raise UsageError(f"{source} has no command", "grid")
    begin, command = lines[0]
    if match := _GRID_LINE.fullmatch(command):
        raise UsageError(f"{begin}: the command comes first, then the values of [{match[1]}]", "grid")
    for where, line in lines[1:]:
        match = _GRID_LINE.fullmatch(line)
        if match is None:
            raise UsageError(
                f"{where}: {_cut(line)} does not say which values, as in [1] 0.001, 0.01", "grid"
            )
        axes.append(_listed(where, match[1], match[2], {axis.name for axis in axes}))
    if not axes:
        raise UsageError(f"{source} has no values: add lines like [1] 0.001, 0.01", "grid")
    grid = Grid(axes=tuple(axes))
    template = from_brackets(command)
    try:
        line_template(template).check_names(grid.names, "this file")
    except UsageError as error:
        raise UsageError(f"{begin}: {error}", "grid") from None
    return template, grid


def _listed(where: str, name: str, text: str, taken: set[str]) -> Axis:
    if name in taken:
        raise UsageError(f"{where}: [{name}] is given a second time", "grid")
    values = tuple(value for value in re.split(r"[,\s]+", text) if value)
    if not values:
        raise UsageError(f"{where}: [{name}] has no values", "grid")
    return Axis(name=name, values=values)


def _cut(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
