"""What expressions do while they are evaluated, beyond what Python's own operators do.

Something that has no value raises `Fault`; a missing attribute is the KeyError of the lookup, because that costs nothing
where nothing is missing. Neither leaves this package: `Expression.evaluate` returns `Missing`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn, TypeAlias

import msgspec

from tercel.core.cel.automaton import automaton
from tercel.core.cel.cost import MAX_SUBJECT
from tercel.core.cel.tokens import MAX_INT, MIN_INT

Value: TypeAlias = bool | int | float | str | tuple["Value", ...] | Mapping[str, "Value"] | None
Attributes: TypeAlias = Mapping[str, Value]


class Missing(msgspec.Struct, frozen=True):
    """Instead of a value: what there was none for, and why. It counts as false."""

    attribute: str
    """`worker.gpu.mem`; empty if it is not an attribute's fault."""
    reason: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.attribute}: {self.reason}" if self.attribute else self.reason


class Fault(Exception):
    """There is no value, and why."""

    def __init__(self, reason: str, attribute: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.attribute = attribute


FAULTS = (KeyError, Fault, TypeError, ValueError, OverflowError, AttributeError)
"""All that evaluation may raise: apart from the first two, because a worker said something else than what it should."""

EXHAUSTED = (MemoryError, RecursionError)
"""What evaluation should never raise, because expressions are checked. If it does, the whole has no value at once: what
is left is not tried, and the manager goes on."""


def missing(fault: BaseException) -> Missing:
    match fault:
        case Fault():
            return Missing(fault.attribute, fault.reason)
        case KeyError():
            return Missing(str(fault.args[0]), NO_VALUE)
        case MemoryError() | RecursionError():
            return Missing("", "it takes too much memory")
    return Missing("", "an attribute has a value of the wrong kind")


NO_VALUE = "no value"


# -- logic: a fault on one side does not matter if the other side decides -----------------------------------


def every(*parts: Callable[[], bool]) -> bool:
    return _decided(False, parts)


def some(*parts: Callable[[], bool]) -> bool:
    return _decided(True, parts)


def every_of(condition: Callable[[Value], bool], values: Sequence[Value]) -> bool:
    return _decided(False, [partial(condition, value) for value in values])


def some_of(condition: Callable[[Value], bool], values: Sequence[Value]) -> bool:
    return _decided(True, [partial(condition, value) for value in values])


def _decided(by: bool, parts: Sequence[Callable[[], bool]]) -> bool:
    first: Exception | None = None
    for part in parts:
        try:
            if part() is by:
                return by
        except FAULTS as fault:
            first = first or fault
    if first is not None:
        raise first
    return not by


# -- numbers ----------------------------------------------------------------------------------------------


def overflow() -> NoReturn:
    raise Fault("integer overflow")


def whole(value: int) -> int:
    if MIN_INT <= value <= MAX_INT:
        return value
    overflow()


def div_int(a: int, b: int) -> int:
    """Towards zero."""
    if not b:
        raise Fault("division by zero")
    quotient = abs(a) // abs(b)
    return whole(quotient if (a < 0) == (b < 0) else -quotient)


def mod_int(a: int, b: int) -> int:
    """With the sign of what is divided."""
    if not b:
        raise Fault("division by zero")
    whole(div_int(a, b))
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def div_double(a: float, b: float) -> float:
    try:
        return float(a) / b
    except ZeroDivisionError:
        if not a or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)


def not_finite(value: float) -> NoReturn:
    raise Fault("NaN" if value != value else "infinite")


def min_double(*values: float) -> float:
    return math.nan if any(value != value for value in values) else float(min(values))


def max_double(*values: float) -> float:
    return math.nan if any(value != value for value in values) else float(max(values))


def int_of_double(value: float) -> int:
    if not math.isfinite(value):
        raise Fault("NaN" if value != value else "integer overflow")
    return whole(int(value))


def int_of_text(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 100):
        raise Fault(f"not a whole number: {text[:40]!r}")
    return whole(int(text))


def double_of_text(text: str) -> float:
    try:
        if "_" in text or text != text.strip() or not text.isascii():
            raise ValueError
        return float(text)
    except ValueError:
        raise Fault(f"not a number: {text[:40]!r}") from None


def text_of_double(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def text_of_bool(value: bool) -> str:
    return "true" if value else "false"


# -- text, lists, maps ------------------------------------------------------------------------------------


def matches(subject: str, text: str) -> bool:
    if len(subject) > MAX_SUBJECT:
        raise Fault(f"text of more than {MAX_SUBJECT:,} characters is not matched with patterns")
    return automaton(text).matches(subject)


def key(whole: Mapping[str, Value], name: str, attribute: str) -> Value:
    try:
        return whole[name]
    except KeyError:
        raise Fault(f"no such key: {name}", attribute) from None


def item(values: Sequence[Value], index: int, attribute: str) -> Value:
    if 0 <= index < len(values):
        return values[index]
    raise Fault(f"no such place in the list: {index}", attribute)


def join(a: Sequence[Value], b: Sequence[Value]) -> tuple[Value, ...]:
    return (*a, *b)


def equal(a: Value, b: Value) -> bool:
    """As `==`, but a NaN in a list is not equal to itself either."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal(value, b[name]) for name, value in a.items())
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def in_deep(value: Value, values: Sequence[Value]) -> bool:
    return any(equal(value, each) for each in values)
