"""Evaluates an expression for many workers, or many tasks, at once: with numpy, on columns of numbers.

Every value is a pair: the values, and where they are missing. (A NaN among the values is a number like any other: it is
missing only in what comes in and in what goes out.) Numpy is loaded on first use: plain jobs do not pay for it.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from tercel.core.attributes import ATTRIBUTES, INT, Of
from tercel.core.cel.compile import Function, part
from tercel.core.cel.run import FAULTS, Value
from tercel.core.cel.tokens import MAX_INT, MIN_INT
from tercel.core.cel.tree import Typed

if TYPE_CHECKING:
    import numpy

    Array: TypeAlias = numpy.ndarray[Any, Any]
    """Of bool, int64 or float64, of any shape: they are broadcast."""
    Pair: TypeAlias = tuple[Array, Array]

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
    """Evaluates one tree, again and again."""

    def __init__(self, tree: Typed) -> None:
        self.tree = tree
        self.functions: dict[int, Function] = {}
        """Of those parts that are not about numbers, by the identity of the part."""

    def over(self, columns: "Mapping[str, Array | Value]") -> "Array":
        """Raises TypeError if something that is not a number is a column."""
        np = _numpy()
        shape = np.broadcast_shapes(*(array.shape for array in _arrays(columns)))
        with np.errstate(all="ignore"):
            values, absent = self.pair(self.tree, columns)
            result: Array = np.array(np.broadcast_to(values, shape), dtype=np.float64)
            result[np.broadcast_to(absent, shape) | ~np.isfinite(result)] = np.nan
        return result

    def pair(self, node: Typed, columns: "Mapping[str, Array | Value]") -> "Pair":
        if not _is_numeric(node):
            return self.scalar(node, columns)
        match node.op:
            case "const":
                return _given(node.value, node)
            case "attr":
                name = str(node.value)
                return _given(columns[name], node) if name in columns else _nothing(node)
            case "has":
                return _there(columns.get(str(node.value)), str(node.value) in columns)
            case "key":
                return _keyed(node.parts[0], node.parts[1], node, columns)
            case "in_map":
                _, absent = _keyed(node.parts[1], node.parts[0], node, columns)
                return ~absent, _numpy().asarray(str(node.parts[1].value) not in columns)
        return _OPERATIONS[node.op](*(self.pair(each, columns) for each in node.parts))

    def scalar(self, node: Typed, columns: "Mapping[str, Array | Value]") -> "Pair":
        """What is not about numbers is the same for all."""
        for each in node.walk():
            if each.op in ("attr", "has") and _arrays({"": columns.get(str(each.value))}):
                raise TypeError(f"{each.value} cannot be a column: only numbers can")
        if id(node) not in self.functions:
            self.functions[id(node)] = part(node)
        try:
            return _given(self.functions[id(node)](columns), node)  # type: ignore[arg-type]  # no arrays are read
        except FAULTS:
            return _nothing(node)


# -- what comes in ----------------------------------------------------------------------------------------


def _arrays(columns: "Mapping[str, Array | Value]") -> "list[Array]":
    np = _numpy()
    found: list[Array] = []
    for column in columns.values():
        inside = column.values() if isinstance(column, Mapping) else [column]
        found += [each for each in inside if isinstance(each, np.ndarray)]
    return found


def _nothing(node: Typed) -> "Pair":
    np = _numpy()
    kinds = {"bool": bool, "int": np.int64}
    return np.zeros((), dtype=kinds.get(node.type.kind, np.float64)), np.ones((), dtype=bool)


def _given(value: "Array | Value", node: Typed) -> "Pair":
    np = _numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.dtype == np.uint64:
        raise TypeError(f"{node.value or 'a value'} must be numbers, not {array.dtype}")
    if array.dtype.kind != "f":
        kind = bool if array.dtype.kind == "b" else np.int64 if node.type == INT else np.float64
        return array.astype(kind), np.zeros((), dtype=bool)
    if node.op == "attr" or node.op == "key":
        absent = np.isnan(array)
        if node.type != INT:
            return array.astype(np.float64), absent
        absent |= np.abs(array) >= 2.0**63
        return np.where(absent, 0, array).astype(np.int64), absent
    return array.astype(np.float64), np.zeros((), dtype=bool)


def _there(value: "Array | Value", given: bool) -> "Pair":
    np = _numpy()
    here = (
        ~np.isnan(value) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else np.asarray(given)
    )
    return here, np.zeros((), dtype=bool)


def _keyed(whole: Typed, key: Typed, node: Typed, columns: "Mapping[str, Array | Value]") -> "Pair":
    """Of a map of columns."""
    found = columns.get(str(whole.value))
    if found is None:
        return _nothing(node)
    if not isinstance(found, Mapping):
        raise TypeError(f"{whole.value} must be a map of columns")
    name = str(key.value)
    if name not in found:
        return _nothing(node)
    return _given(found[name], node if node.op == "key" else whole)


# -- what is done -----------------------------------------------------------------------------------------


def _both(a: "Pair", b: "Pair", made: "Array", bad: "Array | bool" = False) -> "Pair":
    return made, a[1] | b[1] | bad


def _add(a: "Pair", b: "Pair") -> "Pair":
    made = a[0] + b[0]
    return _both(a, b, made, ((a[0] ^ made) & (b[0] ^ made)) < 0)


def _sub(a: "Pair", b: "Pair") -> "Pair":
    made = a[0] - b[0]
    return _both(a, b, made, ((a[0] ^ b[0]) & (a[0] ^ made)) < 0)


def _mul(a: "Pair", b: "Pair") -> "Pair":
    np = _numpy()
    made = a[0] * b[0]
    bad = np.abs(a[0].astype(np.float64) * b[0]) >= 2.0**62
    if bad.any():
        exact = np.asarray(a[0].astype(object) * b[0].astype(object))
        bad = ((exact < MIN_INT) | (exact > MAX_INT)).astype(bool)
    return _both(a, b, made, bad)


def _divided(a: "Pair", b: "Pair", rest: bool) -> "Pair":
    np = _numpy()
    x, y = a[0], b[0]
    bad = (y == 0) | ((x == MIN_INT) & (y == -1))
    y = np.where(bad, 1, y)
    left = np.fmod(x, y)
    # Without the rest it goes without rounding, which would be downwards.
    return _both(a, b, left if rest else (x - left) // y, bad)


def _double(made: "Callable[[Array, Array], Array]") -> "Callable[[Pair, Pair], Pair]":
    def double(a: "Pair", b: "Pair") -> "Pair":
        np = _numpy()
        return _both(a, b, made(a[0].astype(np.float64), b[0].astype(np.float64)))

    return double


def _compare(name: str) -> "Callable[[Pair, Pair], Pair]":
    def compare(a: "Pair", b: "Pair") -> "Pair":
        np = _numpy()
        x, y = a[0], b[0]
        for ints, others in ((x, y), (y, x)):
            if ints.dtype.kind == "i" and others.dtype.kind == "f" and _large(ints):
                x, y = x.astype(object), y.astype(object)
                break
        return _both(a, b, np.asarray(getattr(np, name)(x, y)).astype(bool))

    return compare


def _large(ints: "Array") -> bool:
    """Whether some are not exact as doubles."""
    return bool(((ints >= _EXACT) | (ints <= -_EXACT)).any())


def _signed(positive: bool, whole: bool) -> "Callable[[Pair], Pair]":
    def signed(a: "Pair") -> "Pair":
        np = _numpy()
        made = np.abs(a[0]) if positive else -a[0]
        return made, (a[1] | (a[0] == MIN_INT)) if whole else a[1]

    return signed


def _decided(by: bool) -> "Callable[..., Pair]":
    """A missing side does not matter if another side decides."""

    def decided(*parts: "Pair") -> "Pair":
        decides = reduce(lambda x, y: x | y, ((value == by) & ~absent for value, absent in parts))
        missing = reduce(lambda x, y: x | y, (absent for _, absent in parts))
        return (decides if by else ~decides), missing & ~decides

    return decided


def _if(condition: "Pair", then: "Pair", otherwise: "Pair") -> "Pair":
    np = _numpy()
    values = np.where(condition[0], then[0], otherwise[0])
    return values, condition[1] | np.where(condition[0], then[1], otherwise[1])


def _not(a: "Pair") -> "Pair":
    return a[0] == 0, a[1]


def _extreme(name: str) -> "Callable[..., Pair]":
    def extreme(*parts: "Pair") -> "Pair":
        made = getattr(_numpy(), name)
        return reduce(made, (part[0] for part in parts)), reduce(
            lambda x, y: x | y, (part[1] for part in parts)
        )

    return extreme


def _int_of_double(a: "Pair") -> "Pair":
    np = _numpy()
    bad = ~((a[0] >= -(2.0**63)) & (a[0] < 2.0**63))
    return np.trunc(np.where(bad, 0.0, a[0])).astype(np.int64), a[1] | bad


def _double_of_number(a: "Pair") -> "Pair":
    return a[0].astype(_numpy().float64), a[1]


_OPERATIONS: "dict[str, Callable[..., Pair]]" = {
    "and": _decided(False),
    "or": _decided(True),
    "not": _not,
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
    "min_int": _extreme("minimum"),
    "max_int": _extreme("maximum"),
    "min_double": _extreme("minimum"),
    "max_double": _extreme("maximum"),
    "int_of_double": _int_of_double,
    "double_of_number": _double_of_number,
}
