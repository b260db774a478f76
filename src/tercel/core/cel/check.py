"""Finds out what an expression means, or says what is wrong with it, before anything is evaluated.

Resolves names by the table of attributes, operators and functions by the types of what they are given.
"""

from tercel.core.attributes import (
    ATTRIBUTES,
    BOOL,
    DOUBLE,
    INT,
    NOTHING,
    NULL,
    TEXT,
    VERSIONS,
    Attribute,
    Of,
    Type,
)
from tercel.core.cel.automaton import MAX_WORK, automaton
from tercel.core.cel.functions import FUNCTIONS, METHODS, call
from tercel.core.cel.mistakes import Mistake
from tercel.core.cel.names import did_you_mean, path_of, unknown_name, what_it_is
from tercel.core.cel.tokens import UNITS
from tercel.core.cel.tree import Node, Typed

_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod"}
_ORDER = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_EQUALITY = {"==": "eq", "!=": "ne"}
_MACROS = ("exists", "all")


def check(node: Node, per_task: bool) -> Typed:
    """`per_task`: whether attributes of the single task may be read. Raises Mistake."""
    return _Checker(per_task).check(node)


class _Checker:
    def __init__(self, per_task: bool) -> None:
        self.per_task = per_task
        self.variables: dict[str, Type] = {}
        self.work = 0
        """How much went into patterns."""

    def check(self, node: Node) -> Typed:
        match node.op:
            case "literal":
                return self.typed(node, "const", _literal_type(node.value), value=node.value)
            case "name" | ".":
                return self.named(node)
            case "[]":
                return self.indexed(node)
            case "list":
                return self.list_of(node)
            case "call":
                return self.called(node)
            case "method":
                return self.method(node)
            case "&&" | "||":
                parts = tuple(self.condition(part, f"`{node.op}` is for") for part in node.parts)
                return self.typed(node, "and" if node.op == "&&" else "or", BOOL, parts)
            case "!":
                return self.typed(node, "not", BOOL, (self.condition(node.parts[0], "`!` is for"),))
            case "minus":
                return self.minus(node)
            case "?:":
                return self.choice(node)
            case "in":
                return self.contained(node)
        return self.binary(node)

    def typed(
        self, node: Node, op: str, type: Type, parts: tuple[Typed, ...] = (), value: object = None
    ) -> Typed:
        assert value is None or isinstance(value, bool | int | float | str)
        return Typed(op=op, type=type, start=node.start, end=node.end, parts=parts, value=value, at=node.at)

    # -- names --------------------------------------------------------------------------------------------

    def named(self, node: Node) -> Typed:
        """An attribute, a unit, a variable; or a field of a map."""
        path = path_of(node)
        if path is None:
            return self.field(node)
        if path in self.variables:
            return self.typed(node, "var", self.variables[path], value=path)
        if path in UNITS:
            return self.typed(node, "const", INT, value=UNITS[path])
        if path in ATTRIBUTES:
            return self.typed(node, "attr", self.allowed(node, path).type, value=path)
        parent = path.rpartition(".")[0]
        if parent in ATTRIBUTES or parent.partition(".")[0] in self.variables:
            return self.field(node)
        raise unknown_name(node, path, self.variables)

    def allowed(self, node: Node, name: str) -> Attribute:
        attribute = ATTRIBUTES[name]
        if attribute.of in (Of.PAIR, Of.TASK) and not self.per_task:
            message = f"{name} differs from task to task; where is asked once per job: use it in --rank"
            raise Mistake(message, node.start, node.end)
        return attribute

    def field(self, node: Node) -> Typed:
        owner = self.check(node.parts[0])
        if owner.type.kind == "map" and owner.type.element is not None:
            key = Typed(op="const", type=TEXT, start=node.at[0], end=node.at[1], value=node.value)
            return self.typed(node, "key", owner.type.element, (owner, key))
        raise Mistake(f"{what_it_is(node.parts[0], owner)} and has no .{node.value}", *node.at)

    def indexed(self, node: Node) -> Typed:
        owner, index = (self.check(part) for part in node.parts)
        element = owner.type.element
        if owner.type.kind == "map" and element is not None:
            if index.type != TEXT:
                raise Mistake(f"the keys of a map are text, not {index.type}", index.start, index.end)
            return self.typed(node, "key", element, (owner, index))
        if owner.type.kind == "list" and element is not None:
            if index.type != INT:
                kind = "a fraction" if index.type == DOUBLE else f"{index.type}"
                raise Mistake(f"the places of a list are whole numbers, not {kind}", index.start, index.end)
            if element == NOTHING:
                raise Mistake("this list is always empty", owner.start, owner.end)
            return self.typed(node, "item", element, (owner, index))
        raise Mistake(f"[] is for lists and maps; {what_it_is(node.parts[0], owner)}", *node.at)

    def list_of(self, node: Node) -> Typed:
        items = tuple(self.check(part) for part in node.parts)
        element = NOTHING
        for item in items:
            common = _common(element, item.type)
            if common is None:
                message = f"a list holds values of one kind; here {element} and {item.type}"
                raise Mistake(message, item.start, item.end)
            element = common
        return self.typed(node, "list", Type("list", element), items)

    # -- operators ----------------------------------------------------------------------------------------

    def condition(self, part: Node, what: str) -> Typed:
        typed = self.check(part)
        if typed.type != BOOL:
            message = f"{what} what is true or false; this is {typed.type.a}"
            raise Mistake(message, part.start, part.end)
        return typed

    def minus(self, node: Node) -> Typed:
        operand = self.check(node.parts[0])
        if not operand.type.is_number:
            raise Mistake(f"`-` is for numbers; this is {operand.type.a}", *node.at)
        return self.typed(node, f"neg_{operand.type.kind}", operand.type, (operand,))

    def choice(self, node: Node) -> Typed:
        condition = self.condition(node.parts[0], "before `?` comes")
        then, otherwise = self.check(node.parts[1]), self.check(node.parts[2])
        common = _common(then.type, otherwise.type)
        if common is None:
            message = f"both values of `?:` must be of one kind; here {then.type} and {otherwise.type}"
            raise Mistake(message, *node.at)
        return self.typed(node, "if", common, (condition, then, otherwise))

    def contained(self, node: Node) -> Typed:
        item, whole = (self.check(part) for part in node.parts)
        kind, element = whole.type.kind, whole.type.element
        if kind == "map" and item.type == TEXT:
            return self.typed(node, "in_map", BOOL, (item, whole))
        if kind == "list" and element is not None and _common(item.type, element) is not None:
            plain = item.type in (TEXT, INT, BOOL)
            return self.typed(node, "in_list" if plain else "in_deep", BOOL, (item, whole))
        if kind in ("map", "list"):
            message = (
                f"`in` looks for {element if kind == 'list' else TEXT} in a {whole.type}; here {item.type}"
            )
        else:
            message = f"`in` looks into a list or a map; here {whole.type}"
            message += ": use .contains()" if item.type == whole.type == TEXT else ""
        raise Mistake(message, *node.at)

    def binary(self, node: Node) -> Typed:
        left, right = (self.check(part) for part in node.parts)
        op, a, b = node.op, left.type, right.type
        numbers = a.is_number and b.is_number
        common = _common(a, b)
        if op in _EQUALITY:
            return self.equality(node, left, right)
        if op in _ORDER:
            self.no_version(node, left, right)
            if numbers or a == b == TEXT or a == b == BOOL:
                return self.typed(node, _ORDER[op], BOOL, (left, right))
            raise Mistake(
                f"`{op}` compares numbers with numbers or text with text; here {a} and {b}", *node.at
            )
        if numbers and common is not None:
            if op == "%" and common == DOUBLE:
                raise Mistake("`%` is for whole numbers; here is one with a fraction: use int()", *node.at)
            return self.typed(node, f"{_ARITHMETIC[op]}_{common.kind}", common, (left, right))
        if op == "+" and common is not None and (common == TEXT or common.kind == "list"):
            return self.typed(node, "concat" if common == TEXT else "join", common, (left, right))
        more = ", or joins text with text, or lists" if op == "+" else ""
        raise Mistake(f"`{op}` is for numbers{more}; here {a} and {b}", *node.at)

    def no_version(self, node: Node, *sides: Typed) -> None:
        """`worker.python >= "3.9"` would be false of 3.11."""
        for side in sides:
            if side.op == "attr" and side.value in VERSIONS:
                hint = f'write {side.value}.startsWith("{VERSIONS[side.value]}")'
                message = f"`{node.op}`: versions are text, and 3.11 comes before 3.9: {hint}"
                raise Mistake(message, *node.at)

    def equality(self, node: Node, left: Typed, right: Typed) -> Typed:
        common = _common(left.type, right.type)
        if common is None:
            if NULL in (left.type, right.type):
                side = node.parts[0] if right.type == NULL else node.parts[1]
                path = path_of(side)
                hint = f": to ask whether it is there, write has({path})" if path in ATTRIBUTES else ""
                raise Mistake(f"`{node.op}`: {path or 'this'} is never null{hint}", *node.at)
            message = f"`{node.op}` compares values of one kind; here {left.type} and {right.type}"
            raise Mistake(message, *node.at)
        deep = "_deep" if common.kind in ("list", "map") else ""
        return self.typed(node, _EQUALITY[node.op] + deep, BOOL, (left, right))

    # -- functions ----------------------------------------------------------------------------------------

    def called(self, node: Node) -> Typed:
        name = str(node.value)
        if name == "has":
            return self.has(node)
        if name not in FUNCTIONS:
            if name in METHODS or name in _MACROS:
                raise Mistake(f"write x.{name}(...) instead of {name}(x, ...)", *node.at)
            raise Mistake(f"there is no function {name}{did_you_mean(name, [*FUNCTIONS, 'has'])}", *node.at)
        return self.call(node)

    def call(self, node: Node) -> Typed:
        typed = call(str(node.value), node, tuple(self.check(part) for part in node.parts))
        if typed.op == "matches":
            self.work += automaton(str(typed.value)).program.work
            if self.work > 2 * MAX_WORK:
                raise Mistake("the patterns are too complicated together", *node.at)
        return typed

    def method(self, node: Node) -> Typed:
        name = str(node.value)
        if name in _MACROS:
            return self.macro(node)
        if name not in METHODS:
            if name in FUNCTIONS or name == "has":
                raise Mistake(f"write {name}(x) instead of x.{name}()", *node.at)
            raise Mistake(
                f"there is no function .{name}(){did_you_mean(name, [*METHODS, *_MACROS])}", *node.at
            )
        return self.call(node)

    def has(self, node: Node) -> Typed:
        if len(node.parts) != 1:
            raise Mistake("has() takes one attribute, as in has(worker.gpu.mem)", *node.at)
        part = node.parts[0]
        if part.op == ".":
            typed = self.check(part)
            if typed.op == "attr":
                return self.typed(node, "has", BOOL, value=typed.value)
            if typed.op == "key":
                key, whole = typed.parts[1], typed.parts[0]
                return self.typed(node, "in_map", BOOL, (key, whole))
        hint = ' (for a key of a map, write "key" in map)' if part.op == "[]" else ""
        raise Mistake(f"has() takes one attribute, as in has(worker.gpu.mem){hint}", part.start, part.end)

    def macro(self, node: Node) -> Typed:
        """`list.exists(x, condition)`: the condition is about x, each of the list in turn."""
        name = str(node.value)
        if len(node.parts) != 3 or node.parts[1].op != "name":
            raise Mistake(f".{name}() takes a name and a condition, as in tags.{name}(t, t == 'a')", *node.at)
        values = self.check(node.parts[0])
        if values.type.kind != "list" or values.type.element is None:
            raise Mistake(f".{name}() is for lists; {what_it_is(node.parts[0], values)}", *node.at)
        if values.type.element == NOTHING:
            raise Mistake("this list is always empty", values.start, values.end)
        variable = node.parts[1]
        word = str(variable.value)
        if word in self.variables or word in UNITS or word in ("worker", "task"):
            raise Mistake(f"{word} is taken: choose another name", variable.start, variable.end)
        self.variables[word] = values.type.element
        condition = self.condition(node.parts[2], f".{name}() asks")
        del self.variables[word]
        return self.typed(node, name, BOOL, (values, condition), word)


def _literal_type(value: object) -> Type:
    match value:
        case bool():
            return BOOL
        case int():
            return INT
        case float():
            return DOUBLE
        case str():
            return TEXT
    return NULL


def _common(a: Type, b: Type) -> Type | None:
    """The type of what may be either."""
    if a == b or b == NOTHING:
        return a
    if a == NOTHING:
        return b
    if a.is_number and b.is_number:
        return DOUBLE
    if a.kind == b.kind == "list" and a.element is not None and b.element is not None:
        element = _common(a.element, b.element)
        return None if element is None else Type("list", element)
    return None
