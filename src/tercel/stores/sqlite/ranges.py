"""Task numbers -> ranges, fast: a restart turns half a million numbers into ranges.

Lists here are ascending, and what is returned is maximal: no two ranges touch.
"""

from collections.abc import Iterable

from tercel.core.intervals import Range


def append_islands(ranges: list[Range], tasks: Iterable[int]) -> None:
    """Put ascending task numbers, all behind `ranges`, at its end."""
    numbers = iter(tasks)
    start = next(numbers, None)
    if start is None:
        return
    first = ranges.pop()[0] if ranges and ranges[-1][1] == start - 1 else start
    last = start
    append = ranges.append
    for number in numbers:
        if number != last + 1:
            append((first, last))
            first = number
        last = number
    append((first, last))


def united(maximal: list[Range], others: list[Range]) -> list[Range]:
    """Two lists of ranges that share no member, as one. Only those of `others` may touch one another."""
    if not others:
        return maximal
    whole: list[Range] = []
    for first, last in sorted(maximal + others):
        if whole and whole[-1][1] == first - 1:
            whole[-1] = (whole[-1][0], last)
        else:
            whole.append((first, last))
    return whole
