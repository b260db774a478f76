"""Evaluates an expression for many workers, or many tasks, at once: with numpy, on columns of numbers.

Every value is a pair: the values, and where they are missing. (A NaN among the values is a number like any other: it is
missing only in what comes in and in what goes out.) Numpy is loaded on first use: plain jobs do not pay for it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, reduce
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from tercel.core.attributes import ATTRIBUTES, BOOL, DOUBLE, INT, Of, Type
from tercel.core.cel.compile import part
from tercel.core.cel.run import FAULTS, Value
from tercel.core.cel.tokens import MAX_INT, MIN_INT
from tercel.core.cel.tree import Typed

if TYPE_CHECKING:
    import numpy

    Array: TypeAlias = numpy.ndarray[Any, Any]
    """Of bool, int64 or float64, of any shape: they are broadcast."""
    Pair: TypeAlias = tuple[Array, Array | None]
    """Values, and where there is none; None: nowhere."""
    Given: TypeAlias = Mapping[str, Array | Value]
    Step: TypeAlias = Callable[[Given], Pair]

_KINDS = {"bool": "bool", "int": "int64", "double": "float64"}
"""What numpy calls them."""
_EXACT = 2**53
"""Whole numbers up to this are exact as doubles."""


@lru_cache(1)
def _numpy() -> ModuleType:
    import numpy  # noqa: PLC0415 - 100 ms to load, and mostly not needed

    return numpy


def vectorisable(node: Typed) -> bool:
    """Whether it can be evaluated if all attributes are columns, but for the job's: they are the same for all its tasks."""
    if _is_numeric(node):
        return all(vectorisable(each) for each in _operands(node))
    return all(ATTRIBUTES[str(each.value)].of == Of.JOB for each in node.walk() if each.op in ("attr", "has"))


def _is_numeric(node: Typed) -> bool:
    if node.op in ("attr", "has"):
        return ATTRIBUTES[str(node.value)].type.is_number
    if node.op == "key":
        return node.parts[0].op == "attr" and node.parts[1].op == "const"
    if node.op == "in_map":
        return node.parts[1].op == "attr" and node.parts[0].op == "const"
    kinds = {each.type.kind for each in (node, *node.parts)}
    return kinds <= {"bool", "int", "double"} and (node.op in _OPERATIONS or node.op == "const")


def _operands(node: Typed) -> tuple[Typed, ...]:
    return () if node.op in ("key", "in_map") else node.parts


class Columns:
    """Evaluates one tree, again and again: each part is a function of the columns, made once."""

    def __init__(self, tree: Typed) -> None:
        self.type = tree.type
        self.pair = _function(tree)

    def over(self, columns: "Given") -> "Array":
        """Raises TypeError if something that is not a number is a column."""
        np = _numpy()
        shape = _shape(columns)
        with np.errstate(all="ignore"):
            values, absent = self.pair(columns)
            result: Array = np.array(np.broadcast_to(values, shape), dtype=np.float64)
            if self.type == DOUBLE:
                result[~np.isfinite(result)] = np.nan
            if absent is not None:
                result[np.broadcast_to(absent, shape)] = np.nan
        return result


def absent(columns: "Given") -> "Array":
    """What no value at all looks like."""
    nothing: Array = _numpy().full(_shape(columns), math.nan)
    return nothing


def _shape(columns: "Given") -> tuple[int, ...]:
    shape: tuple[int, ...] = _numpy().broadcast_shapes(*(array.shape for array in _arrays(columns.values())))
    return shape


def _function(node: Typed) -> "Step":
    if not _is_numeric(node):
        return _scalar(node)
    match node.op:
        case "const":
            constant = _given(node.value, "a constant", node.type)
            return lambda _: constant
        case "attr":
            return _attribute(node)
        case "has":
            return _has(str(node.value))
        case "key":
            return lambda columns: _keyed(node.parts[0], node.parts[1], columns)
        case "in_map":
            return _in_map(node.parts[0], node.parts[1])
    operation = _OPERATIONS[node.op]
    steps = [_function(part) for part in node.parts]
    return lambda columns: operation(*[step(columns) for step in steps])


# -- what comes in ----------------------------------------------------------------------------------------


def _attribute(node: Typed) -> "Step":
    name, type = str(node.value), node.type
    nothing = _nothing(type)
    return lambda columns: _read(columns[name], name, type) if name in columns else nothing


