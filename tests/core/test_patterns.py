"""Patterns of rules for blocking: what is refused before anybody looks for it."""

import pytest

from tercel.core.blocking import trigger_of
from tercel.core.errors import UsageError
from tercel.core.patterns import PATTERN_MOST, compiled

pytestmark = [pytest.mark.T(8), pytest.mark.must("e")]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing ): ("),
        ("*", "no argument for repetition operator: *"),
        ("(?=a)", "invalid perl operator: (?="),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("[z-a]", "invalid character class range: z-a"),
        ("a[^Q]{0,900}" * 5, "pattern too large - compile failed"),
        ("x" * (PATTERN_MOST + 1), "a pattern has at most 1,000 characters"),
    ],
)
def test_what_is_no_pattern_is_refused_in_words_of_its_own(pattern: str, why: str) -> None:
    for refuse in (compiled, lambda text: trigger_of(f"stderr:/{text}/")):
        with pytest.raises(UsageError) as error:
            refuse(pattern)
        assert str(error.value).endswith(why)


def test_lines_around_what_is_searched_count() -> None:
    text = b"one two\nthree"
    assert compiled("^three$").search(text, 8, len(text)) is not None
    assert compiled("two$").search(text, 4, 7) is not None
    assert compiled("^two").search(text, 4, 7) is None
    assert compiled("thr$").search(text, 8, 11) is None
