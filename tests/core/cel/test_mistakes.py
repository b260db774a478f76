"""What is said about expressions that cannot be used; and that nothing else ever happens to them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.attributes import ATTRIBUTES
from tercel.core.cel import ExpressionError, Missing, rank, where
from tercel.core.errors import UsageError

pytestmark = pytest.mark.must("d")

BLOCKS = [
    block
    for block in (Path(__file__).parent / "wrong.txt").read_text().split("\n\n")
    if block.startswith(">")
]


@pytest.mark.parametrize("block", BLOCKS, ids=[block.partition("\n")[0] for block in BLOCKS])
def test_a_mistake_is_shown_at_its_place(block: str) -> None:
    first, _, message = block.rstrip("\n").partition("\n")
    mark, _, text = first.partition(" ")
    with pytest.raises(ExpressionError) as caught:
        (rank if mark == ">>" else where)(text)
    assert str(caught.value) == message
    assert isinstance(caught.value, UsageError)
    assert caught.value.field == ("rank" if mark == ">>" else "where")


def refusal(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        where(text)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_expression_is_a_mistake(text: str) -> None:
    assert refusal(text) == "--where: the expression is empty"


def test_only_the_line_with_the_mistake_is_shown() -> None:
    text = 'worker.os == "linux" &&\n  worker.mem_fre > 1 &&\n  true'
    assert refusal(text) == (
        "--where: unknown attribute worker.mem_fre; did you mean worker.mem_free?\n"
        "    worker.mem_fre > 1 &&\n"
        "    ^^^^^^^^^^^^^^"
    )


def test_what_cannot_be_printed_is_shown_as_a_dot() -> None:
    assert refusal("1 \x1b[31m > 0") == "--where: unexpected U+001B\n  1 ·[31m > 0\n    ^"
    assert refusal("'\udc80' == ''") == ("--where: this character is not valid Unicode\n  '·' == ''\n   ^")


def test_the_mistake_carries_the_name_of_its_field() -> None:
    with pytest.raises(ExpressionError) as caught:
        where("1", "only")
    assert caught.value.field == "only" and str(caught.value).startswith("--only: ")


# -- too much ---------------------------------------------------------------------------------------------


def test_an_expression_of_ten_thousand_characters_is_refused() -> None:
    assert refusal("1 == 1 && " * 999 + "true").startswith(
        "--where: the expression is 9,994 characters long; at most 4,096\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "(" * 2000 + "true" + ")" * 2000,
        "(" * 4000,
        "[" * 2000 + "]" * 2000 + " == []",
        "!" * 4000 + "true",
        "- " * 2000 + "1 == 1",
        "true ? true : " * 250 + "true",
        "worker.tags[" * 300 + "0" + "]" * 300 + " == 'a'",
        "size(" * 600 + "'a'" + ")" * 600 + " == 1",
        "min(1," * 500 + "1" + ")" * 500 + " == 1",
        "worker.tags.exists(a," * 150 + "true" + ")" * 150,
        "has(" * 800 + ")" * 800,
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert " more than 50 levels deep\n" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "1" + "+1" * 2000 + " > 0",
        "1" + "-1" * 101 + " > 0",
        "'a'" + "+'a'" * 500 + " == ''",
        "x" + ".a" * 2000,
    ],
)
def test_a_long_row_of_operations_is_refused(text: str) -> None:
    assert "--where: more than 100 operations in one another, or in a row\n" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        " || ".join(f"worker.name=='w{at}'" for at in range(180)),
        " && ".join(["true"] * 500),
        "1" + "+1" * 98 + " == 99",
        "(" * 49 + "true" + ")" * 49,
        "(1+" * 49 + "1" + ")" * 49 + " == 50",
        "!" * 48 + "true",
        "(1*(1+" * 24 + "1" + "))" * 24 + " == 25",
        "'a' in [" + ",".join(["'a'"] * 900) + "]",
    ],
)
def test_what_is_long_but_within_the_limits_is_evaluated(text: str) -> None:
    assert where(text).evaluate({"worker.name": "w179"}) is True


def test_huge_numbers_are_refused() -> None:
    assert "too large" in refusal("1" * 4000 + " > 0")
    assert "too large" in refusal("0x" + "f" * 4000 + " > 0")
    assert "too large" in refusal("1e" + "9" * 4000 + " > 0")
    assert "too large" in refusal("-9223372036854775809 > 0")


# -- garbage ----------------------------------------------------------------------------------------------

_NUMBERS = ["GB", "true", "null", "1", "2.5", "0x1", "9" * 20]
_TEXTS = ["'a'", '"b"', "r'\\d'", "//", "\n", "'", '"', "\\", "ä", "\0"]
_OPERATORS = "&& || ! == < + - * / % ? : . , ( ) [ ] in t has size int matches exists min string(".split()
_WORDS = st.sampled_from([*ATTRIBUTES, *_NUMBERS, *_TEXTS, *_OPERATORS, " ", ".exists(t,", ".startsWith("])


@settings(max_examples=1000, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(_WORDS, max_size=25).map("".join)))
def test_garbage_is_refused_or_evaluated_and_nothing_else(text: str) -> None:
    for make in (where, rank):
        try:
            expression = make(text)
        except ExpressionError as error:
            assert str(error).startswith(f"--{make.__name__}: ")
        else:
            assert isinstance(expression.evaluate({}), bool | int | float | Missing)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_are_refused_or_evaluated_and_nothing_else(data: bytes) -> None:
    for text in (data.decode("latin-1"), data.decode("utf-8", "surrogateescape")):
        try:
            where(text).evaluate({})
        except ExpressionError as error:
            assert str(error)
