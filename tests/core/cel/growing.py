"""Random expressions that are right, as trees; written down for us and for Google; and a naive way to evaluate them."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import strategies as st

Value = object

NAMES = {
    "int": ["worker.mem", "worker.mem_free", "worker.gpu.mem"],
    "double": ["worker.cpus", "worker.load"],
    "text": ["worker.os", "worker.name"],
    "texts": ["worker.tags"],
}
KEYS = ["fpga", "licence.matlab"]
WORDS = ["", "a", "b", "ab", "linux", "gpu1", "ä'\\\"\n"]
PATTERNS = ["^a", "b$", "a.*b", "gpu[0-9]+", "^$", "x|l", "(?:ab)+"]

INTS = st.one_of(
    st.integers(-5, 5),
    st.integers(-(2**31), 2**31),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**53 + 1, -(2**63), 2**63 - 1]),
)
DOUBLES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 2.0, 0.5, 2.0**53, 1e308, -1e308]),
    st.floats(allow_nan=False, allow_infinity=False),
)


class Tree(NamedTuple):
    op: str
    type: str
    parts: tuple["Tree", ...] = ()
    value: Value = None


# -- growing ----------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn, type: str, depth: int = 4, numeric: bool = False, variable: bool = False) -> Tree:
    """`numeric`: without text and lists, so that it can be evaluated over columns."""

    def grow(type: str, variable: bool = variable) -> Tree:
        return draw(trees(type, depth - 1, numeric, variable))

    def number() -> str:
        return draw(st.sampled_from(["int", "double"]))

    kinds = {
        "bool": ["literal", "logic", "logic", "not", "order", "order", "equal", "has", "if", "resource"],
        "int": ["literal", "attr", "attr", "math", "math", "minus", "abs", "min", "if", "round"],
        "double": ["literal", "attr", "math", "math", "minus", "abs", "min", "if", "double", "key"],
        "text": ["literal", "attr", "concat", "if", "item", "string"],
        "texts": ["list", "attr", "join"],
    }[type]
    if not numeric and type == "bool":
        kinds = [*kinds, "words", "in_texts", "in_numbers", "method", "matches", "loop", "loop", "same_list"]
    if not numeric and type == "int":
        kinds = [*kinds, "size"]
    if variable and type == "text":
        kinds = [*kinds, "var", "var", "var"]
    if variable and type == "texts":
        kinds = ["list"]  # what is long must not be gone through in a loop
    if depth <= 0:
        kinds = [kind for kind in kinds if kind in ("literal", "attr", "list", "has", "key", "var")]
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "literal":
            values = {"bool": st.booleans(), "int": INTS, "double": DOUBLES, "text": st.sampled_from(WORDS)}
            return Tree("literal", type, value=draw(values[type]))
        case "attr":
            return Tree("attr", type, value=draw(st.sampled_from(NAMES[type])))
        case "var":
            return Tree("var", type, value="t")
        case "has":
            names = NAMES["int"] if numeric else [*NAMES["int"], *NAMES["text"]]
            return Tree("has", type, value=draw(st.sampled_from(names)))
        case "key":
            return Tree("key", type, value=draw(st.sampled_from(KEYS)))
        case "resource":
            return Tree("resource", type, value=draw(st.sampled_from(KEYS)))
        case "logic":
            op = draw(st.sampled_from(["&&", "||"]))
            return Tree(op, type, tuple(grow("bool") for _ in range(draw(st.integers(2, 3)))))
        case "not":
            return Tree("!", type, (grow("bool"),))
        case "order":
            return Tree(draw(st.sampled_from(["<", "<=", ">", ">="])), type, (grow(number()), grow(number())))
        case "words":
            return Tree(
                draw(st.sampled_from(["<", "<=", "==", "!=", ">", ">="])), type, (grow("text"), grow("text"))
            )
        case "equal":
            pair = ("bool", "bool") if draw(st.booleans()) else (number(), number())
            return Tree(draw(st.sampled_from(["==", "!="])), type, (grow(pair[0]), grow(pair[1])))
        case "same_list":
            return Tree("==", type, (grow("texts"), grow("texts")))
        case "if":
            then, otherwise = (type, type)
            if type == "double" and draw(st.booleans()):
                then = "int"
            return Tree("?:", type, (grow("bool"), grow(then), grow(otherwise)))
        case "math" if type == "int":
            return Tree(draw(st.sampled_from(["+", "-", "*", "/", "%"])), type, (grow("int"), grow("int")))
        case "math":
            left, right = draw(st.sampled_from([("int", "double"), ("double", "int"), ("double", "double")]))
            return Tree(draw(st.sampled_from(["+", "-", "*", "/"])), type, (grow(left), grow(right)))
        case "minus":
            return Tree("-x", type, (grow(type),))
        case "abs":
            return Tree("abs", type, (grow(type),))
        case "min":
            return Tree(draw(st.sampled_from(["min", "max"])), type, (grow(type), grow(type)))
        case "round":
            return Tree("int", type, (grow("double"),))
        case "double":
            return Tree("double", type, (grow("int"),))
        case "string":
            return Tree("string", type, (grow(draw(st.sampled_from(["int", "bool"]))),))
        case "size":
            return Tree("size", type, (grow(draw(st.sampled_from(["text", "texts"]))),))
        case "concat" | "join":
            return Tree("+", type, (grow(type), grow(type)))
        case "list":
            literals = [Tree("literal", "text", value=word) for word in WORDS[:6]]
            return Tree(
                "list", type, tuple(draw(st.lists(st.sampled_from(literals), min_size=1, max_size=3)))
            )
        case "item":
            return Tree("[]", type, (grow("texts"), Tree("literal", "int", value=draw(st.integers(-1, 2)))))
        case "in_texts":
            return Tree("in", type, (grow("text"), grow("texts")))
        case "in_numbers":
            items = tuple(grow(number()) for _ in range(draw(st.integers(0, 3))))
            return Tree("in", type, (grow(number()), Tree("list", "numbers", items)))
        case "method":
            name = draw(st.sampled_from(["startsWith", "endsWith", "contains"]))
            return Tree(name, type, (grow("text"), grow("text")))
        case "matches":
            return Tree("matches", type, (grow("text"),), draw(st.sampled_from(PATTERNS)))
        case "loop":
            # Of loops in one another only literal lists may be the inner ones: so none here.
            values = draw(trees("texts", 0 if variable else 1))
            if variable:
                return Tree("list_only", type, (), draw(st.booleans()))
            return Tree(draw(st.sampled_from(["exists", "all"])), type, (values, grow("bool", True)))
    raise AssertionError(kind)


@st.composite
def surroundings(draw: st.DrawFn) -> dict[str, Value]:
    """Values of attributes, some of them missing."""
    numbers = {"int": INTS, "double": DOUBLES, "text": st.sampled_from(WORDS)}
    made: dict[str, Value] = {}
    for type, values in numbers.items():
        for name in NAMES[type]:
            if draw(st.integers(0, 4)):
                made[name] = draw(values)
    if draw(st.integers(0, 4)):
        made["worker.tags"] = tuple(draw(st.lists(st.sampled_from(WORDS), max_size=4)))
    if draw(st.integers(0, 4)):
        made["worker.resource"] = {key: draw(DOUBLES) for key in KEYS if draw(st.booleans())}
    return made


# -- writing down -----------------------------------------------------------------------------------------

_TIGHTNESS = {"?:": 0, "||": 1, "&&": 2, "in": 3, "resource": 3} | dict.fromkeys(
    ["<", "<=", ">", ">=", "==", "!="], 3
)
_TIGHTNESS |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "!": 6, "-x": 6}


def written(tree: Tree, google: Mapping[str, Value] | None = None) -> str:
    """With as few parentheses as there can be. `google`: in strict CEL, about these values."""
    op, parts = tree.op, tree.parts
    tight = _TIGHTNESS.get(op)

    def inner(part: Tree, least: int, as_double: bool = False, loosely: bool = False) -> str:
        text = written(part, google)
        if google is not None and as_double and part.type == "int":
            return f"double({text})"
        if google is not None and loosely:
            return f"dyn({text})"
        negative = part.op == "literal" and text.startswith("-")
        return f"({text})" if _TIGHTNESS.get(part.op, 6 if negative else 9) < least else text

    doubles = tree.type == "double"
    mixed = len({part.type for part in parts}) > 1
    match op:
        case "literal":
            return _literal(tree.value)
        case "attr" | "var":
            return str(tree.value)
        case "list_only":
            return f"[1].exists(u, u == {1 if tree.value else 2})"
        case "has":
            return f"has({tree.value})" if google is None else _literal(tree.value in google)
        case "key":
            return f'worker.resource["{tree.value}"]'
        case "resource":
            return f'"{tree.value}" in worker.resource'
        case "?:":
            condition = inner(parts[0], 1)
            return f"{condition} ? {inner(parts[1], 1, doubles)} : {inner(parts[2], 0, doubles)}"
        case "&&" | "||":
            assert tight is not None
            return f" {op} ".join(inner(part, tight) for part in parts)
        case "!" | "-x":
            # A number after a minus would be one number with it.
            least = 9 if parts[0].op == "literal" and op == "-x" else 6
            text = inner(parts[0], least)
            # To Google, two of them are none, even where one would be too large.
            apart = op == "-x" and (parts[0].op == "literal" or (google is not None and parts[0].op == op))
            return f"{op[0]}({text})" if apart else f"{op[0]}{text}"
        case "list":
            return f"[{', '.join(inner(part, 0, loosely=tree.type == 'numbers') for part in parts)}]"
        case "in":
            numbers = parts[1].type == "numbers"
            return f"{inner(parts[0], 3, loosely=numbers)} in {inner(parts[1], 4)}"
        case "[]":
            return f"{inner(parts[0], 9)}[{inner(parts[1], 0)}]"
        case "startsWith" | "endsWith" | "contains":
            return f"{inner(parts[0], 9)}.{op}({inner(parts[1], 0)})"
        case "matches":
            return f"{inner(parts[0], 9)}.matches({_literal(tree.value)})"
        case "exists" | "all":
            return f"{inner(parts[0], 9)}.{op}(t, {inner(parts[1], 0)})"
        case "min" | "max" | "abs" if google is not None:
            op = {"min": "math.least", "max": "math.greatest", "abs": "math.abs"}[op]
    if tight is None:
        return f"{op}({', '.join(inner(part, 0) for part in parts)})"
    compared = tight == 3 and mixed
    left, right = (inner(part, tight + at, doubles, compared) for at, part in enumerate(parts))
    return f"{left} {op} {right}"


def _literal(value: Value) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def strict_cel(tree: Tree) -> bool:
    """Whether it means the same to Google. There, min and max do not pass on NaN, and whole numbers that are compared
    with doubles are rounded first."""
    if tree.op in ("min", "max") and tree.type == "double":
        return False
    compared = tree.parts[1].parts + tree.parts[:1] if tree.op == "in" else tree.parts
    if tree.type == "bool" and {"int", "double"} <= {part.type for part in compared}:
        return False
    return all(strict_cel(part) for part in tree.parts)


# -- evaluating, naively: both sides of everything, one after the other ------------------------------------


class Nothing:
    """There is no value."""


NOTHING = Nothing()


def naive(tree: Tree, given: Mapping[str, Value]) -> Value:
    op = tree.op
    if op == "literal":
        return tree.value
    if op in ("attr", "var"):
        return given.get(str(tree.value), NOTHING)
    if op == "list_only":
        return tree.value
    if op == "has":
        return tree.value in given
    if op in ("key", "resource"):
        resource = given.get("worker.resource", NOTHING)
        if not isinstance(resource, Mapping):
            return NOTHING
        return resource.get(tree.value, NOTHING) if op == "key" else tree.value in resource
    if op in ("exists", "all"):
        values = naive(tree.parts[0], given)
        if not isinstance(values, tuple):
            return NOTHING
        return _logic(op == "exists", [naive(tree.parts[1], {**given, "t": value}) for value in values])
    parts = [naive(part, given) for part in tree.parts]
    if op in ("&&", "||"):
        return _logic(op == "||", parts)
    if op == "?:":
        if parts[0] is NOTHING:
            return NOTHING
        chosen = parts[1] if parts[0] else parts[2]
        return _number(chosen, tree.type)
    return NOTHING if NOTHING in parts else _number(_applied(tree, parts), tree.type)


def _logic(decides: bool, parts: list[Value]) -> Value:
    if decides in [part for part in parts if part is not NOTHING]:
        return decides
    return NOTHING if NOTHING in parts else not decides


def _number(value: Value, type: str) -> Value:
    if type == "int" and isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else NOTHING
    if type == "double" and isinstance(value, int):
        return float(value)
    return value


def _applied(tree: Tree, parts: list) -> Value:  # type: ignore[type-arg]
    a = parts[0] if parts else None
    b = parts[1] if len(parts) > 1 else None
    match tree.op:
        case "!":
            return not a
        case "-x":
            return -a
        case "abs":
            return abs(a)
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
        case "in":
            return any(a == each for each in b)
        case "list":
            return tuple(parts)
        case "[]":
            return a[b] if 0 <= b < len(a) else NOTHING
        case "size":
            return len(a)
        case "string":
            return str(a).lower()
        case "startsWith":
            return a[: len(b)] == b
        case "endsWith":
            return a[len(a) - len(b) :] == b if len(b) <= len(a) else False
        case "contains":
            return b in a
        case "matches":
            return re.search(re.sub(r"\$$", r"\\Z", str(tree.value)), a) is not None
        case "int":
            return int(a) if math.isfinite(a) else NOTHING
        case "min" | "max":
            return math.nan if a != a or b != b else min(parts) if tree.op == "min" else max(parts)
        case "double":
            return float(a)
    if tree.type in ("text", "texts"):
        return a + b
    return _whole(tree.op, a, b) if tree.type == "int" else _double(tree.op, float(a), float(b))


def _whole(op: str, a: int, b: int) -> Value:
    if op in "/%":
        if b == 0 or (a == -(2**63) and b == -1):
            return NOTHING
        quotient = abs(a) // abs(b) * (1 if (a >= 0) == (b >= 0) else -1)
        return quotient if op == "/" else a - b * quotient
    return a + b if op == "+" else a - b if op == "-" else a * b


def _double(op: str, a: float, b: float) -> float:
    if op == "/" and b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return a + b if op == "+" else a - b if op == "-" else a * b if op == "*" else a / b
