"""What attempts left, when they are to go on with delivering it."""

from pathlib import Path

import pytest

from tercel.core.model import Needs
from tercel.core.reports import End, Report
from tercel.data.moving import Mover
from tercel.worker.agent import Agent
from tercel.worker.asking import Asking
from tercel.worker.delivering import Delivering
from tercel.worker.outgoing import Outgoing


@pytest.mark.must("a")
def test_what_is_not_here_any_more_is_given_back_when_it_is_to_go_on(tmp_path: Path) -> None:
    """Its disk was lost, or a parcel could not be written before it was killed: somebody else must run it."""
    agent = Agent(Needs(1000, 0))
    owed, unwritten, unheard_of = 1, 2, 3
    agent.restore([_report(owed)], [_report(unwritten)])
    delivering = Delivering(
        Outgoing(tmp_path),
        agent,
        Mover(),
        Asking(lambda _: None),
        on_owed=lambda _: None,
        on_made=lambda *_: None,
        on_moving=lambda _: None,
        on_error=lambda _: None,
    )
    assert delivering.prepare() == []
    assert delivering.resume([owed, unwritten, unheard_of]) == [unwritten, unheard_of]
    assert unwritten not in agent.parcels


def _report(attempt: int) -> Report:
    return Report(1, attempt, attempt, End.EXITED, 0, 1.0, 1.0, 0.0, 0)
