"""From text to a tree, by CEL's grammar.

    Expr       = Or ["?" Or ":" Expr]
    Or         = And {"||" And}            And     = Relation {"&&" Relation}
    Relation   = Sum {("<" | "<=" | ">=" | ">" | "==" | "!=" | "in") Sum}
    Sum        = Product {("+" | "-") Product}     Product = Unary {("*" | "/" | "%") Unary}
    Unary      = Member | "!" {"!"} Member | "-" {"-"} Member
    Member     = Primary {"." NAME ["(" Exprs ")"] | "[" Expr "]"}
    Primary    = NAME ["(" Exprs ")"] | "(" Expr ")" | "[" Exprs "]" | literal

Operators are parsed by precedence in one loop, without recursion, so that a level of nesting costs four calls.
"""

import msgspec

from tercel.core.cel.mistakes import Mistake
from tercel.core.cel.tokens import MAX_INT, Token, tokens, unit_meant
from tercel.core.cel.tree import MAX_HEIGHT, MAX_NESTING, Node, Scalar

_PRECEDENCE = {"||": 1, "&&": 2}
_PRECEDENCE |= dict.fromkeys(["<", "<=", ">=", ">", "==", "!=", "in"], 3)
_PRECEDENCE |= dict.fromkeys(["+", "-"], 4)
_PRECEDENCE |= dict.fromkeys(["*", "/", "%"], 5)
_WORDS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(
    "as break const continue else for function if import in let loop package namespace return var void while".split()
)
_INSTEAD = {"and": "&&", "or": "||", "not": "!", "is": "=="}
_PYTHON = {"True": "true", "False": "false", "None": "null"}


