"""From a checked tree to a Python function: `where` becomes about what one would have written by hand.

Each operation is a piece of Python's syntax tree, built here; the user's text is nowhere in it but as constants.

There are two ways. The quick one uses Python's `and` and `or`: as long as nothing is missing they do what CEL's `&&` and
`||` do. If it raises, the careful one is run, in which a fault of one side is forgotten if the other side decides.
"""

import ast
import math
from collections.abc import Callable
from typing import cast

from tercel.core.attributes import DOUBLE, INT
from tercel.core.cel import run
from tercel.core.cel.run import FAULTS, Attributes, Value
from tercel.core.cel.tokens import MAX_INT, MIN_INT
from tercel.core.cel.tree import Typed

Function = Callable[[Attributes], Value]

_BINARY: dict[str, ast.operator] = {"add": ast.Add(), "sub": ast.Sub(), "mul": ast.Mult()}
_COMPARE: dict[str, ast.cmpop] = {
    "eq": ast.Eq(),
    "ne": ast.NotEq(),
    "lt": ast.Lt(),
    "le": ast.LtE(),
    "gt": ast.Gt(),
    "ge": ast.GtE(),
    "in_list": ast.In(),
    "in_map": ast.In(),
}
_CALLS: dict[str, Callable[..., object]] = {
    "div_int": run.div_int,
    "div_double": run.div_double,
    "mod_int": run.mod_int,
    "min_int": min,
    "max_int": max,
    "min_double": run.min_double,
    "max_double": run.max_double,
    "abs_double": abs,
    "size": len,
    "int_of_double": run.int_of_double,
    "int_of_text": run.int_of_text,
    "double_of_number": float,
    "double_of_text": run.double_of_text,
    "text_of_int": str,
    "text_of_double": run.text_of_double,
    "text_of_bool": run.text_of_bool,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": str.__contains__,
    "matches": run.matches,
    "key": run.key,
    "item": run.item,
    "join": run.join,
    "equal": run.equal,
    "in_deep": run.in_deep,
    "every": run.every,
    "some": run.some,
    "every_of": run.every_of,
    "some_of": run.some_of,
    "overflow": run.overflow,
    "not_finite": run.not_finite,
    "any": any,
    "all": all,
    "map": map,
}
_GLOBALS: dict[str, object] = {"__builtins__": {}, **_CALLS}


def function(tree: Typed, careful: bool) -> Function:
    """What evaluates the tree; it raises one of FAULTS. A number that is not finite is no value."""
    writer = _Writer(careful)
    body = writer.write(tree)
    if tree.type == DOUBLE:
        bounds = (ast.Constant(-math.inf), ast.Constant(math.inf))
        body = writer.bounded(body, bounds, ast.Lt(), lambda value: _call("not_finite", value))
    return _compiled(body)


def constant(tree: Typed) -> Value:
    """The value of a tree that reads nothing. Raises one of FAULTS."""
    if tree.op == "const":
        return tree.value
    return _compiled(_Writer(careful=True, folding=False).write(tree))({})


def part(tree: Typed) -> Function:
    """What evaluates a part of an expression, as the careful way would."""
    return _compiled(_Writer(careful=True).write(tree))


def reads_nothing(tree: Typed) -> bool:
    return all(node.op not in ("attr", "has", "var") for node in tree.walk())


def _compiled(body: ast.expr) -> Function:
    whole = ast.fix_missing_locations(ast.Expression(_lambda(["m"], body)))
    # Built from the checked tree alone, without builtins.
    return cast(Function, eval(compile(whole, "<expression>", "eval"), dict(_GLOBALS)))  # noqa: S307


