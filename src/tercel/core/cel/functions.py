"""The functions of expressions: what each takes, and which operation it is for which types."""

from collections.abc import Callable

from tercel.core.attributes import BOOL, DOUBLE, INT, TEXT, Type
from tercel.core.cel.automaton import automaton
from tercel.core.cel.mistakes import Mistake
from tercel.core.cel.tree import Node, Typed

MAX_PATTERN = 200
"""Characters of a pattern."""

Made = tuple[str, Type]
"""The operation, and the type of its result."""


def call(name: str, node: Node, arguments: tuple[Typed, ...]) -> Typed:
    """Raises Mistake if the function does not take these."""
    takes, makes = _ALL[name]
    made = makes(tuple(argument.type for argument in arguments))
    if made is None:
        given = ", ".join(str(argument.type) for argument in arguments) or "nothing"
        hint = ": write x in list" if name == "contains" and arguments[0].type.kind == "list" else ""
        raise Mistake(f"{name}() takes {takes}; here {given}{hint}", *node.at)
    op, result = made
    if op != "matches":
        return Typed(op=op, type=result, start=node.start, end=node.end, parts=arguments, at=node.at)
    subject, pattern = arguments
    if pattern.op != "const" or not isinstance(pattern.value, str):
        raise Mistake("the pattern must be written out in the expression", pattern.start, pattern.end)
    _check_pattern(pattern.value, pattern)
    return Typed(
        op=op,
        type=result,
        start=node.start,
        end=node.end,
        parts=(subject,),
        value=pattern.value,
        at=node.at,
    )


def _check_pattern(text: str, place: Typed) -> None:
    if len(text) > MAX_PATTERN:
        message = f"the pattern is {len(text):,} characters long; at most {MAX_PATTERN}"
        raise Mistake(message, place.start, place.end)
    try:
        automaton(text)
    except ValueError as error:
        raise Mistake(f"wrong pattern: {error}", place.start, place.end) from None


def _size(types: tuple[Type, ...]) -> Made | None:
    return ("size", INT) if len(types) == 1 and types[0].kind in ("text", "list", "map") else None


def _int(types: tuple[Type, ...]) -> Made | None:
    made = {"int": "same", "double": "int_of_double", "text": "int_of_text"}
    return (made[types[0].kind], INT) if len(types) == 1 and types[0].kind in made else None


def _double(types: tuple[Type, ...]) -> Made | None:
    made = {"int": "double_of_number", "double": "double_of_number", "text": "double_of_text"}
    return (made[types[0].kind], DOUBLE) if len(types) == 1 and types[0].kind in made else None


def _string(types: tuple[Type, ...]) -> Made | None:
    made = {
        "int": "text_of_int",
        "double": "text_of_double",
        "bool": "text_of_bool",
        "text": "same",
    }
    return (made[types[0].kind], TEXT) if len(types) == 1 and types[0].kind in made else None


def _extreme(op: str) -> Callable[[tuple[Type, ...]], Made | None]:
    def made(types: tuple[Type, ...]) -> Made | None:
        if not types or not all(type.is_number for type in types):
            return None
        kind = DOUBLE if DOUBLE in types else INT
        return f"{op}_{kind.kind}", kind

    return made


def _abs(types: tuple[Type, ...]) -> Made | None:
    return (f"abs_{types[0].kind}", types[0]) if len(types) == 1 and types[0].is_number else None


def _of_texts(op: str) -> Callable[[tuple[Type, ...]], Made | None]:
    return lambda types: (op, BOOL) if types == (TEXT, TEXT) else None


_ALL: dict[str, tuple[str, Callable[[tuple[Type, ...]], Made | None]]] = {
    "size": ("text, a list or a map", _size),
    "int": ("a number or text", _int),
    "double": ("a number or text", _double),
    "string": ("a number, text or true/false", _string),
    "min": ("numbers", _extreme("min")),
    "max": ("numbers", _extreme("max")),
    "abs": ("a number", _abs),
    "matches": ("text and a pattern", _of_texts("matches")),
    "startsWith": ("text, of text", _of_texts("starts_with")),
    "endsWith": ("text, of text", _of_texts("ends_with")),
    "contains": ("text, of text", _of_texts("contains")),
}

FUNCTIONS = frozenset({"size", "int", "double", "string", "min", "max", "abs", "matches"})
"""Called as f(x)."""
METHODS = frozenset({"size", "matches", "startsWith", "endsWith", "contains"})
"""Called as x.f()."""
