"""When a condition is tested, and when it is given up. A policy is text that people write; it is kept as it was written.

    every 2m for 12h                       constant
    every 10s x2, 20s x10, then 1m for 2d  stepwise: so many tests at each interval
    backoff 5s to 10m for 12h              twice as long each time, drawn from the whole of it so that many do not test together
    … at most 100 tests                    beside any of these
    for 2h                                 by default, but so long
    … for ever                             only for what waits its turn: see blocking.PATIENT

The next test follows from how many there were, so after a restart it is at the right step. What is drawn, is drawn from the
condition's number and the test's: no chance comes in.
"""

import math
import re
from functools import lru_cache

import msgspec

from tercel.core.commands import parse_time
from tercel.core.errors import UsageError

SHORTEST_S = 1.0
LONGEST_S = 7 * 86_400.0
"""Between two tests."""
PATIENCE_MOST_S = 366 * 86_400.0
DEFAULT_PATIENCE_S = 48 * 3600.0
TESTS_MOST = 10_000_000
_STEPS_MOST = 20

_TIMES = re.compile(r"(\S+)(?:\s*[x×]\s*([0-9]{1,7}))?")
_TEXT = re.compile(
    r"(?:(?P<kind>every|backoff)\s+(?P<steps>.+?)(?:\s+|$))?(?:for\s+(?P<for>\S+)(?:\s+|$))?(?:at\s+most\s+(?P<tests>[0-9]{1,9})\s+tests?)?",
    re.IGNORECASE,
)


class Step(msgspec.Struct, frozen=True, array_like=True):
    every_s: float
    times: int = 0
    """So many tests at this interval; 0: all further ones."""


DEFAULT_STEPS = (Step(10.0, 2), Step(20.0, 10), Step(60.0, 10), Step(120.0, 100), Step(300.0))
"""Tapis' own."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    steps: tuple[Step, ...] = ()
    """The last goes on for ever."""
    first_s: float = 0.0
    """Of a backoff: the first interval ..."""
    most_s: float = 0.0
    """... and the longest."""
    patience_s: float = DEFAULT_PATIENCE_S
    """So long after the condition arose its tasks fail."""
    tests_most: int = 0
    """Or after so many tests; 0: however many."""

    def pause_s(self, tests: int, draw: float = 1.0) -> float:
        """Until the next test, after so many; `draw` from 0 to 1."""
        if self.first_s:
            longest_s = min(self.most_s, self.first_s * 2.0 ** min(tests, 60))
            return max(SHORTEST_S, longest_s * draw)
        left = tests
        for step in self.steps:
            if not step.times or left < step.times:
                return step.every_s
            left -= step.times
        return self.steps[-1].every_s

    @property
    def is_endless(self) -> bool:
        """It never gives up."""
        return self.patience_s == math.inf and not self.tests_most

    def ends_at(self, tests: int, opened_at: float, next_test_at: float) -> float:
        """When it gives up, if no test clears; infinite: never. Of a backoff at the latest."""
        end = opened_at + self.patience_s
        if self.tests_most:
            at = next_test_at
            for number in range(tests + 1, self.tests_most):
                if at >= end:
                    break
                at += self.pause_s(number)
            end = min(end, at)
        return end

    def is_over(self, tests: int, opened_at: float, now: float) -> bool:
        return now >= opened_at + self.patience_s or (0 < self.tests_most <= tests)


@lru_cache(maxsize=1000)
def parse_policy(text: str) -> Policy:
    match = _TEXT.fullmatch(" ".join(text.split()))
    if match is None or not match[0]:
        raise UsageError(
            f"{text[:100]!r} is not a policy; write `every 2m for 12h`, `every 10s x6, then 1m for 2d` or `backoff 5s to 10m for 12h`",
            "policy",
        )
    patience_s = DEFAULT_PATIENCE_S
    if match["for"]:
        patience_s = math.inf if match["for"].lower() == "ever" else _time(match["for"], "for")
    if not SHORTEST_S <= patience_s <= PATIENCE_MOST_S and patience_s != math.inf:
        raise UsageError(f"a policy lasts from 1 s to 366 days, not {patience_s:g} s", "policy")
    tests_most = int(match["tests"] or 0)
    if match["tests"] and not 1 <= tests_most <= TESTS_MOST:
        raise UsageError(f"at most {tests_most:,} tests: it must be 1 to {TESTS_MOST:,}", "policy")
    if (match["kind"] or "").lower() == "backoff":
        first, _, most = match["steps"].partition(" to ")
        first_s = _interval(first)
        most_s = _interval(most) if most else max(first_s, 600.0)
        if most_s < first_s:
            raise UsageError(
                f"backoff {first} to {most}: the longest pause is shorter than the first", "policy"
            )
        _check_tested(first_s, patience_s)
        return Policy(first_s=first_s, most_s=most_s, patience_s=patience_s, tests_most=tests_most)
    steps = tuple(_steps(match["steps"])) if match["steps"] else DEFAULT_STEPS
    if match["steps"]:
        _check_tested(steps[0].every_s, patience_s)
    return Policy(steps=steps, patience_s=patience_s, tests_most=tests_most)


def _check_tested(first_s: float, patience_s: float) -> None:
    if first_s >= patience_s:
        raise UsageError(
            f"it would never be tested: the first test is after {first_s:g} s, and it gives up after {patience_s:g} s",
            "policy",
        )


def _steps(text: str) -> list[Step]:
    pieces = [piece.strip() for piece in text.split(",")]
    if len(pieces) > _STEPS_MOST:
        raise UsageError(f"at most {_STEPS_MOST} steps in a policy", "policy")
    steps = []
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        match = _TIMES.fullmatch(piece.removeprefix("then ").strip() if last else piece)
        if match is None:
            raise UsageError(f"{piece[:60]!r} is not a step of a policy; write `20s x10`", "policy")
        if not last and not match[2]:
            raise UsageError(
                f"{piece[:60]!r}: how many times? Only the last step may go on for ever", "policy"
            )
        steps.append(Step(_interval(match[1]), int(match[2] or 0)))
    return steps


def _interval(text: str) -> float:
    every_s = _time(text, "interval")
    if not SHORTEST_S <= every_s <= LONGEST_S:
        raise UsageError(f"{text}: tests are from 1 s to 7 days apart", "policy")
    return every_s


def _time(text: str, what: str) -> float:
    if text.strip().isdigit():
        raise UsageError(f"{what} {text}: with a unit, as in {text}s or {text}m", "policy")
    return parse_time(text, what)
