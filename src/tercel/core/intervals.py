"""Sets of whole numbers kept as ranges, so that cost follows the number of gaps, not of members.

A queued array of ten million tasks is one pair; what finished out of order is a handful more.
Ranges are inclusive on both sides, as people type them: 0-99 is (0, 99).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class IntervalSet:
    """A mutable set of ints. `_first` and `_last` run in parallel, ascending, with gaps between ranges."""

    __slots__ = ("_count", "_first", "_last")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        self._count = 0
        for first, last in ranges:
            self.add_range(first, last)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._first, number) - 1
        return at >= 0 and number <= self._last[at]

    def __iter__(self) -> Iterator[int]:
        for first, last in zip(self._first, self._last, strict=True):
            yield from range(first, last + 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self._first == other._first and self._last == other._last

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"IntervalSet({self.ranges()})"

    def ranges(self) -> list[Range]:
        return list(zip(self._first, self._last, strict=True))

    def copy(self) -> "IntervalSet":
        twin = IntervalSet()
        twin._first, twin._last, twin._count = self._first[:], self._last[:], self._count
        return twin

    def first(self) -> int:
        """The smallest member. The set must not be empty."""
        return self._first[0]

    def add(self, number: int) -> None:
        self.add_range(number, number)

    def add_range(self, first: int, last: int) -> None:
        if first > last:
            return
        # Every range that overlaps or touches [first, last] is swallowed by it.
        low = bisect_left(self._last, first - 1)
        high = bisect_right(self._first, last + 1)
        if low < high:
            for at in range(low, high):
                self._count -= self._last[at] - self._first[at] + 1
            first = min(first, self._first[low])
            last = max(last, self._last[high - 1])
        self._first[low:high] = [first]
        self._last[low:high] = [last]
        self._count += last - first + 1

    def discard(self, number: int) -> None:
        self.discard_range(number, number)

    def discard_range(self, first: int, last: int) -> None:
        low = bisect_left(self._last, first)
        high = bisect_right(self._first, last)
        if low >= high:
            return
        kept_first: list[int] = []
        kept_last: list[int] = []
        for at in range(low, high):
            start, end = self._first[at], self._last[at]
            self._count -= end - start + 1
            if start < first:
                kept_first.append(start)
                kept_last.append(first - 1)
                self._count += first - start
            if end > last:
                kept_first.append(last + 1)
                kept_last.append(end)
                self._count += end - last
        self._first[low:high] = kept_first
        self._last[low:high] = kept_last

    def take_first(self, count: int) -> list[Range]:
        """Remove the `count` smallest members (or all there are) and return them as ranges."""
        taken: list[Range] = []
        at = 0
        while count > 0 and at < len(self._first):
            start, end = self._first[at], self._last[at]
            size = end - start + 1
            if size > count:
                taken.append((start, start + count - 1))
                self._first[at] = start + count
                self._count -= count
                break
            taken.append((start, end))
            self._count -= size
            count -= size
            at += 1
        if at:
            del self._first[:at], self._last[:at]
        return taken

    def update(self, other: "IntervalSet") -> None:
        for first, last in other.ranges():
            self.add_range(first, last)

    def difference_update(self, other: "IntervalSet") -> None:
        for first, last in other.ranges():
            self.discard_range(first, last)

    def intersection(self, other: "IntervalSet") -> "IntervalSet":
        common = IntervalSet()
        mine, theirs = self.ranges(), other.ranges()
        here = there = 0
        while here < len(mine) and there < len(theirs):
            first = max(mine[here][0], theirs[there][0])
            last = min(mine[here][1], theirs[there][1])
            if first <= last:
                common.add_range(first, last)
            if mine[here][1] < theirs[there][1]:
                here += 1
            else:
                there += 1
        return common
