"""What an expression may take at most, before anything is evaluated: how long its texts and lists can become, and how many
steps its evaluation has.

A loop over a list of one is a variable: texts that are joined in loops in one another would double, and double again.
A step is about a microsecond, or less.
"""

from typing import NamedTuple

from tercel.core.attributes import ATTRIBUTES, Type
from tercel.core.cel.mistakes import Mistake
from tercel.core.cel.tree import Typed

MAX_LENGTH = 64 * 1024
"""Characters of a text, or elements of a list, that an expression makes."""
MAX_STEPS = 300_000
"""For a worker that has as many tags as a worker may have."""
FEW = 10
MAX_STEPS_OF_MOST = 20_000
"""For a worker of which no list is longer than FEW, as is so of most: this is what an expression costs every time."""
MAX_SUBJECT = 1000
"""Characters of a text that patterns are looked for in."""
_NUMBER_AS_TEXT = 30


class Size(NamedTuple):
    """How large a value can be, at most."""

    length: int = 1
    """Characters of a text, elements of a list or map; of others 1."""
    element: "Size | None" = None
    """Of a list's or map's elements."""


_ONE = Size()


class Cost(NamedTuple):
    size: Size
    steps: int


def check_cost(tree: Typed) -> None:
    """Raises Mistake."""
    _Costs(MAX_LENGTH, MAX_STEPS).of(tree)
    _Costs(FEW, MAX_STEPS_OF_MOST).of(tree)


class _Costs:
    def __init__(self, longest: int, most: int) -> None:
        self.longest = longest
        """Elements that an attribute may have."""
        self.most = most
        self.variables: dict[str, Size] = {}
        self.dearest: tuple[int, Typed] | None = None
        """The loop that takes the most steps, and how many."""

    def of(self, node: Typed) -> Cost:
        if node.op in ("exists", "all"):
            return self.loop(node)
        parts = [self.of(part) for part in node.parts]
        sizes = [part.size for part in parts]
        size = self.size(node, sizes)
        if node.op in ("concat", "join") and size.length > MAX_LENGTH:
            what = "text of up to {:,} characters" if node.op == "concat" else "a list of up to {:,} values"
            message = f"this could make {what.format(size.length)}; at most {MAX_LENGTH:,}"
            raise Mistake(message, *node.at)
        steps = _steps(node, sizes, size) + sum(part.steps for part in parts)
        if steps > self.most:
            raise self.too_many(node, steps)
        return Cost(size, steps)

    def loop(self, node: Typed) -> Cost:
        values = self.of(node.parts[0])
        word = str(node.value)
        self.variables[word] = values.size.element or _ONE
        each = 1 + self.of(node.parts[1]).steps
        del self.variables[word]
        turns = values.size.length
        steps = values.steps + turns * each
        if steps > self.most:
            message = f"this loop could take very long: up to {steps:,} steps, in {turns:,} turns"
            raise Mistake(f"{message}; at most {self.most:,} steps", *node.at)
        if self.dearest is None or steps > self.dearest[0]:
            self.dearest = (steps, node)
        return Cost(_ONE, steps)

    def too_many(self, node: Typed, steps: int) -> Mistake:
        message = f"this could take very long: up to {steps:,} steps; at most {self.most:,}"
        if self.dearest is None:
            return Mistake(message, *node.at)
        most, loop = self.dearest
        return Mistake(f"{message}; {most:,} are of this loop", *loop.at)

    def size(self, node: Typed, parts: list[Size]) -> Size:
        match node.op:
            case "const":
                return Size(len(node.value)) if isinstance(node.value, str) else _ONE
            case "attr":
                values, letters = ATTRIBUTES[str(node.value)].longest
                return _size_of(min(values, self.longest), letters, node.type)
            case "var":
                return self.variables[str(node.value)]
            case "same":
                return parts[0]
            case "if":
                return _either(parts[1], parts[2])
            case "item":
                return parts[0].element or _ONE
            case "list":
                return Size(len(parts), _either(*parts))
            case "concat":
                return Size(parts[0].length + parts[1].length)
            case "join":
                elements = [part.element or _ONE for part in parts]
                return Size(parts[0].length + parts[1].length, _either(*elements))
            case "text_of_int" | "text_of_double" | "text_of_bool":
                return Size(_NUMBER_AS_TEXT)
        return _ONE


def _steps(node: Typed, parts: list[Size], made: Size) -> int:
    """Of this operation alone."""
    match node.op:
        case "const" | "attr" | "var" | "has":
            return 0
        case "and" | "or":
            return len(parts)
        case "list" | "min_int" | "max_int" | "min_double" | "max_double":
            return 1 + len(parts) // 10
        case "join":
            return 1 + made.length // 10
        case "concat":
            return 1 + made.length // 100
        case "matches":
            return 1 + min(parts[0].length, MAX_SUBJECT) // 10
        case "contains" | "int_of_text" | "double_of_text":
            return 1 + parts[0].length // 100
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "starts_with" | "ends_with":
            return 1 + min(part.length for part in parts) // 100
        case "in_list":
            return 1 + parts[1].length * _compared(parts[0], parts[1].element or _ONE) // 10
        case "in_deep":
            return 1 + parts[1].length * _compared(parts[0], parts[1].element or _ONE)
        case "eq_deep" | "ne_deep":
            return 1 + _compared(*parts)
    return 1


def _compared(a: Size, b: Size) -> int:
    """Steps to find out whether two values are equal: they are not if one is longer."""
    if a.element is None or b.element is None:
        return 1 + min(a.length, b.length) // 100
    return 1 + min(a.length, b.length) * _compared(a.element, b.element)


def _size_of(values: int, letters: int, type: Type) -> Size:
    """Of an attribute: how many values it has, and how many characters each."""
    one = Size(letters) if "text" in (type.kind, type.element and type.element.kind) else _ONE
    return Size(values, one) if type.kind in ("list", "map") else one


def _either(*sizes: Size) -> Size:
    """What is as large as the largest of these in every way."""
    if not sizes:
        return _ONE
    elements = [size.element for size in sizes if size.element is not None]
    return Size(max(size.length for size in sizes), _either(*elements) if elements else None)
