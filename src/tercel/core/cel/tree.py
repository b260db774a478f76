"""The two trees of an expression: as it is written, and as it is meant.

    text -> tokens -> Node (parse.py) -> Typed (check.py) -> Python function (compile.py), numpy (columns.py)

In a Node, `+` is `+`. In a Typed tree it is `add_int`, `add_double`, `concat` or `join`: what to do no longer depends on
what the parts turn out to be.
"""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from tercel.core.attributes import Type

MAX_NESTING = 50
"""Levels of parentheses, calls, signs and `?:` in one another."""
MAX_HEIGHT = 100
"""Levels of the tree: a chain of + counts one for each. (A chain of && or || counts one in all.)"""

Scalar: TypeAlias = "bool | int | float | str | None"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """
    literal  value                      name    value: an identifier        list     parts
    .        parts[0], value: a field   []      parts[0], parts[1]          call     value: the function, parts: arguments
    method   value: the function, parts[0]: of what, parts[1:]: arguments   ?:       three parts
    &&  ||   two parts or more          !  minus   one part                 others   two parts
    """

    op: str
    start: int
    end: int
    height: int
    parts: "tuple[Node, ...]" = ()
    value: Scalar = None
    at: tuple[int, int] = (0, 0)
    """Where the operator stands, or the name of a field or function."""


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """`op` is one of those that compile.py lists."""

    op: str
    type: Type
    start: int
    end: int
    parts: "tuple[Typed, ...]" = ()
    value: Scalar = None
    """Of a literal; the name of an attribute or variable; of `matches` the pattern."""
    at: tuple[int, int] = (0, 0)
    """Where the operator stands, or the name of the function."""

    def walk(self) -> "Iterator[Typed]":
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.parts))
