"""Leases, outputs, values, tokens, and what is kept of workers, in every store."""

import pytest

from tercel.core.changes import (
    Concluded,
    LeaseClosed,
    Leased,
    OutputKept,
    ReservationRemoved,
    ReservationSet,
    SwitchSet,
    TokenAdded,
    TokenRevoked,
    ValueKept,
    WorkerSet,
)
from tercel.core.conditions import SwitchRow
from tercel.core.model import Call, Role
from tercel.core.presence import Reservation, WorkerRow
from tercel.core.reports import Output
from tests.conformance.stores import (
    FAILED,
    FINISHED,
    Kept,
    cancelled,
    concluded,
    hand_over,
    job,
    lease,
    outcome,
    token,
)


def test_closed_leases_are_gone(kept: Kept) -> None:
    hand_over(
        kept.store, job(1), Leased(lease(5, worker="n1")), Leased(lease(9, worker="n2")), Leased(lease(2))
    )
    hand_over(kept.store, LeaseClosed(5), LeaseClosed(77))
    assert kept.reopen().leases == [lease(2), lease(9, worker="n2")]


def test_pieces_of_output_are_told_in_order(kept: Kept) -> None:
    hand_over(
        kept.store,
        OutputKept(1, "out", 1, b"b"),
        OutputKept(1, "out", 0, b"a" * 300_000),
        OutputKept(1, "err", 0, b"e"),
        OutputKept(2, "out", 0, b"x"),
    )
    hand_over(kept.store, OutputKept(1, "out", 10, b"c"), OutputKept(1, "out", 2, b""))
    assert kept.store.output_segments(1, "out") == [b"a" * 300_000, b"b", b"", b"c"]
    assert kept.store.output_segments(1, "out", first=1, last=2) == [b"b", b""]
    assert kept.store.output_segments(1, "out", first=2) == [b"", b"c"]
    assert kept.store.output_segments(1, "err") == [b"e"]
    assert kept.store.output_segments(3, "out") == []


def test_a_value_is_there_when_its_last_piece_is(kept: Kept) -> None:
    hand_over(kept.store, ValueKept("b1", 0, b"x", False), ValueKept("b1", 1, b"y", False))
    assert kept.store.value_piece_count("b1") == 0
    hand_over(kept.store, ValueKept("b1", 0, b"a", False), ValueKept("b1", 1, b"b", True))
    hand_over(kept.store, ValueKept("b2", 0, b"", True))
    kept.reopen()
    assert kept.store.value_piece_count("b1") == 2
    assert kept.store.value_pieces("b1", 0, 1) == [b"a", b"b"]
    assert kept.store.value_pieces("b1", 1, 9) == [b"b"]
    assert (kept.store.value_piece_count("b2"), kept.store.value_pieces("b2", 0, 0)) == (1, [b""])
    assert (kept.store.value_piece_count("b3"), kept.store.value_pieces("b3", 0, 0)) == (0, [])


def test_the_calls_of_many_tasks_are_kept_in_order_whatever_their_size(kept: Kept) -> None:
    calls = tuple(Call(b"x" * (100_000 * (n % 7 == 0)) + b"%d" % n, ("t1.1",) * (n % 2)) for n in range(2500))
    hand_over(kept.store, job(1, (0, 2499), calls=calls))
    kept.reopen()
    assert kept.store.calls(1, [(0, 2499)]) == list(calls)
    assert kept.store.calls(1, [(998, 1002)]) == list(calls[998:1003])
    assert kept.store.calls(2, [(0, 9)]) == []


def test_values_of_many_tasks_are_told_with_how_they_ended(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1, (0, 2999)),
        *[Concluded(outcome(task, value=Output(3, 3, b"%03d" % task))) for task in range(1500)],
        Concluded(
            outcome(1500, state=FAILED, note="it; fell, down\u00fc", value=Output(9, 9, b"", segments=1))
        ),
        Concluded(outcome(1501)),
        cancelled(1502, 2000),
    )
    rows = kept.store.values(1, ranges=[(0, 2999)], limit=10_000, most_bytes=10**6)
    assert [row[0] for row in rows] == list(range(2001))
    assert rows[7] == (7, "finished", "exited", 0, "", b"007", 3)
    assert rows[1500] == (1500, "failed", "exited", 3, "it; fell, down\u00fc", None, 9)
    assert rows[1501] == (1501, "finished", "exited", 0, "", None, 0)
    assert rows[1502] == (1502, "cancelled", "cancelled", 0, "ada asked", None, 0)
    assert kept.store.values(1, ranges=[(1499, 1499), (3, 3)], limit=9, most_bytes=9) == [rows[3], rows[1499]]
    assert kept.store.values(1, ranges=[(0, 2999)], limit=1200, most_bytes=10**6) == rows[:1200]
    some = kept.store.values(1, ranges=[(0, 2999)], limit=10_000, most_bytes=100)
    assert 0 < len(some) < 2001
    assert some == rows[: len(some)]
    assert kept.store.values(2, ranges=[(0, 9)], limit=9, most_bytes=9) == []


