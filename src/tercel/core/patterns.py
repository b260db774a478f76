"""Patterns that are looked for in what tasks print: RE2, whose time is in proportion to the text, whatever tasks print."""

from typing import Protocol

from tercel.core.errors import UsageError

PATTERN_MOST = 1000
PATTERN_MEM_BYTES = 256 * 1024
LINES = "(?m)"
"""Before every pattern: `^` and `$` are the ends of lines."""


class Found(Protocol):
    def start(self) -> int:
        """Where it begins."""


class Searches(Protocol):
    def search(self, text: bytes, pos: int, endpos: int) -> Found | None:
        """Something, if it is found between the two; what is around them counts for `^`, `$` and `\\b`."""


class Taken(Protocol):
    def end(self) -> int: ...

    def groupdict(self) -> dict[str, str | None]: ...


class Takes(Protocol):
    def match(self, text: str) -> Taken | None:
        """Where the text begins with it."""

    def search(self, text: str) -> Taken | None: ...


def compiled(pattern: str) -> Searches:
    """As managers check it and workers look for it. Raises UsageError.

    RE2 takes time in proportion to the text, but also to the pattern: one with many large counts (`.{900}`) could still take
    hours over 10 MiB. So there is memory for reasonable ones only.
    """
    import re2  # noqa: PLC0415  # 10 ms that only those with patterns pay

    if len(pattern) > PATTERN_MOST:
        raise UsageError(f"a pattern has at most {PATTERN_MOST:,} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEM_BYTES
    try:
        found: Searches = re2.compile(LINES + pattern, options)
    except re2.error as error:
        said = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise UsageError(f"/{pattern[:100]}/ is not a pattern: {said.replace(LINES, '', 1)}") from None
    return found


def taking(pattern: str) -> Takes:
    """One of our own, with names for what it takes out of a text."""
    import re2  # noqa: PLC0415  # as above

    found: Takes = re2.compile(LINES + pattern)
    return found
