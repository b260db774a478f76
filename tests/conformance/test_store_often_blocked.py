"""Tasks that are blocked again and again, in every store: a record may take the place of an earlier one."""

import pytest

from tercel.core.changes import AttemptLost, AttemptSpent, Concluded, OutputKept
from tercel.core.reports import Output
from tests.conformance.stores import BLOCKED, FAILED, Kept, hand_over, job, outcome


@pytest.mark.T(3)
def test_an_attempt_that_was_blocked_may_take_the_place_of_an_earlier_one(kept: Kept) -> None:
    def lost(attempt: int, instead_of: int = 0, task: int = 3) -> AttemptLost:
        out = Output(9, 9, b"", segments=1)
        return AttemptLost(outcome(task, attempt=attempt, state=BLOCKED, out=out), instead_of)

    def left() -> list[int]:
        return [record.report.attempt for record in kept.store.history(1, 3)]

    pieces = [OutputKept(attempt, "out", 0, b"x") for attempt in range(10, 17)]
    hand_over(kept.store, job(1), *pieces, lost(10), lost(11), lost(10_000, task=4))
    for _ in range(2):
        hand_over(kept.store, lost(12, instead_of=11), lost(13, instead_of=12), lost(14, instead_of=10_000))
        assert left() == [10, 13, 14]
    assert len(kept.store.history(1, 4)) == 1, "it is another task's"
    assert [len(kept.store.output_segments(attempt, "out")) for attempt in range(10, 15)] == [1, 0, 0, 1, 1]
    assert kept.store.half_done(1, [(3, 3)]) == []

    hand_over(kept.store, AttemptSpent(outcome(3, attempt=13, state=FAILED)), lost(15, instead_of=13))
    assert left() == [10, 13, 14, 15], "one that counts against retries stays"
    hand_over(kept.store, Concluded(outcome(3, attempt=14, out=Output(9, 9, b"", segments=1))))
    hand_over(kept.store, lost(16, instead_of=14))
    assert kept.store.outcomes(1, ranges=[(3, 3)], limit=1)[0].report.out is not None
    assert kept.store.output_segments(14, "out") == [b"x"], (
        "and so does one that is the record, and its output"
    )
    kept.reopen()
    assert left() == [10, 13, 15, 16]
