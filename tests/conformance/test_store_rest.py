"""Leases, outputs and tokens, in every store."""

from tercel.core.changes import (
    LeaseClosed,
    Leased,
    OutputKept,
    TokenAdded,
    TokenRevoked,
)
from tercel.core.model import Role
from tests.conformance.stores import (
    FINISHED,
    Kept,
    concluded,
    hand_over,
    job,
    lease,
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


def test_a_revoked_token_is_gone(kept: Kept) -> None:
    hand_over(kept.store, *[TokenAdded(token(name, role)) for name, role in zip("bac", Role, strict=True)])
    hand_over(kept.store, TokenRevoked("a"), TokenRevoked("unknown"))
    assert kept.reopen().tokens == [token("b", Role.ADMIN), token("c", Role.WORKER)]


def test_absurd_numbers_in_a_question_are_unknown_and_no_error(kept: Kept) -> None:
    hand_over(kept.store, job(1, lines=tuple("abcdefghij")), *concluded([1]))
    for absurd in (-1, 10**30, -(10**30)):
        assert kept.store.job(absurd) is None
        assert kept.store.lines(absurd, 0, 3) == []
        assert kept.store.lines(1, absurd, absurd) == []
        assert kept.store.outcomes(absurd, ranges=[(0, 9)], limit=9) == []
        assert kept.store.outcomes(1, ranges=[(absurd, absurd)], limit=9) == []
        assert kept.store.history(1, absurd) == []
        assert kept.store.ended(absurd, FINISHED) == []
        assert kept.store.output_segments(absurd, "out") == []
    assert len(kept.store.outcomes(1, ranges=[(-(10**30), 10**30)], limit=10**30)) == 1
    assert len(kept.store.jobs(owner=None, before=10**30, limit=10**30)) == 1
