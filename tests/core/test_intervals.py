"""IntervalSet against a naive set of ints: fast and right must be the same."""

import random
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tercel.core import intervals
from tercel.core.intervals import IntervalSet, Range

NUMBER = st.integers(0, 60)
RANGE = st.tuples(NUMBER, st.integers(-2, 20)).map(lambda pair: (pair[0], pair[0] + pair[1]))
"""Sometimes empty (it ends before it begins)."""
MANY = st.lists(RANGE, max_size=40) | st.sets(st.integers(0, 400), max_size=120).map(
    lambda numbers: [(number, number) for number in numbers]
)
STEP = (
    st.tuples(st.sampled_from(["add_range", "discard_range"]), RANGE)
    | st.tuples(st.sampled_from(["add", "discard"]), NUMBER)
    | st.tuples(st.just("take_first"), st.integers(-1, 25))
    | st.tuples(st.sampled_from(["update", "difference_update", "intersection", "copy"]), MANY)
)


def members(ranges: list[Range]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


def assert_same(fast: IntervalSet, naive: set[int]) -> None:
    assert list(fast) == sorted(naive)
    assert len(fast) == len(naive)
    ranges = fast.ranges()
    assert members(ranges) == naive
    assert all(first <= last for first, last in ranges)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(ranges)), "maximal ranges"
    assert all((number in fast) == (number in naive) for number in range(-3, 90))
    if naive:
        assert fast.first() == min(naive)
    assert fast == IntervalSet((number, number) for number in naive)


@pytest.mark.parametrize("few", [0, intervals.FEW])
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=MANY, steps=st.lists(STEP, max_size=25))
def test_any_sequence_of_operations_gives_what_a_plain_set_gives(
    monkeypatch: pytest.MonkeyPatch, few: int, start: list[Range], steps: list
) -> None:
    monkeypatch.setattr(intervals, "FEW", few)  # 0: sets of any size go through the way of large ones
    fast, naive = IntervalSet(start), members(start)
    assert_same(fast, naive)
    for name, argument in steps:
        match name:
            case "add" | "discard":
                getattr(fast, name)(argument)
                getattr(naive, name)(argument)
            case "add_range":
                fast.add_range(*argument)
                naive |= members([argument])
            case "discard_range":
                fast.discard_range(*argument)
                naive -= members([argument])
            case "take_first":
                taken = fast.take_first(argument)
                first = sorted(naive)[: max(0, argument)]
                assert [number for low, high in taken for number in range(low, high + 1)] == first
                naive -= set(first)
            case "update":
                fast.update(IntervalSet(argument))
                naive |= members(argument)
            case "difference_update":
                fast.difference_update(IntervalSet(argument))
                naive -= members(argument)
            case "intersection":
                other = IntervalSet(argument)
                assert_same(fast.intersection(other), naive & members(argument))
                assert_same(other.intersection(fast), naive & members(argument))
            case "copy":
                twin = fast.copy()
                twin.add_range(0, 100)
        assert_same(fast, naive)


@pytest.mark.parametrize("few", [0, intervals.FEW])
def test_large_sets_are_put_together_and_taken_apart_like_plain_ones(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """What Hypothesis draws is mostly small."""
    monkeypatch.setattr(intervals, "FEW", few)
    rng = random.Random(few)

    def drawn() -> list[Range]:
        longest = rng.choice([1, 3, 30])
        firsts = (rng.randrange(200) for _ in range(rng.randrange(60)))
        return [(first, first + rng.randrange(longest)) for first in firsts]

    for _ in range(300):
        ours, theirs = drawn(), drawn()
        for name, naive in (
            ("update", members(ours) | members(theirs)),
            ("difference_update", members(ours) - members(theirs)),
        ):
            fast = IntervalSet(ours)
            fast.take_first(taken := rng.randrange(30))
            gone = set(sorted(members(ours))[:taken])
            getattr(fast, name)(IntervalSet(theirs))
            assert_same(fast, naive - gone | (members(theirs) if name == "update" else set()))
        assert_same(IntervalSet(ours).intersection(IntervalSet(theirs)), members(ours) & members(theirs))


def test_an_unchanged_other_set_stays_unchanged() -> None:
    other = IntervalSet([(0, 5), (10, 20)])
    IntervalSet([(3, 12)]).intersection(other)
    IntervalSet([(3, 12)]).update(other)
    IntervalSet([(3, 12)]).difference_update(other)
    assert other.ranges() == [(0, 5), (10, 20)]


def test_ten_million_members_are_one_pair() -> None:
    tasks = IntervalSet([(0, 9_999_999)])
    assert tasks.take_first(3) == [(0, 2)]
    tasks.discard(5_000_000)
    assert len(tasks) == 9_999_996
    assert tasks.ranges() == [(3, 4_999_999), (5_000_001, 9_999_999)]


def test_a_set_with_very_many_gaps_costs_what_is_done_to_it_not_its_size() -> None:
    """Counted in list entries moved, not in seconds: taking from the front must not shift all the rest."""
    tasks = IntervalSet((number, number) for number in range(0, 200_000, 2))
    for expected in range(0, 20_000, 2):
        assert tasks.take_first(1) == [(expected, expected)]
        tasks.add(expected)
        tasks.discard(expected)
    everything = tasks.copy()
    tasks.difference_update(everything)
    assert len(tasks) == 0
    tasks.update(everything)
    assert tasks == everything
    assert tasks.intersection(IntervalSet([(100_000, 100_001)])).ranges() == [(100_000, 100_000)]


@pytest.mark.parametrize("name", ["add_range", "discard_range"])
def test_many_ranges_are_applied_at_once_also_to_very_many(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One by one, each may move a million others; a few are not worth going through that million."""
    tasks = IntervalSet((number, number + 1) for number in range(0, 20_000, 4))
    applied: list[Range] = []
    monkeypatch.setattr(IntervalSet, name, lambda _, first, last: applied.append((first, last)))
    apply = tasks.update if name == "add_range" else tasks.difference_update
    few, many = ([(number, number) for number in range(0, 8 * count, 8)] for count in (intervals.FEW, 100))
    apply(IntervalSet(many))
    assert not applied
    apply(IntervalSet(few))
    assert applied == few


def test_sets_are_equal_by_their_members_and_not_hashable() -> None:
    assert IntervalSet([(0, 1), (2, 3)]) == IntervalSet([(0, 3)])
    assert IntervalSet([(0, 1)]) != IntervalSet([(0, 2)])
    assert IntervalSet() != set()
    assert repr(IntervalSet([(0, 3)])) == "IntervalSet([(0, 3)])"
    with pytest.raises(TypeError):
        hash(IntervalSet())


def test_the_first_ranges_are_had_without_the_others() -> None:
    numbers = IntervalSet([(0, 1), (4, 4), (8, 9), (12, 12)])
    numbers.discard(0)
    assert numbers.first_ranges(2) == [(1, 1), (4, 4)]
    assert numbers.first_ranges(9) == numbers.ranges()
