"""The page that a lane and its interpreter share: what each side sees of the other's words."""

import marshal
import os
from collections.abc import Iterator

import pytest

from tercel.runners.board import NOBODY, Board, Standing, new_board


@pytest.fixture
def sides() -> Iterator[tuple[Board, Board]]:
    """The lane's and the interpreter's."""
    fd = new_board()
    lane, interpreter = Board(fd), Board(fd)
    yield lane, interpreter
    lane.close()
    interpreter.close()
    os.close(fd)


def _row(attempt: int, size: int = 0) -> tuple[object, ...]:
    return (
        1,
        2,
        attempt,
        "exited",
        0,
        1.5,
        0.5,
        0.25,
        99,
        "é",
        None,
        (3, 3, b"abc", 0),
        (size, size, bytes(size), 0),
    )


def test_nobody_has_run_on_a_new_board(sides: tuple[Board, Board]) -> None:
    lane, _ = sides
    assert lane.standing().attempt == NOBODY
    assert not lane.standing().running
    assert lane.reports() == []


def test_lane_sees_what_began_and_that_it_ended(sides: tuple[Board, Board]) -> None:
    lane, interpreter = sides
    assert interpreter.begin(7, 12.5, 0)
    assert lane.standing() == Standing(7, 12.5, True)
    assert interpreter.end(_row(7))
    assert lane.standing() == Standing(7, 12.5, False)


def test_reports_wait_on_the_board_until_they_are_sent(sides: tuple[Board, Board]) -> None:
    lane, interpreter = sides
    for attempt in range(3):
        interpreter.begin(attempt, 0.0, 0)
        interpreter.end(_row(attempt))
    rows = [("Ended", [_row(attempt) for attempt in range(3)])]
    assert lane.reports() == rows
    assert marshal.loads(interpreter.waiting()) == rows
    assert interpreter.count == 3
    interpreter.sent()
    assert (interpreter.count, lane.reports()) == (0, [])
    interpreter.end(_row(9))
    assert lane.reports() == [("Ended", [_row(9)])]


def test_there_is_room_for_any_report_on_an_empty_board_and_no_more_than_room(
    sides: tuple[Board, Board],
) -> None:
    lane, interpreter = sides
    largest = _row(1, 3 * 16 * 1024)
    count = 0
    while interpreter.end(largest):
        count += 1
    assert 1 <= count == interpreter.count
    assert lane.reports() == [("Ended", [largest] * count)]
    interpreter.sent()
    assert interpreter.end(largest)


def test_nothing_begins_behind_the_bar_until_it_may_pass(sides: tuple[Board, Board]) -> None:
    lane, interpreter = sides
    interpreter.begin(7, 1.0, 0)
    interpreter.end(_row(7))
    bar = lane.raise_bar()
    assert not interpreter.begin(8, 2.0, 0)
    assert lane.standing().attempt == 7, "8 has not begun, and the lane can tell"
    assert interpreter.bar == bar
    assert interpreter.begin(8, 3.0, bar)
    assert lane.standing() == Standing(8, 3.0, True)