def _has(name: str) -> "Step":
    np = _numpy()

    def has(columns: "Given") -> "Pair":
        if name not in columns:
            return np.zeros((), dtype=bool), None
        absent = _read(columns[name], name, ATTRIBUTES[name].type)[1]
        return (np.ones((), dtype=bool) if absent is None else ~absent), None

    return has


def _in_map(key: Typed, whole: Typed) -> "Step":
    np = _numpy()

    def in_map(columns: "Given") -> "Pair":
        if str(whole.value) not in columns:
            return _nothing(BOOL)
        absent = _keyed(whole, key, columns)[1]
        return (np.ones((), dtype=bool) if absent is None else ~absent), None

    return in_map


def _scalar(node: Typed) -> "Step":
    """What is not about numbers is the same for all."""
    function = part(node)
    names = [str(each.value) for each in node.walk() if each.op in ("attr", "has")]

    def scalar(columns: "Given") -> "Pair":
        for name in names:
            if name in columns and _arrays([columns[name]]):
                raise TypeError(f"{name} cannot be a column: only numbers can")
        try:
            value = function(columns)  # type: ignore[arg-type]  # it reads none of the arrays
        except FAULTS:
            return _nothing(node.type)
        return _given(value, "a part", node.type)

    return scalar


def _arrays(columns: "Iterable[Array | Value]") -> "list[Array]":
    np = _numpy()
    found: list[Array] = []
    for column in columns:
        if isinstance(column, np.ndarray):
            found.append(column)
        elif isinstance(column, Mapping):
            found += [each for each in column.values() if isinstance(each, np.ndarray)]
    return found


def _nothing(type: Type) -> "Pair":
    np = _numpy()
    return np.zeros((), dtype=_KINDS[type.kind]), np.ones((), dtype=bool)


def _given(value: "Array | Value", name: str, type: Type) -> "Pair":
    """A value of which NaN is one as any other."""
    np = _numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype == np.uint64:
        raise TypeError(f"{name} must be numbers, not {array.dtype}")
    return array.astype(_KINDS[type.kind], copy=False), None


def _read(value: "Array | Value", name: str, type: Type) -> "Pair":
    """An attribute, of which NaN is missing."""
    np = _numpy()
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return _given(array, name, type)
    absent = _if_any(~(np.abs(array) < 2.0**63) if type == INT else np.isnan(array))
    if absent is None:
        return _given(array, name, type)
    return _given(np.where(absent, 0.0, array), name, type)[0], absent


def _keyed(whole: Typed, key: Typed, columns: "Given") -> "Pair":
    """Of a map of columns."""
    found = columns.get(str(whole.value))
    name = str(key.value)
    if found is not None and not isinstance(found, Mapping):
        raise TypeError(f"{whole.value} must be a map of columns")
    if found is None or name not in found:
        return _nothing(DOUBLE)
    return _read(found[name], f"{whole.value}.{name}", DOUBLE)


# -- what is done -----------------------------------------------------------------------------------------


def _if_any(mask: "Array") -> "Array | None":
    return mask if mask.any() else None


def _either(*masks: "Array | None") -> "Array | None":
    found = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found | mask
    return found


def _add(a: "Pair", b: "Pair") -> "Pair":
    made = a[0] + b[0]
    return made, _either(a[1], b[1], _if_any(((a[0] ^ made) & (b[0] ^ made)) < 0))


def _sub(a: "Pair", b: "Pair") -> "Pair":
    made = a[0] - b[0]
    return made, _either(a[1], b[1], _if_any(((a[0] ^ b[0]) & (a[0] ^ made)) < 0))


def _mul(a: "Pair", b: "Pair") -> "Pair":
    np = _numpy()
    bad = _if_any(np.abs(a[0].astype(np.float64) * b[0]) >= 2.0**62)
    if bad is not None:
        exact = np.asarray(a[0].astype(object) * b[0].astype(object))
        bad = ((exact < MIN_INT) | (exact > MAX_INT)).astype(bool)
    return a[0] * b[0], _either(a[1], b[1], bad)


