"""Expressions of `--where` and `--rank`: checked when they are made, compiled when they are first evaluated."""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tercel.core.attributes import ATTRIBUTES, BOOL, Of
from tercel.core.cel.check import check
from tercel.core.cel.columns import Columns, absent, vectorisable
from tercel.core.cel.compile import Function, constant, function, reads_nothing
from tercel.core.cel.cost import check_cost
from tercel.core.cel.mistakes import Mistake, expression_error
from tercel.core.cel.parse import parse
from tercel.core.cel.run import EXHAUSTED, FAULTS, Attributes, Missing, Value, missing
from tercel.core.cel.tree import Typed

if TYPE_CHECKING:
    import numpy

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Expression:
    """Made by `where` and `rank`. Immutable; two with the same text are equal."""

    text: str
    attributes: frozenset[str]
    """Full names of what it reads, as in ATTRIBUTES."""
    keys: frozenset[str]
    """Those keys of worker.resource that are written out in it."""
    live: bool
    """Whether it reads anything that changes while a worker runs;"""
    pair: bool
    """that belongs to a task and a worker together;"""
    per_task: bool
    """that belongs to the single task."""
    tree: Typed

    def __init__(self, text: str, tree: Typed) -> None:
        self.text = text
        self.tree = tree
        nodes = list(tree.walk())
        self.attributes = frozenset(str(node.value) for node in nodes if node.op in ("attr", "has"))
        self.keys = frozenset(key for node in nodes if (key := _literal_key(node)) is not None)
        kinds = {ATTRIBUTES[name].of for name in self.attributes}
        self.live, self.pair, self.per_task = (of in kinds for of in (Of.LIVE, Of.PAIR, Of.TASK))
        self._quick: Function = self._first

    def evaluate(self, attributes: Attributes) -> Value | Missing:
        """`attributes`: values by full names; one that is not there is missing. Never raises."""
        try:
            try:
                return self._quick(attributes)
            except FAULTS:
                pass
            return self._careful(attributes)
        except (*FAULTS, *EXHAUSTED) as fault:
            return missing(fault)

    def over(self, columns: "Mapping[str, numpy.ndarray | Value]") -> "numpy.ndarray":
        """As `evaluate`, for all at once: columns of numbers, true or false; what is one value is the same for all.

        A NaN in a column, or in the result, is a missing value; true is 1.0. Of a map, give a map of columns.
        Raises TypeError if something else than numbers is a column: never if it is `vectorisable`, where text is
        the job's alone.
        """
        try:
            return self._columns.over(columns)
        except EXHAUSTED:
            return absent(columns)

    @cached_property
    def vectorisable(self) -> bool:
        return vectorisable(self.tree)

    @cached_property
    def _columns(self) -> Columns:
        return Columns(self.tree)

    def _first(self, attributes: Attributes) -> Value:
        self._quick = function(self.tree, careful=False)
        return self._quick(attributes)

    @cached_property
    def _careful(self) -> Function:
        return function(self.tree, careful=True)

    @cached_property
    def clauses(self) -> tuple["Expression", ...]:
        """What must hold: the parts between top-level `&&`; itself if there are none."""
        if self.tree.op != "and":
            return (self,)
        return tuple(Expression(self.text[part.start : part.end], part) for part in self.tree.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _literal_key(node: Typed) -> str | None:
    """Of worker.resource, or of whatever map there may be."""
    if node.op == "key":
        key = node.parts[1]
    elif node.op == "in_map":
        key = node.parts[0]
    else:
        return None
    return key.value if isinstance(key.value, str) and key.op == "const" else None


@lru_cache(10_000)
def where(text: str, field: str = "where") -> Expression:
    """A condition on workers, asked once per job. Raises ExpressionError."""
    return _made(text, field, condition=True)


@lru_cache(10_000)
def rank(text: str, field: str = "rank") -> Expression:
    """A number: the higher, the better a worker for a task. Raises ExpressionError."""
    return _made(text, field, condition=False)


def _made(text: str, field: str, condition: bool) -> Expression:
    try:
        tree = check(parse(text), per_task=not condition)
        if condition and tree.type != BOOL:
            message = f"this must be true or false, as in worker.os == 'linux'; it is {tree.type.a}"
            raise Mistake(message, tree.start, tree.end)
        if not condition and not tree.type.is_number:
            raise Mistake(f"this must be a number; it is {tree.type.a}", tree.start, tree.end)
        check_cost(tree)
    except Mistake as mistake:
        raise expression_error(mistake, text, field) from None
    return Expression(text, tree)


def comparison(expression: Expression) -> tuple[str, str, Value] | None:
    """`("worker.gpu.mem", ">=", 42949672960)`, if the expression compares an attribute with a constant."""
    op = _COMPARISONS.get(expression.tree.op)
    if op is None:
        return None
    left, right = expression.tree.parts
    if left.op != "attr":
        left, right, op = right, left, _MIRRORED[op]
    if left.op != "attr" or not reads_nothing(right):
        return None
    try:
        return str(left.value), op, constant(right)
    except (*FAULTS, *EXHAUSTED):
        return None
