"""Selectors as people write them: 37 · 37.99 · 37.0-9 · 37.0-9,12 · last · last.5 · all · comma or space between jobs 1-5."""

import re

import msgspec

from tercel.core.errors import UsageError
from tercel.core.intervals import IntervalSet, Range

MAX_ID = 2**53
_JOBS = re.compile(r"(\d{1,16})(?:-(\d{1,16}))?")
_TASKS = re.compile(r"(\d{1,16}|last)\.([\d,\-]+)")
MAX_JOBS_IN_RANGE = 1_000_000


class Selector(msgspec.Struct, frozen=True):
    """Jobs first..last (or `last`, or `all`), and of a single job optionally only some tasks."""

    first: int = 0
    last: int = 0
    tasks: tuple[Range, ...] | None = None
    word: str = ""
    """`last` or `all` instead of numbers."""


def parse_selector(text: str) -> Selector:
    text = text.strip()
    if text in ("last", "all"):
        return Selector(word=text)
    if text.isascii():
        if match := _JOBS.fullmatch(text):
            first = int(match[1])
            last = int(match[2]) if match[2] else first
            if first <= last <= MAX_ID and last - first < MAX_JOBS_IN_RANGE:
                return Selector(first, last)
        elif match := _TASKS.fullmatch(text):
            tasks = tuple(parse_tasks(match[2], text))
            if match[1] == "last":
                return Selector(word="last", tasks=tasks)
            return Selector(int(match[1]), int(match[1]), tasks)
    raise UsageError(f"{text[:80]!r} selects nothing: write 37, 37.99, 37.0-9, 1-5, last or all", "select")


def parse_tasks(text: str, whole: str = "") -> list[Range]:
    """`0-9,12` -> [(0, 9), (12, 12)]."""
    ranges: list[Range] = []
    for part in text.split(","):
        match = _JOBS.fullmatch(part)
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else first
        if match is None or not part.isascii() or not first <= last <= MAX_ID:
            raise UsageError(
                f"{(whole or text)[:80]!r}: {part[:40]!r} is not a task or a range of tasks",
                "select" if whole else "tasks",
            )
        ranges.append((first, last))
    return IntervalSet(ranges).ranges()


def task_name(job: int, task: int) -> str:
    return f"{job}.{task}"
