"""Patterns of matches(): as RE2 has them, and always quick."""

import re

import pytest
from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.cel.automaton import automaton
from tercel.core.cel.expression import where
from tercel.core.cel.mistakes import ExpressionError
from tercel.core.cel.run import Missing


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("", ["", "a"], []),
        ("^$", [""], ["a", "\n"]),
        ("a$", ["ba"], ["a\n", "ab"]),
        ("^w[0-9]+$", ["w07"], ["w", "xw0", "w0x"]),
        ("a.c", ["abc", "xa.cx"], ["ac", "a\nc"]),
        ("gpu|fpga", ["gpu", "an fpga"], ["pu"]),
        ("^(a|b|)c$", ["ac", "bc", "c"], ["abc"]),
        ("^a{2}$", ["aa"], ["a", "aaa"]),
        ("^a{2,}$", ["aa", "aaaa"], ["a"]),
        ("^a{1,2}$", ["a", "aa"], ["", "aaa"]),
        ("^a{,2}$", ["a{,2}"], ["a"]),
        ("^(?:ab)+?$", ["ab", "abab"], ["aba"]),
        ("(?i)a100", ["A100", "a100"], ["a10"]),
        ("(?i)^[^a]$", ["b"], ["A", "a"]),
        ("(?i)^[b-y]+Ä$", ["bYä"], ["aÄ", "Zä"]),
        (r"^\d\D\w\W\s\S$", ["1aa- x"], ["aaa- x"]),
        (r"^[\d_-]+$", ["1_-"], ["a"]),
        (r"^[]a]+$", ["]a"], ["b"]),
        (r"^[^]a]$", ["b"], ["]"]),
        (r"\bgpu\b", ["a gpu", "gpu-1"], ["gpu1", "xgpu"]),
        (r"a\Bb", ["ab"], ["a b"]),
        (r"^\x41\x{1F600}\t\.\\$", ["A\U0001f600\t.\\"], ["A"]),
        (r"\Aab\z", ["ab"], ["xab", "ab\n"]),
        ("^(()*|a*)*$", ["", "aaa"], ["b"]),
        ("^٣$", ["٣"], ["3"]),
        (r"^\d$", ["3"], ["٣"]),
    ],
)
def test_a_pattern_fits(pattern: str, fits: list[str], fits_not: list[str]) -> None:
    assert all(automaton(pattern).matches(text) for text in fits)
    assert not any(automaton(pattern).matches(text) for text in fits_not)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "a ) is missing"),
        ("a)", "there is a ) too many"),
        ("*a", "nothing to repeat before *"),
        ("a+*", "two repetitions in a row"),
        ("a{3}{3}", "two repetitions in a row"),
        ("a{3,2}", "{3,2} is not a number of times: up to 1000, the smaller one first"),
        ("a{1001}", "{1001} is not a number of times: up to 1000, the smaller one first"),
        ("[a", "it ends too early"),
        ("[z-a]", "a range in [] goes from a character to a later one"),
        (r"[\d-z]", "a range in [] goes from a character to a later one"),
        ("[[:alpha:]]", "[: :] has no meaning here"),
        ("\\", "it ends too early"),
        (r"(a)\1", r"\1 has no meaning here"),
        (r"\pL", r"\p has no meaning here"),
        (r"\x{110000}", r"there is no character \x{110000}"),
        ("(?<=a)b", "after ( only ?: may follow, and (?i) only at the beginning"),
        ("a(?i)b", "after ( only ?: may follow, and (?i) only at the beginning"),
        ("(" * 21 + ")" * 21, "more than 20 parentheses in one another"),
        ("((a{99}){99}){99}", "it repeats too much"),
        ("((((){999}){999}){999}){999}", "it repeats too much"),
        ("(a|b|c)*a(a|b|c){60}x", "it is too complicated"),
    ],
)
def test_a_wrong_pattern_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        automaton(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "(a*)*b", "a*a*a*a*a*a*a*a*b", "(.*)*(.*)*[^a]$"])
def test_patterns_that_take_for_ever_elsewhere_do_not_here(pattern: str) -> None:
    """The test's time limit would tell."""
    assert automaton(pattern).matches("a" * 1000 + "!") == pattern.endswith("[^a]$")


def test_long_patterns_are_refused_and_long_texts_have_no_value() -> None:
    with pytest.raises(ExpressionError, match="the pattern is 201 characters long; at most 200"):
        where(f"worker.name.matches('{'a' * 201}')")
    found = where("worker.name.matches('a')").evaluate({"worker.name": "a" * 1001})
    assert isinstance(found, Missing) and "1,000 characters" in found.reason


GOOGLE = cel.NewEnv(variables={"text": cel.Type.STRING})

_PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", "(a|b)", "(?:ab|)", "x", "1", " ", "-"]
)
_TIMES = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?"])
_ATOMS = st.one_of(st.tuples(_PIECES, _TIMES).map("".join), st.sampled_from(["^", r"\b", r"\B", r"\b\w"]))
_PATTERNS = st.lists(st.lists(_ATOMS, max_size=4).map("".join), min_size=1, max_size=3).map("|".join)


@settings(max_examples=500, deadline=None)
@given(_PATTERNS, st.lists(st.text("ab1 -\n", max_size=6), max_size=5))
def test_a_pattern_fits_where_it_does_for_google(pattern: str, texts: list[str]) -> None:
    theirs = GOOGLE.compile(f"text.matches(r'{pattern}')")
    ours = automaton(pattern)
    for text in texts:
        assert ours.matches(text) == theirs.eval(data={"text": text}).value(), (pattern, text)


@settings(max_examples=500, deadline=None)
@given(st.text("ab()[]{}*+?|\\^$.-:i,12dwxp<=", max_size=20))
def test_garbage_is_a_pattern_or_a_value_error(text: str) -> None:
    try:
        automaton(text).matches("ab12")
    except ValueError as error:
        assert str(error)