def _divided(a: "Pair", b: "Pair", rest: bool) -> "Pair":
    np = _numpy()
    x, y = a[0], b[0]
    bad = (y == 0) | ((x == MIN_INT) & (y == -1))
    y = np.where(bad, 1, y)
    left = np.fmod(x, y)
    # Without the rest it goes without rounding, which would be downwards.
    return (left if rest else (x - left) // y), _either(a[1], b[1], _if_any(bad))


def _double(made: "Callable[[Array, Array], Array]") -> "Callable[[Pair, Pair], Pair]":
    def double(a: "Pair", b: "Pair") -> "Pair":
        kind = _numpy().float64
        return made(a[0].astype(kind, copy=False), b[0].astype(kind, copy=False)), _either(a[1], b[1])

    return double


def _compare(name: str) -> "Callable[[Pair, Pair], Pair]":
    def compare(a: "Pair", b: "Pair") -> "Pair":
        np = _numpy()
        x, y = a[0], b[0]
        for ints, others in ((x, y), (y, x)):
            if ints.dtype.kind == "i" and others.dtype.kind == "f" and _large(ints):
                x, y = x.astype(object), y.astype(object)
                break
        return np.asarray(getattr(np, name)(x, y)).astype(bool, copy=False), _either(a[1], b[1])

    return compare


def _large(ints: "Array") -> bool:
    """Whether some are not exact as doubles."""
    return bool(((ints >= _EXACT) | (ints <= -_EXACT)).any())


def _signed(positive: bool, whole: bool) -> "Callable[[Pair], Pair]":
    def signed(a: "Pair") -> "Pair":
        made = abs(a[0]) if positive else -a[0]
        return made, _either(a[1], _if_any(a[0] == MIN_INT)) if whole else a[1]

    return signed


def _decided(by: bool) -> "Callable[..., Pair]":
    """A missing side does not matter if another side decides."""

    def decided(*parts: "Pair") -> "Pair":
        decides: Array | None = None
        for value, absent in parts:
            says = value if by else ~value
            decides = _either(decides, says if absent is None else says & ~absent)
        assert decides is not None
        missing = _either(*(absent for _, absent in parts))
        return (decides if by else ~decides), None if missing is None else missing & ~decides

    return decided


def _if(condition: "Pair", then: "Pair", otherwise: "Pair") -> "Pair":
    np = _numpy()
    values = np.where(condition[0], then[0], otherwise[0])
    if then[1] is None and otherwise[1] is None:
        return values, condition[1]
    sides = (False if side[1] is None else side[1] for side in (then, otherwise))
    return values, _either(condition[1], np.where(condition[0], *sides))


def _extreme(name: str, kind: str) -> "Callable[..., Pair]":
    def extreme(*parts: "Pair") -> "Pair":
        made = getattr(_numpy(), name)
        values = [value.astype(_KINDS[kind], copy=False) for value, _ in parts]
        return reduce(made, values), _either(*(absent for _, absent in parts))

    return extreme


def _int_of_double(a: "Pair") -> "Pair":
    np = _numpy()
    bad = _if_any(~((a[0] >= -(2.0**63)) & (a[0] < 2.0**63)))
    values = a[0] if bad is None else np.where(bad, 0.0, a[0])
    return np.trunc(values).astype(np.int64), _either(a[1], bad)


_OPERATIONS: "dict[str, Callable[..., Pair]]" = {
    "and": _decided(False),
    "or": _decided(True),
    "not": lambda a: (~a[0], a[1]),
    "if": _if,
    "same": lambda a: a,
    "add_int": _add,
    "sub_int": _sub,
    "mul_int": _mul,
    "div_int": lambda a, b: _divided(a, b, rest=False),
    "mod_int": lambda a, b: _divided(a, b, rest=True),
    "add_double": _double(lambda x, y: x + y),
    "sub_double": _double(lambda x, y: x - y),
    "mul_double": _double(lambda x, y: x * y),
    "div_double": _double(lambda x, y: x / y),
    "neg_int": _signed(positive=False, whole=True),
    "neg_double": _signed(positive=False, whole=False),
    "abs_int": _signed(positive=True, whole=True),
    "abs_double": _signed(positive=True, whole=False),
    "eq": _compare("equal"),
    "ne": _compare("not_equal"),
    "lt": _compare("less"),
    "le": _compare("less_equal"),
    "gt": _compare("greater"),
    "ge": _compare("greater_equal"),
    "min_int": _extreme("minimum", "int"),
    "max_int": _extreme("maximum", "int"),
    "min_double": _extreme("minimum", "double"),
    "max_double": _extreme("maximum", "double"),
    "int_of_double": _int_of_double,
    "double_of_number": lambda a: (a[0].astype(_KINDS["double"]), a[1]),
}
