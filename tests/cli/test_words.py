import pytest

from tercel.cli.words import count, duration, pairs, plain, ranges, short, size, states, table
from tercel.core.intervals import IntervalSet
from tercel.wire.api import Counts


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0042, "0.0042 s"),
        (9.99, "9.99 s"),
        (75, "1 m 15 s"),
        (60, "1 m"),
        (7260, "2 h 1 m"),
        (180_000, "2 d 2 h"),
        (59.7, "1 m"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (500 * 2**20, "500 MiB"), (3 * 2**50, "3072 TiB")],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


def test_counts_and_states() -> None:
    assert (count(1, "task"), count(10_000, "task")) == ("1 task", "10,000 tasks")
    assert states(Counts(ready=1, failed=2000)) == "1 ready, 2,000 failed"
    assert states(Counts()) == "no tasks"


def test_text_of_others_cannot_command_the_terminal() -> None:
    assert plain("a\x1b]0;x\x07\nb\tc") == "a�]0;x�↵b c"
    assert short("abcdef", 4) == "abc…"


def test_ranges_are_written_as_selectors() -> None:
    assert ranges(IntervalSet([(0, 9), (12, 12)])) == "0-9,12"


def test_tables_align_numbers_right_and_text_left() -> None:
    assert table(("ID", "NAME"), [(7, "a"), (100, "bcdef")]) == [" ID  NAME", "  7  a", "100  bcdef"]
    assert table(("ID", "NAME"), []) == ["ID  NAME"]


def test_facts_without_a_value_are_left_out() -> None:
    assert pairs([("a", "1"), ("bcd", ""), ("ef", "2")]) == ["a   1", "ef  2"]
