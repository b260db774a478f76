"""Names in expressions: how they are put together, and what was probably meant by one that is not known."""

from difflib import get_close_matches

from tercel.core.attributes import ATTRIBUTES, Type
from tercel.core.cel.mistakes import Mistake
from tercel.core.cel.tokens import UNITS
from tercel.core.cel.tree import Node, Typed

_ELSEWHERE = {
    "len": "size",
    "float": "double",
    "str": "string",
    "any": "exists",
    "startswith": "startsWith",
    "endswith": "endsWith",
    "match": "matches",
}
"""What things are called in other languages."""


def path_of(node: Node) -> str | None:
    """`a.b.c`, if it is names and dots all the way."""
    names: list[str] = []
    while node.op == ".":
        names.append(str(node.value))
        node = node.parts[0]
    if node.op != "name":
        return None
    return ".".join([str(node.value), *reversed(names)])


def what_it_is(node: Node, typed: Typed) -> str:
    """`worker.mem is a number`"""
    return f"{path_of(node) or 'this'} is {typed.type.a}"


def unknown_name(node: Node, path: str, variables: dict[str, Type]) -> Mistake:
    inside = [name for name in ATTRIBUTES if name.startswith(f"{path}.")]
    maps = [
        name for name, each in ATTRIBUTES.items() if each.type.kind == "map" and path.startswith(f"{name}.")
    ]
    near = did_you_mean(path, [*ATTRIBUTES, *UNITS, *variables])
    shown = path if len(path) <= 80 else path[:77] + "..."
    if inside:
        message = f"{path} is not a value by itself: write {', '.join(inside[:3])}"
        message += ", ..." if len(inside) > 3 else ""
    elif maps:
        message = f'{shown} is not an attribute: write {maps[0]}["{shown[len(maps[0]) + 1 :]}"]'
    elif near or "." in path:
        message = f"unknown attribute {shown}{near}"
    else:
        message = (
            f'unknown name {shown}; if it is text, write "{shown}"; if it is a tag, use --requires {shown}'
        )
    return Mistake(message, node.start, node.end)


def did_you_mean(name: str, known: list[str]) -> str:
    """Empty if nothing known is near."""
    instead = _ELSEWHERE.get(name)
    if instead in known:
        return f"; did you mean {instead}?"
    ends = [each for each in known if each.partition(".")[2] == name or each.lower() == name.lower()]
    close = ends or get_close_matches(name[:80], known, n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""
