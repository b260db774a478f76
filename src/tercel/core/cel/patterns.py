"""Patterns of `matches()`."""

import re
from functools import lru_cache

from tercel.core.cel.mistakes import Mistake

MAX_PATTERN = 200
MAX_SUBJECT = 1000


@lru_cache(1000)
def pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def check_pattern(text: str, start: int, end: int) -> None:
    if len(text) > MAX_PATTERN:
        raise Mistake(f"the pattern is {len(text)} characters long; at most {MAX_PATTERN}", start, end)
    try:
        pattern(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise Mistake(f"not a pattern: {error}", start, end) from None
