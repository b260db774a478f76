"""Random expressions mean the same to us, to a naive evaluator, and to Google's implementation of CEL."""

import math

import numpy
import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_math
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tercel.core.cel import Expression, ExpressionError, Missing, rank, where
from tests.core.cel.growing import (
    KEYS,
    NAMES,
    NOTHING,
    Tree,
    naive,
    strict_cel,
    surroundings,
    trees,
    written,
)

pytestmark = pytest.mark.O(10)

_TYPES = {
    "int": cel.Type.INT,
    "double": cel.Type.DOUBLE,
    "text": cel.Type.STRING,
    "texts": cel.Type.List(cel.Type.STRING),
}
GOOGLE = cel.NewEnv(
    variables={name: _TYPES[type] for type, names in NAMES.items() for name in names}
    | {"worker.resource": cel.Type.Map(cel.Type.STRING, cel.Type.DOUBLE)},
    extensions=[ext_math.ExtMath()],
)


def same(ours: object, theirs: object) -> bool:
    """Infinite and NaN are no values here."""
    if isinstance(theirs, float) and not math.isfinite(theirs):
        theirs = NOTHING
    if isinstance(ours, Missing) or theirs is NOTHING:
        return isinstance(ours, Missing) and theirs is NOTHING
    return type(ours) is type(theirs) and ours == theirs


def asked_of_google(tree: Tree, given: dict[str, object]) -> object:
    text = written(tree, google=given)
    answer = GOOGLE.compile(text).eval(
        data={name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    )
    return NOTHING if answer.type() == cel.Type.ERROR else answer.plain_value()


def made(tree: Tree) -> Expression:
    """What would go through many tags with too much to do for each is refused, and says nothing about meaning."""
    try:
        return where(written(tree)) if tree.type == "bool" else rank(written(tree))
    except ExpressionError as error:
        assume("could take very long" not in str(error))
        raise


ANY = st.sampled_from(["bool", "bool", "int", "double"]).flatmap(trees)


@settings(max_examples=400, deadline=None)
@given(ANY, surroundings())
def test_an_expression_means_what_it_means_to_a_naive_evaluator(tree: Tree, given: dict[str, object]) -> None:
    expression = made(tree)
    assert same(expression.evaluate(given), naive(tree, given)), expression.text


@settings(max_examples=400, deadline=None)
@given(ANY.filter(strict_cel), surroundings())
def test_an_expression_means_what_it_means_to_google(tree: Tree, given: dict[str, object]) -> None:
    expression = made(tree)
    assert same(expression.evaluate(given), asked_of_google(tree, given)), expression.text


@settings(max_examples=150, deadline=None)
@given(trees("bool"), surroundings())
def test_the_clauses_hold_together_if_and_only_if_the_whole_does(
    tree: Tree, given: dict[str, object]
) -> None:
    expression = made(tree)
    parts = [clause.evaluate(given) for clause in expression.clauses]
    whole = expression.evaluate(given)
    assert (whole is True) == all(part is True for part in parts)
    assert (whole is False) == any(part is False for part in parts)
    for clause in expression.clauses:
        assert where(clause.text).evaluate(given) == clause.evaluate(given)


# -- many at once -----------------------------------------------------------------------------------------

ROWS = st.lists(surroundings(), min_size=1, max_size=6)
NUMBERS = [*NAMES["int"], *NAMES["double"]]


def columns_of(rows: list[dict[str, object]]) -> dict[str, object]:
    """Of whole numbers if none is missing; otherwise doubles, with NaN for what is missing."""
    made: dict[str, object] = {}
    for name in NUMBERS:
        values = [row.get(name) for row in rows]
        made[name] = column(values, name in NAMES["int"])
    if all("worker.resource" in row for row in rows):
        made["worker.resource"] = {
            key: column([row["worker.resource"].get(key) for row in rows], whole=False)  # type: ignore[attr-defined]
            for key in KEYS
        }
    return made


def column(values: list[object], whole: bool) -> numpy.ndarray:
    if whole and None not in values:
        return numpy.array(values, dtype=numpy.int64)
    return numpy.array([math.nan if value is None else value for value in values], dtype=numpy.float64)


def rounded(row: dict[str, object], columns: dict[str, object]) -> dict[str, object]:
    """What a row is after it has been put into columns: of doubles, large whole numbers are not exact."""
    made: dict[str, object] = {}
    for name in NUMBERS:
        if name in row:
            value = row[name]
            if name in NAMES["int"] and columns[name].dtype == numpy.float64:  # type: ignore[attr-defined]
                value = int(float(value))  # type: ignore[arg-type]
                if abs(value) >= 2**63:
                    continue
            made[name] = value
    if "worker.resource" in columns:
        made["worker.resource"] = row["worker.resource"]
    return made


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["bool", "int", "double"]).flatmap(lambda type: trees(type, numeric=True)), ROWS)
def test_over_columns_each_row_is_what_it_is_by_itself(tree: Tree, rows: list[dict[str, object]]) -> None:
    expression = made(tree)
    assert expression.vectorisable
    columns = columns_of(rows)
    found = expression.over(columns)  # type: ignore[arg-type]
    assert found.shape == (len(rows),) and found.dtype == numpy.float64
    for row, value in zip(rows, found, strict=True):
        alone = expression.evaluate(rounded(row, columns))
        if isinstance(alone, Missing):
            assert math.isnan(value), (expression.text, alone)
        else:
            assert value == float(alone), expression.text  # type: ignore[arg-type]