def test_a_revoked_token_is_gone(kept: Kept) -> None:
    hand_over(kept.store, *[TokenAdded(token(name, role)) for name, role in zip("bac", Role, strict=True)])
    hand_over(kept.store, TokenRevoked("a"), TokenRevoked("unknown"))
    assert kept.reopen().tokens == [token("b", Role.ADMIN), token("c", Role.WORKER)]


def test_what_is_kept_of_a_worker_takes_the_place_of_what_was(kept: Kept) -> None:
    bad = WorkerRow(name="w2", quarantined="by ada: its fan is loud", quarantined_at=7.5, pause_s=60.0)
    tagged = WorkerRow(name="w1", tags=("gpu", "big"), lost_tags=("old",))
    hand_over(kept.store, WorkerSet(WorkerRow(name="w1", quarantined="x")), WorkerSet(bad))
    hand_over(kept.store, WorkerSet(tagged))
    assert kept.reopen().workers == [tagged, bad]


def test_a_worker_of_which_nothing_is_to_be_kept_is_not_kept(kept: Kept) -> None:
    hand_over(kept.store, WorkerSet(WorkerRow(name="w1", quarantined="x")))
    hand_over(kept.store, WorkerSet(WorkerRow(name="w1")), WorkerSet(WorkerRow(name="w2")))
    assert kept.reopen().workers == []


def test_reservations_are_kept_until_they_are_removed(kept: Kept) -> None:
    first = Reservation(id=1, owner="ada", queue="vision", since=1.0, until=2.0)
    second = Reservation(id=2, owner="ada", user="bob", where='worker.site == "a"', until=9.0, lend=True)
    hand_over(kept.store, ReservationSet(second), ReservationSet(first), ReservationRemoved(77))
    assert kept.reopen().reservations == [first, second]
    longer = Reservation(id=2, owner="ada", until=99.0)
    hand_over(kept.store, ReservationSet(longer), ReservationRemoved(1))
    assert kept.reopen().reservations == [longer]


@pytest.mark.T(8)
def test_what_is_off_is_kept_until_it_is_on(kept: Kept) -> None:
    matlab = SwitchRow(name="app=matlab", off="by ada: upgrade", since=7.5)
    hpc = SwitchRow(name="system=hpc1", off="by ada")
    hand_over(kept.store, SwitchSet(hpc), SwitchSet(matlab), SwitchSet(SwitchRow(name="app=other")))
    assert kept.reopen().switches == [matlab, hpc]
    hand_over(kept.store, SwitchSet(SwitchRow(name="app=matlab")))
    assert kept.reopen().switches == [hpc]


def test_absurd_numbers_in_a_question_are_unknown_and_no_error(kept: Kept) -> None:
    hand_over(kept.store, job(1, lines=tuple("abcdefghij")), *concluded([1]))
    for absurd in (-1, 10**30, -(10**30)):
        assert kept.store.job(absurd) is None
        assert kept.store.lines(absurd, [(0, 3)]) == []
        assert kept.store.lines(1, [(absurd, absurd)]) == []
        assert kept.store.outcomes(absurd, ranges=[(0, 9)], limit=9) == []
        assert kept.store.outcomes(1, ranges=[(absurd, absurd)], limit=9) == []
        assert kept.store.history(1, absurd) == []
        assert kept.store.ended(absurd, FINISHED) == []
        assert kept.store.output_segments(absurd, "out") == []
    assert len(kept.store.outcomes(1, ranges=[(-(10**30), 10**30)], limit=10**30)) == 1
    assert len(kept.store.jobs(owner=None, before=10**30, limit=10**30)) == 1