def parse(text: str) -> Node:
    """Raises Mistake."""
    return _Parser(tokens(text)).whole()


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self.tokens = found
        self.next = 0
        self.nesting = 0

    def whole(self) -> Node:
        node = self.expression()
        if self.token.kind != "end":
            raise self.unexpected("the expression should end here")
        return node

    # -- tokens -------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.next]

    def take(self) -> Token:
        token = self.tokens[self.next]
        self.next += 1
        return token

    def expect(self, kind: str, after: str) -> Token:
        if self.token.kind != kind:
            raise self.unexpected(f"{kind} is missing {after}")
        return self.take()

    def unexpected(self, why: str) -> Mistake:
        token = self.token
        if token.kind == "end":
            return Mistake(f"the expression ends too early: {why}", token.start, token.end)
        if token.kind == "name" and token.value in _INSTEAD:
            return Mistake(f"write {_INSTEAD[str(token.value)]} for {token.value}", token.start, token.end)
        before = self.tokens[max(0, self.next - 1)]
        if (
            token.kind == "name"
            and before.kind in ("int", "double")
            and (unit := unit_meant(str(token.value)))
        ):
            message = f"{before.value} {token.value} is not a number: write {before.value}*{unit}"
            return Mistake(message, before.start, token.end)
        word = "text" if token.kind == "string" else str(token.value)[:40]
        return Mistake(f"unexpected {word}: {why}", token.start, token.end)

    # -- nodes --------------------------------------------------------------------------------------------

    def node(
        self,
        op: str,
        start: int,
        end: int,
        parts: tuple[Node, ...] = (),
        value: Scalar = None,
        at: tuple[int, int] | None = None,
    ) -> Node:
        height = 1 + max((part.height for part in parts), default=0)
        if height > MAX_HEIGHT:
            message = f"more than {MAX_HEIGHT} operations in one another, or in a row"
            raise Mistake(message, *(at or (start, end)))
        return Node(
            op=op, start=start, end=end, parts=parts, value=value, height=height, at=at or (start, end)
        )

    def deeper(self) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise Mistake(f"nested more than {MAX_NESTING} levels deep", self.token.start, self.token.end)

    def expression(self) -> Node:
        self.deeper()
        node = self.operators()
        if self.token.kind == "?":
            question = self.take()
            then = self.operators()
            self.expect(":", "between the two values of ?:")
            otherwise = self.expression()
            node = self.node(
                "?:", node.start, otherwise.end, (node, then, otherwise), at=(question.start, question.end)
            )
        self.nesting -= 1
        return node

    def operators(self) -> Node:
        """A row of operators and what is between them; those that bind more tightly are joined first."""
        values = [self.unary()]
        waiting: list[Token] = []
        while True:
            precedence = _precedence(self.token)
            while waiting and _precedence(waiting[-1]) >= precedence:
                right = values.pop()
                values.append(self.joined(waiting.pop(), values.pop(), right))
            if not precedence:
                return values[0]
            waiting.append(self.take())
            values.append(self.unary())

    def joined(self, operator: Token, left: Node, right: Node) -> Node:
        op, at = str(operator.value), (operator.start, operator.end)
        if op not in ("&&", "||"):
            return self.node(op, left.start, right.end, (left, right), at=at)
        parts = [part for side in (left, right) for part in (side.parts if side.op == op else (side,))]
        return self.node(op, left.start, right.end, tuple(parts), at=at)

    def unary(self) -> Node:
        token = self.token
        if token.kind not in ("!", "-"):
            return self.members(self.primary())
        self.deeper()
        self.take()
        after = self.token
        if token.kind == "-" and after.kind == "int":
            # The sign belongs to the number: the smallest whole number has no positive counterpart.
            node = self.members(self.literal(-int(self.take().value), token.start, after.end))
        else:
            inner = self.unary()
            op = "!" if token.kind == "!" else "minus"
            node = self.node(op, token.start, inner.end, (inner,), at=(token.start, token.end))
        self.nesting -= 1
        return node

    def members(self, node: Node) -> Node:
        while True:
            if self.token.kind == ".":
                self.take()
                if self.token.kind != "name":
                    raise self.unexpected("a name must follow the dot")
                name = self.take()
                at = (name.start, name.end)
                if self.token.kind == "(":
                    arguments, end = self.arguments("(", ")")
                    node = self.node("method", node.start, end, (node, *arguments), str(name.value), at)
                else:
                    node = self.node(".", node.start, name.end, (node,), str(name.value), at)
            elif self.token.kind == "[":
                bracket = self.take()
                index = self.expression()
                end = self.expect("]", "after the index").end
                node = self.node("[]", node.start, end, (node, index), at=(bracket.start, end))
            else:
                return node

    def primary(self) -> Node:
        token = self.token
        if token.kind == "(":
            self.take()
            inner = self.expression()
            end = self.expect(")", "to close the parenthesis").end
            return msgspec.structs.replace(inner, start=token.start, end=end)
        if token.kind == "[":
            items, end = self.arguments("[", "]")
            return self.node("list", token.start, end, items)
        if token.kind in ("int", "double", "string"):
            self.take()
            return self.literal(token.value, token.start, token.end)
        if token.kind == "name":
            return self.name()
        raise self.unexpected("a value should stand here")

    def literal(self, value: Scalar, start: int, end: int) -> Node:
        if isinstance(value, int) and value > MAX_INT:
            raise Mistake(f"the number is too large: whole numbers go up to {MAX_INT}", start, end)
        return self.node("literal", start, end, value=value)

    def name(self) -> Node:
        token = self.token
        name = str(token.value)
        if name in _INSTEAD:
            raise self.unexpected("a value should stand here")
        if name in _RESERVED:
            raise Mistake(f"{name} is a reserved word", token.start, token.end)
        if name in _PYTHON:
            raise Mistake(f"write {_PYTHON[name]} for {name}", token.start, token.end)
        self.take()
        if name in _WORDS:
            return self.literal(_WORDS[name], token.start, token.end)
        if self.token.kind != "(":
            return self.node("name", token.start, token.end, value=name)
        arguments, end = self.arguments("(", ")")
        return self.node("call", token.start, end, arguments, name, (token.start, token.end))

    def arguments(self, opening: str, closing: str) -> tuple[tuple[Node, ...], int]:
        """Expressions with commas between them, and where the closing bracket ends."""
        self.take()
        found: list[Node] = []
        while self.token.kind != closing:
            found.append(self.expression())
            if self.token.kind != closing:
                self.expect(",", f"or {closing} to close {opening}")
                if opening == "(" and self.token.kind == closing:
                    raise self.unexpected("a value should stand here")
        return tuple(found), self.take().end


def _precedence(token: Token) -> int:
    """0 if it is no operator between two values."""
    if token.kind == "name":
        return _PRECEDENCE["in"] if token.value == "in" else 0
    return _PRECEDENCE.get(token.kind, 0)
