"""Expressions: a small CEL (Common Expression Language) of our own. Why: docs/explanation/expressions.md.

where('worker.mem_free >= 8*GB && worker.os == "linux"').evaluate({"worker.mem_free": 2**34, "worker.os": "linux"})

tokens -> parse -> check (names, functions, patterns, cost; what is wrong: mistakes) -> compile (with run), columns -> expression
"""

from tercel.core.cel.expression import Expression, comparison, rank, where
from tercel.core.cel.mistakes import ExpressionError
from tercel.core.cel.run import Missing, Value

__all__ = ["Expression", "ExpressionError", "Missing", "Value", "comparison", "rank", "where"]
