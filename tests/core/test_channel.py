"""Messages between a lane and its interpreter: what one end has sent and the other has not read yet."""

import os
import socket
from collections.abc import Iterator

import pytest

from tercel.core.reports import End
from tercel.runners.board import Board, new_board
from tercel.runners.call_process import InterpreterProcess
from tercel.runners.channel import Channel, Message


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel, socket.socket]]:
    """The lane's, the interpreter's, and the latter's socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours.fileno()), Channel(theirs.fileno()), theirs


def ended(attempt: int) -> tuple[object, ...]:
    return (1, 2, attempt, str(End.EXITED), 0, 1.5, 0.5, 0.0, 0, "", None)


@pytest.mark.parametrize("gone", [False, True])
def test_all_that_has_arrived_is_received_at_once_also_from_an_end_that_is_gone(
    ends: tuple[Channel, Channel, socket.socket], gone: bool
) -> None:
    lane, interpreter, theirs = ends
    sent: list[Message] = [("Ended", "x" * 50_000, number) for number in range(3)]
    for message in sent:
        interpreter.send([message])
    assert not interpreter.unsent
    if gone:
        theirs.close()
    assert lane.receive_all() == sent
    assert lane.receive_all() == []


def test_what_was_sent_is_reported_before_what_is_not_sent_yet(
    ends: tuple[Channel, Channel, socket.socket],
) -> None:
    lane, interpreter, _ = ends
    page = new_board()
    process = object.__new__(InterpreterProcess)
    process.gone, process._channel, process.board = False, lane, Board(page)
    their_page = Board(page)
    interpreter.send([("Ended", [ended(1), ended(2)])])
    their_page.end(ended(3))
    assert [report.attempt for report in process.take_reports()] == [1, 2, 3]
    for side in (process.board, their_page):
        side.close()
    os.close(page)
