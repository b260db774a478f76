"""A worker's time limit: who is warned when, when it takes nothing more, when it stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.worker.walltime import Timetable, slurm_time_left_s, warning_s


def test_it_drains_half_a_minute_before_it_stops_which_leaves_time_to_deliver() -> None:
    table = Timetable(3600, 100.0)
    assert table.ends_at == 3700
    assert table.stop_at == 3685
    assert not table.due({}, 3654.9).drain
    due = table.due({}, 3655)
    assert due.drain and not due.stop
    assert table.due({}, 3685).stop
    assert table.left_s(3600) == 85


def test_who_wants_a_long_warning_is_warned_once_and_makes_it_drain_early() -> None:
    table = Timetable(3600, 0.0)
    running = {1: 120.0, 2: 300.0, 3: 0.0}
    assert table.due(running, 3000).warn == []
    due = table.due(running, 3285)
    assert (due.warn, due.drain) == ([2], True)
    assert table.due(running, 3285).warn == []
    assert table.due(running, 3465).warn == [1]
    assert table.due({**running, 4: 200.0}, 3500).warn == [4], "it began too late for all of its warning"


def test_a_warning_as_long_as_the_workers_whole_time_does_not_keep_others_away() -> None:
    table = Timetable(3600, 0.0)
    running = {1: 7200.0, 2: 1800.0}
    due = table.due(running, 10.0)
    assert (due.warn, due.drain) == ([1], False), "there is less time than it wants: it is warned at once"
    due = table.due(running, 1785.0)
    assert (due.warn, due.drain) == ([2], False)
    assert not table.due(running, 3224.9).drain
    assert table.due(running, 3225.0).drain, "a tenth of its time before it stops"


def test_short_times_are_divided_in_proportion() -> None:
    table = Timetable(10, 0.0)
    assert table.stop_at == 9
    assert not table.due({}, 7.9).drain
    assert table.due({}, 8.0).drain


@given(
    st.floats(1, 1e6),
    st.dictionaries(st.integers(0, 5), st.floats(0, 1e4), max_size=4),
    st.lists(st.floats(0, 1), min_size=1, max_size=10),
)
def test_asked_again_when_it_says_nothing_is_missed(
    limit: float, running: dict[int, float], at: list[float]
) -> None:
    table = Timetable(limit, 0.0)
    now = max(at) * limit
    due = table.due(running, now)
    if not due.stop:
        assert 0 < due.pause_s <= 5.0
        assert now + due.pause_s <= table.stop_at + 1e-6
        for attempt, warn_s in running.items():
            if warn_s and attempt not in due.warn:
                assert now + due.pause_s <= table.stop_at - warn_s + 1e-6 or attempt in due.warn


@pytest.mark.parametrize(("text", "seconds"), [("USR1@120", 120), ("SIGTERM@0.5", 0.5), ("", 0), ("USR1", 0)])
def test_how_early_a_signal_warns(text: str, seconds: float) -> None:
    assert warning_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("1500", 500.0),
        ("", None),
        ("999", None),
        ("soon", None),
        ("-5", None),
        ("9" * 40, None),
        ("9" * 15, None),
        ("1e9", None),
        ("315361000", 315360000.0),
        ("315361001", None),
    ],
)
def test_the_end_of_a_slurm_job_is_the_workers(text: str, left: float | None) -> None:
    assert slurm_time_left_s({"SLURM_JOB_END_TIME": text}, 1000.0) == left
    assert slurm_time_left_s({}, 1000.0) is None