class _Writer:
    def __init__(self, careful: bool, folding: bool = True) -> None:
        self.careful = careful
        self.folding = folding
        """Whether parts that read nothing are worked out now."""
        self.variables: dict[str, str] = {}
        self.temporaries = 0

    def write(self, node: Typed) -> ast.expr:
        if node.op == "const":
            return ast.Constant(node.value)
        if not (self.folding and node.parts and reads_nothing(node)):
            return self.operation(node)
        try:
            return ast.Constant(constant(node))  # type: ignore[arg-type]  # tuples of constants are constants
        except FAULTS:
            # It has no value, and says so whenever it is asked for; as may its parts.
            self.folding = False
            written = self.operation(node)
            self.folding = True
            return written

    def operation(self, node: Typed) -> ast.expr:
        op, parts = node.op, node.parts
        name, _, kind = op.partition("_")
        if op == "attr":
            return ast.Subscript(ast.Name("m", ast.Load()), ast.Constant(node.value), ast.Load())
        if op == "var":
            return ast.Name(self.variables[str(node.value)], ast.Load())
        if op == "has":
            return ast.Compare(ast.Constant(node.value), [ast.In()], [ast.Name("m", ast.Load())])
        if op in ("and", "or"):
            return self.logic(op, parts)
        if op in ("exists", "all"):
            return self.loop(op, node)
        if name in _BINARY and kind:
            return self.arithmetic(name, node)
        if name == "neg" or op == "abs_int":
            return self.sign(name, node)
        if op in ("key", "item"):
            owner = parts[0].value if parts[0].op == "attr" else ""
            return _call(op, *map(self.write, parts), ast.Constant(owner))
        written = [self.write(part) for part in parts]
        match op:
            case "same":
                return written[0]
            case "not":
                return ast.UnaryOp(ast.Not(), written[0])
            case "if":
                return self.choice(node, written)
            case "list":
                return ast.Tuple(written, ast.Load())
            case "concat":
                return ast.BinOp(written[0], ast.Add(), written[1])
            case "eq_deep":
                return _call("equal", *written)
            case "ne_deep":
                return ast.UnaryOp(ast.Not(), _call("equal", *written))
            case "matches":
                return _call("matches", written[0], ast.Constant(node.value))
            case "div_double" if parts[1].op == "const" and parts[1].value:
                return ast.BinOp(written[0], ast.Div(), ast.Constant(float(parts[1].value)))
            case "min_int" | "max_int" if len(written) == 1:
                return written[0]
        if op in _COMPARE:
            return ast.Compare(written[0], [_COMPARE[op]], [written[1]])
        return _call(op, *written)

    def logic(self, op: str, parts: tuple[Typed, ...]) -> ast.expr:
        written = [self.write(part) for part in parts]
        if self.careful:
            return _call("every" if op == "and" else "some", *(_lambda([], part) for part in written))
        return ast.BoolOp(ast.And() if op == "and" else ast.Or(), written)

    def loop(self, op: str, node: Typed) -> ast.expr:
        values = self.write(node.parts[0])
        word = str(node.value)
        self.variables[word] = f"v{len(self.variables)}"
        condition = _lambda([self.variables[word]], self.write(node.parts[1]))
        del self.variables[word]
        if self.careful:
            return _call("some_of" if op == "exists" else "every_of", condition, values)
        return _call("any" if op == "exists" else "all", _call("map", condition, values))

    def choice(self, node: Typed, written: list[ast.expr]) -> ast.expr:
        """If one value is a double, both are."""
        for at in (1, 2):
            if node.type == DOUBLE and node.parts[at].type == INT:
                written[at] = _call("double_of_number", written[at])
        return ast.IfExp(written[0], written[1], written[2])

    def arithmetic(self, name: str, node: Typed) -> ast.expr:
        left, right = (self.write(part) for part in node.parts)
        if node.type == INT:
            return self.checked(ast.BinOp(left, _BINARY[name], right))
        # One side is made a double, so that a whole number given for a double does not make this exact.
        if isinstance(left, ast.Constant) and isinstance(left.value, int):
            left = ast.Constant(float(left.value))
        elif isinstance(right, ast.Constant) and isinstance(right.value, int):
            right = ast.Constant(float(right.value))
        elif not (_is_double(left) or _is_double(right)):
            left = _call("double_of_number", left)
        return ast.BinOp(left, _BINARY[name], right)

    def sign(self, name: str, node: Typed) -> ast.expr:
        written = self.write(node.parts[0])
        if name == "abs":
            return self.checked(_call("abs_double", written))
        negated = ast.UnaryOp(ast.USub(), written)
        return self.checked(negated) if node.type == INT else negated

    def checked(self, value: ast.expr) -> ast.expr:
        """The value, or an overflow."""
        bounds = (ast.Constant(MIN_INT), ast.Constant(MAX_INT))
        return self.bounded(value, bounds, ast.LtE(), lambda _: _call("overflow"))

    def bounded(
        self,
        value: ast.expr,
        bounds: tuple[ast.expr, ast.expr],
        op: ast.cmpop,
        otherwise: Callable[[ast.expr], ast.expr],
    ) -> ast.expr:
        """`t if low <= (t := value) <= high else otherwise(t)`"""
        name = f"t{self.temporaries}"
        self.temporaries += 1
        kept = ast.Name(name, ast.Load())
        test = ast.Compare(
            bounds[0], [op, op], [ast.NamedExpr(ast.Name(name, ast.Store()), value), bounds[1]]
        )
        return ast.IfExp(test, kept, otherwise(kept))


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _lambda(names: list[str], body: ast.expr) -> ast.Lambda:
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    return ast.Lambda(arguments, body)


def _is_double(written: ast.expr) -> bool:
    """Whether it is certainly no whole number when it is evaluated."""
    match written:
        case ast.Constant(value=float()) | ast.BinOp():  # of whole numbers, a BinOp is within a check
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in ("double_of_number", "double_of_text", "div_double")
    return False
