"""What an expression may take at most, before anything is evaluated: how long its texts and lists can become.

A loop over a list of one is a variable: texts that are joined in loops in one another would double, and double again.
"""

from typing import NamedTuple

from tercel.core.attributes import ATTRIBUTES, Type
from tercel.core.cel.mistakes import Mistake
from tercel.core.cel.tree import Typed

MAX_LENGTH = 64 * 1024
"""Characters of a text, or elements of a list, that an expression makes."""
_NUMBER_AS_TEXT = 30


class Size(NamedTuple):
    """How large a value can be, at most."""

    length: int = 1
    """Characters of a text, elements of a list or map; of others 1."""
    element: "Size | None" = None
    """Of a list's or map's elements."""


_ONE = Size()


def check_cost(tree: Typed) -> None:
    """Raises Mistake."""
    _Cost().of(tree)


class _Cost:
    def __init__(self) -> None:
        self.variables: dict[str, Size] = {}

    def of(self, node: Typed) -> Size:
        if node.op in ("exists", "all"):
            return self.loop(node)
        size = self.size(node, [self.of(part) for part in node.parts])
        if node.op in ("concat", "join") and size.length > MAX_LENGTH:
            what = "text of up to {:,} characters" if node.op == "concat" else "a list of up to {:,} values"
            message = f"this could make {what.format(size.length)}; at most {MAX_LENGTH:,}"
            raise Mistake(message, *node.at)
        return size

    def loop(self, node: Typed) -> Size:
        values, condition = node.parts
        word = str(node.value)
        self.variables[word] = self.of(values).element or _ONE
        self.of(condition)
        del self.variables[word]
        return _ONE

    def size(self, node: Typed, parts: list[Size]) -> Size:
        match node.op:
            case "const":
                return Size(len(node.value)) if isinstance(node.value, str) else _ONE
            case "attr":
                return _size_of(ATTRIBUTES[str(node.value)].longest, node.type)
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


def _size_of(longest: tuple[int, int], type: Type) -> Size:
    """Of an attribute: how many values it has, and how many characters each."""
    values, letters = longest
    one = Size(letters) if "text" in (type.kind, type.element and type.element.kind) else _ONE
    return Size(values, one) if type.kind in ("list", "map") else one


def _either(*sizes: Size) -> Size:
    """What is as large as the largest of these in every way."""
    if not sizes:
        return _ONE
    elements = [size.element for size in sizes if size.element is not None]
    return Size(max(size.length for size in sizes), _either(*elements) if elements else None)
