"""Sets of whole numbers kept as ranges, so that cost follows the number of gaps, not of members.

A queued array of ten million tasks is one pair; what finished out of order is a handful more.
Ranges are inclusive on both sides, as people type them: 0-99 is (0, 99).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
FEW = 64
"""Up to so many ranges are applied one by one, each of which may move all that are behind it: from about here on, to go through
all that are here once costs less, however many they are."""


class IntervalSet:
    """A mutable set of ints. `_first` and `_last` run in parallel, ascending, with gaps between ranges.

    Entries before `_head` are dead: tasks leave (and come back) mostly at the front, and must not shift a million
    ranges each time. Operations with a whole other set are one pass over both, however many ranges they have.
    """

    __slots__ = ("_count", "_first", "_head", "_last")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._first: list[int] = []
        self._last: list[int] = []
        self._head = 0
        self._count = 0
        if ranges:  # very many sets begin empty
            self._become(_joined(sorted(ranges)))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._first, number, self._head) - 1
        return at >= self._head and number <= self._last[at]

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def lowest(self) -> Iterator[int]:
        """From the smallest on, as they are asked for; the set must stay as it is meanwhile."""
        for at in range(self._head, len(self._first)):
            yield from range(self._first[at], self._last[at] + 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self.ranges() == other.ranges()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"IntervalSet({self.ranges()})"

    def ranges(self) -> list[Range]:
        return list(zip(self._first[self._head :], self._last[self._head :], strict=True))

    def first_ranges(self, most: int) -> list[Range]:
        """The lowest so many."""
        end = self._head + most
        return list(zip(self._first[self._head : end], self._last[self._head : end], strict=True))

    def copy(self) -> "IntervalSet":
        twin = IntervalSet()
        twin._first, twin._last = self._first[self._head :], self._last[self._head :]
        twin._count = self._count
        return twin

    def first(self) -> int:
        """The smallest member. The set must not be empty."""
        return self._first[self._head]

    def last(self) -> int:
        """The largest member. The set must not be empty."""
        return self._last[-1]

    def add(self, number: int) -> None:
        self.add_range(number, number)

    def add_range(self, first: int, last: int) -> None:
        if first > last:
            return
        # Every range that overlaps or touches [first, last] is swallowed by it.
        low = bisect_left(self._last, first - 1, self._head)
        high = bisect_right(self._first, last + 1, low)
        if high - low == 1:  # mostly: one range grows
            start, end = self._first[low], self._last[low]
            if first < start:
                self._count += start - first
                self._first[low] = first
            if last > end:
                self._count += last - end
                self._last[low] = last
            return
        if low == high:  # or it stands alone
            self._insert(low, first, last)
            return
        for at in range(low, high):
            self._count -= self._last[at] - self._first[at] + 1
        first = min(first, self._first[low])
        last = max(last, self._last[high - 1])
        self._count += last - first + 1
        self._first[high - 1], self._last[high - 1] = first, last
        self._drop(low, high - 1)

    def discard(self, number: int) -> None:
        self.discard_range(number, number)

    def discard_range(self, first: int, last: int) -> None:
        if first > last:
            return
        low = bisect_left(self._last, first, self._head)
        high = bisect_right(self._first, last, low)
        if low == high:
            return
        start, end = self._first[low], self._last[low]
        if start < first and last < end:  # a hole: what is before it becomes a range of its own
            self._first[low] = last + 1
            self._count -= last + 1 - start
            self._insert(low, start, first - 1)
            return
        if start < first:
            self._last[low] = first - 1
            self._count -= end + 1 - first
            low += 1
        if low < high and last < self._last[high - 1]:
            high -= 1
            self._count -= last + 1 - self._first[high]
            self._first[high] = last + 1
        for at in range(low, high):
            self._count -= self._last[at] - self._first[at] + 1
        self._drop(low, high)

    def take_first(self, count: int) -> list[Range]:
        """Remove the `count` smallest members (or all there are) and return them as ranges."""
        taken: list[Range] = []
        at = self._head
        while count > 0 and at < len(self._first):
            start, end = self._first[at], self._last[at]
            size = min(end - start + 1, count)
            taken.append((start, start + size - 1))
            self._count -= size
            count -= size
            if start + size <= end:
                self._first[at] = start + size
                break
            at += 1
        self._drop(self._head, at)
        return taken

    def update(self, other: "IntervalSet") -> None:
        if not other._count:
            return
        theirs = other.ranges()
        if len(theirs) <= FEW:
            for first, last in theirs:
                self.add_range(first, last)
            return
        firsts: list[int] = []
        lasts: list[int] = []
        at = self._head
        for first, last in theirs:
            low = bisect_left(self._last, first - 1, at)
            high = bisect_right(self._first, last + 1, low)
            firsts += self._first[at:low]
            lasts += self._last[at:low]
            at = high
            if low < high:
                self._count -= self._size(low, high)
                first, last = min(first, self._first[low]), max(last, self._last[high - 1])
            if not lasts or first > lasts[-1] + 1:
                self._count += last - first + 1
                firsts.append(first)
                lasts.append(last)
            elif last > lasts[-1]:  # one of ours reaches from the one before to this one
                self._count += last - lasts[-1]
                lasts[-1] = last
        self._first, self._last = firsts + self._first[at:], lasts + self._last[at:]
        self._head = 0

    def difference_update(self, other: "IntervalSet") -> None:
        if not other._count or not self._count:
            return
        theirs = other.ranges()
        if len(theirs) <= FEW:
            for first, last in theirs:
                self.discard_range(first, last)
            return
        firsts: list[int] = []
        lasts: list[int] = []
        at = self._head
        for first, last in theirs:
            low = bisect_left(self._last, first, at)
            high = bisect_right(self._first, last, low)
            firsts += self._first[at:low]
            lasts += self._last[at:low]
            at = high
            if low == high:
                continue
            self._count -= self._size(low, high)
            if self._first[low] < first:
                firsts.append(self._first[low])
                lasts.append(first - 1)
                self._count += first - self._first[low]
            if last < self._last[high - 1]:  # what is behind it may have more taken out of it
                at = high - 1
                self._first[at] = last + 1
                self._count += self._last[at] - last
        self._first, self._last = firsts + self._first[at:], lasts + self._last[at:]
        self._head = 0

    def intersection(self, other: "IntervalSet") -> "IntervalSet":
        both = IntervalSet()
        if not self._count or not other._count:
            return both
        few, many = (self, other) if len(self._first) < len(other._first) else (other, self)
        firsts, lasts = both._first, both._last
        for at in range(few._head, len(few._first)):
            first, last = few._first[at], few._last[at]
            low = bisect_left(many._last, first, many._head)
            high = bisect_right(many._first, last, many._head)
            for there in range(low, high):
                start, end = many._first[there], many._last[there]
                firsts.append(first if first > start else start)
                lasts.append(last if last < end else end)
                both._count += lasts[-1] - firsts[-1] + 1
        return both

    def _become(self, ranges: list[Range]) -> None:
        """Exactly these: ascending, with gaps between them."""
        self._first = [first for first, _ in ranges]
        self._last = [last for _, last in ranges]
        self._head = 0
        self._count = self._size(0, len(ranges))

    def _size(self, low: int, high: int) -> int:
        """How many members are in entries low..high-1."""
        return sum(self._last[low:high]) - sum(self._first[low:high]) + high - low

    def _insert(self, at: int, first: int, last: int) -> None:
        self._count += last - first + 1
        if at == self._head > 0:
            self._head -= 1
            self._first[self._head], self._last[self._head] = first, last
        else:
            self._first.insert(at, first)
            self._last.insert(at, last)

    def _drop(self, low: int, high: int) -> None:
        """Entries low..high-1 are no more; at the front only `_head` moves."""
        if low == high:
            return
        if low > self._head:
            del self._first[low:high], self._last[low:high]
            return
        self._head = high
        if self._head > FEW and self._head * 2 > len(self._first):
            del self._first[: self._head], self._last[: self._head]
            self._head = 0


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in ascending order, with those that overlap or touch made one."""
    joined: list[Range] = []
    for first, last in ranges:
        if first > last:
            continue
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
