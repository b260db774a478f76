"""The points of a sweep: every combination of some values, or (zipped) the first of each, the second of each, ...

A grid is kept as its axes, and an axis of numbers as its rule: ten million points take no more room than ten, and
point n is made when it is needed. Numbers are decimal: 0:1:0.1 has 0.3 in it, not 0.30000000000000004.
"""

import re
from collections.abc import Iterable
from decimal import Context, Decimal
from enum import StrEnum
from math import prod
from typing import Annotated

import msgspec

from tercel.core.errors import UsageError
from tercel.core.templates import TASK

MAX_AXES = 100
MAX_VALUES_BYTES = 4 * 2**20
"""Of the values that a grid lists: they travel together, and are held in memory."""
VALUE_BYTES = 8
"""What each listed value counts beside its text."""
MAX_VALUE_BYTES = 64 * 1024
MAX_COUNT = 10**18
"""Of one axis: so that counts are numbers that one can read."""
MAX_EXPONENT = 10_000

_EXACT = Context(prec=60)
_ROUNDED = Context(prec=15)
_WORKING = Context(prec=30)
_AXIS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}|[0-9]{1,9}")
_NUMBER = r"-?[0-9]{1,60}(\.[0-9]{1,60})?(e-?[0-9]{1,3})?"

Number = Annotated[str, msgspec.Meta(pattern=f"^{_NUMBER}$")]
"""Decimal, as text."""


class Rule(StrEnum):
    """How an axis goes from one number to the next."""

    PLUS = "plus"
    """start, start + by, start + 2 by, ..."""
    TIMES = "times"
    """start, start x by, start x by x by, ..."""
    LINEAR = "linear"
    """From start to `by`, evenly."""
    LOG = "log"
    """From start to `by`, each the same multiple of the one before."""


class Span(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Numbers that follow a rule."""

    rule: Rule
    start: Number
    by: Number
    count: int

    def value(self, index: int) -> str:
        start, by = Decimal(self.start), Decimal(self.by)
        match self.rule:
            case Rule.PLUS:
                return plain_number(_EXACT.fma(by, index, start))
            case Rule.TIMES:
                return plain_number(_EXACT.multiply(start, _EXACT.power(by, index)))
        if index == 0:
            return plain_number(start)
        if index == self.count - 1:
            return plain_number(by)
        share = _WORKING.divide(Decimal(index), Decimal(self.count - 1))
        if self.rule is Rule.LINEAR:
            between = _WORKING.fma(_WORKING.subtract(by, start), share, start)
        else:
            between = _WORKING.multiply(start, _WORKING.power(_WORKING.divide(by, start), share))
        return plain_number(_ROUNDED.plus(between))


class Axis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One name and its values: listed, or given by a rule."""

    name: str
    values: tuple[str, ...] = ()
    span: Span | None = None

    @property
    def count(self) -> int:
        return self.span.count if self.span is not None else len(self.values)

    def value(self, index: int) -> str:
        return self.span.value(index) if self.span is not None else self.values[index]


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The points of a sweep, numbered from 0; of the last axis each has another value than the one before."""

    axes: tuple[Axis, ...]
    zipped: bool = False

    @property
    def names(self) -> list[str]:
        return [axis.name for axis in self.axes]

    @property
    def count(self) -> int:
        return self.axes[0].count if self.zipped else prod(axis.count for axis in self.axes)

    def point(self, number: int) -> dict[str, str]:
        if self.zipped:
            return {axis.name: axis.value(number) for axis in self.axes}
        indexes = []
        for axis in reversed(self.axes):
            number, index = divmod(number, axis.count)
            indexes.append(index)
        return {
            axis.name: axis.value(index) for axis, index in zip(self.axes, reversed(indexes), strict=True)
        }

    def __str__(self) -> str:
        """For people: `C (6) x g (5)`."""
        sign = " + " if self.zipped else " x "
        return sign.join(f"{axis.name} ({axis.count:,})" for axis in self.axes)


def plain_number(number: Decimal) -> str:
    """As people write it: 0.1, 100, 1000000; with an exponent only where that would be long."""
    digits = number.normalize(_EXACT)
    _, figures, exponent = digits.as_tuple()
    assert isinstance(exponent, int), "checked when it was read"
    if not digits:
        return "0"
    if -12 <= exponent + len(figures) - 1 <= 20 and exponent > -60:
        return format(digits, "f")
    return format(digits, "e").replace("e+", "e")


# -- what is allowed --------------------------------------------------------------------------------------


def check_grid(grid: Grid, most: int) -> None:
    """Refuse what cannot be a sweep, or has more than `most` points."""
    if not grid.axes:
        raise UsageError("a sweep needs at least one name with values", "grid")
    if len(grid.axes) > MAX_AXES:
        raise UsageError(f"a sweep of {len(grid.axes):,} names; at most {MAX_AXES}", "grid")
    _check_names(grid.names)
    for axis in grid.axes:
        _check_axis(axis)
    check_values_size(value for axis in grid.axes for value in axis.values)
    if grid.zipped and len({axis.count for axis in grid.axes}) > 1:
        lengths = ", ".join(f"{axis.name} has {axis.count:,}" for axis in grid.axes)
        raise UsageError(f"zipped values must be equally many, but {lengths}", "grid")
    if grid.count > most:
        raise UsageError(f"{grid} makes {grid.count:,} points; at most {most:,} per job", "grid")


def check_values_size(values: Iterable[str]) -> None:
    total = 0
    for value in values:
        total += len(value) * (1 if value.isascii() else 4) + VALUE_BYTES
        if total > MAX_VALUES_BYTES:
            raise UsageError(
                f"the values listed take more than {MAX_VALUES_BYTES // 2**20} MiB; "
                "write the points to a file, one JSON object per line, and use `tercel submit --from-json`",
                "grid",
            )


def _check_names(names: list[str]) -> None:
    for name in names:
        if not _AXIS_NAME.fullmatch(name):
            raise UsageError(f"{name[:40]!r} is not a name: letters, digits and _ make one", "grid")
        if name == TASK:
            raise UsageError(f"{{{TASK}}} is the task's number: choose another name", "grid")
        if names.count(name) > 1:
            raise UsageError(f"{name} is given {names.count(name)} times", "grid")


def _check_axis(axis: Axis) -> None:
    if axis.span is not None:
        if axis.values:
            raise UsageError(f"{axis.name} has both a list of values and a rule", "grid")
        _check_span(axis.name, axis.span)
    elif not axis.values:
        raise UsageError(f"{axis.name} has no values", "grid")
    for value in axis.values:
        check_value(axis.name, value)


def check_value(name: str, value: str) -> None:
    if "\0" in value:
        raise UsageError(f"a value of {name} contains a NUL byte", "grid")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise UsageError(f"a value of {name} is no text: it is not UTF-8", "grid") from None
    if size > MAX_VALUE_BYTES:
        raise UsageError(f"a value of {name} is {size:,} bytes long; at most {MAX_VALUE_BYTES:,}", "grid")


def _check_span(name: str, span: Span) -> None:
    for text in (span.start, span.by):
        if not re.fullmatch(_NUMBER, text):
            raise UsageError(f"{name}: {text[:40]!r} is not a number", "grid")
    if not 1 <= span.count <= MAX_COUNT:
        raise UsageError(f"{name} has {_astronomical(span.count)} values", "grid")
    start, by = Decimal(span.start), Decimal(span.by)
    if span.rule is Rule.LOG and start * by <= 0:
        raise UsageError(f"{name}: log steps need two numbers of the same sign, neither 0", "grid")
    if span.rule is Rule.TIMES:
        if by <= 0 or not start:
            raise UsageError(
                f"{name}: start from a number that is not 0, and multiply by more than 0", "grid"
            )
        if abs(_WORKING.multiply(_WORKING.log10(by), span.count)) > MAX_EXPONENT:
            raise UsageError(f"{name} goes beyond any number that a program could use", "grid")


def _astronomical(count: int) -> str:
    return f"{count:,}" if abs(count) <= MAX_COUNT else f"more than {MAX_COUNT:,}"
