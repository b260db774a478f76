"""How every store keeps the ends of tasks: outcomes, spans, history."""

import pytest
from msgspec.structs import replace

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Blamed,
    Change,
    Concluded,
    JobEnded,
    LeaseClosed,
    Leased,
    OutputKept,
    Reopened,
    SpanConcluded,
    TokenAdded,
)
from tercel.core.reports import Blame, End, Outcome, Output, Report
from tercel.core.states import TaskState
from tercel.stores.sqlite import outcomes as sqlite_outcomes
from tests.conformance.stores import (
    CANCELLED,
    FAILED,
    FINISHED,
    Kept,
    answers,
    cancelled,
    concluded,
    hand_over,
    job,
    lease,
    outcome,
    token,
)

# --- outcomes


def test_an_outcome_comes_back_as_it_was_reported(kept: Kept) -> None:
    report = Report(
        job=1,
        task=2**31 - 1,
        attempt=(7 << 32) + 5,
        end=End.SIGNALLED,
        code=9,
        started_at=1.7e9 + 1 / 3,
        wall_s=1e-9,
        cpu_s=0.0,
        max_rss_bytes=2**50,
        note="killed: out of memory\x00 µ",
        out=Output(10**12, 5, b"\x00\xff\n12"),
        err=Output(2**31, 2**20, b"", segments=4),
    )
    told = Outcome(FAILED, "node with space", 1.7e9 + 2 / 3, report)
    hand_over(kept.store, job(1, (0, 2**31 - 1)), Concluded(told))
    assert kept.store.outcomes(1, ranges=[(0, 2**31 - 1)], limit=9) == [told]


@pytest.mark.parametrize("end", End)
def test_every_way_to_end_is_kept(kept: Kept, end: End) -> None:
    plain = outcome(0)
    told = replace(plain, report=replace(plain.report, end=end))
    hand_over(kept.store, job(1), Concluded(told))
    assert kept.store.outcomes(1, ranges=[(0, 0)], limit=1) == [told]


def test_what_a_task_used_too_much_of_is_kept_also_in_its_history(kept: Kept) -> None:
    first, second = outcome(0, attempt=1, exceeded="memory"), outcome(0, attempt=2, exceeded="pids")
    hand_over(kept.store, job(1), Concluded(first))
    hand_over(kept.store, Reopened(1, ((0, 0),)), Concluded(second))
    assert kept.store.outcomes(1, ranges=[(0, 0)], limit=1) == [second]
    assert kept.store.history(1, 0) == [first]


def test_no_output_an_empty_one_and_a_short_one_are_told_apart(kept: Kept) -> None:
    told = [
        outcome(0),
        outcome(1, out=Output(0, 0)),
        outcome(2, err=Output(0, 0)),
        outcome(3, out=Output(2, 2, b"hi"), err=Output(0, 0)),
    ]
    hand_over(kept.store, job(1), *map(Concluded, told))
    assert kept.store.outcomes(1, ranges=[(0, 9)], limit=9) == told


def test_outcomes_are_chosen_by_task_state_and_number(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 99)), *concluded(range(0, 100, 2)), *concluded([1, 51], state=FAILED))

    def tasks(ranges: list[tuple[int, int]], limit: int, *states: TaskState) -> list[int]:
        found = kept.store.outcomes(1, ranges=ranges, states=states, limit=limit)
        return [record.report.task for record in found]

    assert tasks([(0, 99)], 4) == [0, 1, 2, 4]
    assert tasks([(0, 99)], 9, FAILED) == [1, 51]
    assert tasks([(0, 99)], 1, FAILED) == [1]
    assert tasks([(0, 5)], 9, FINISHED) == [0, 2, 4]
    assert tasks([(0, 2)], 9, FINISHED, FAILED) == [0, 1, 2]
    assert tasks([(50, 52), (0, 1)], 9) == [0, 1, 50, 51, 52]
    assert tasks([(50, 52), (51, 53)], 9) == [50, 51, 52]
    assert tasks([(0, 99)], 9, CANCELLED) == []
    assert tasks([(0, 99)], 9, TaskState.READY) == []
    assert tasks([], 9) == []
    assert tasks([(0, 99)], 0) == []
    assert tasks([(0, 99)], -1) == []


def test_outcomes_of_one_job_are_not_mixed_with_anothers(kept: Kept) -> None:
    hand_over(
        kept.store, job(1), job(2), *concluded([1], job=1), *concluded([2], job=2), cancelled(5, 6, job=2)
    )
    assert [o.report.task for o in kept.store.outcomes(1, ranges=[(0, 9)], limit=9)] == [1]
    assert [o.report.task for o in kept.store.outcomes(2, ranges=[(0, 9)], limit=9)] == [2, 5, 6]
    assert kept.store.ended(1, CANCELLED) == []


def test_an_outcome_handed_over_again_is_one_outcome(kept: Kept) -> None:
    hand_over(kept.store, job(1), *concluded([1, 2]))
    hand_over(kept.store, *concluded([1, 2]))
    assert [o.report.task for o in kept.store.outcomes(1, ranges=[(0, 9)], limit=9)] == [1, 2]


# --- spans


def test_a_task_cancelled_without_an_attempt_has_a_record_too(kept: Kept) -> None:
    hand_over(kept.store, job(1), *concluded([4]), cancelled(2, 3, reason="ada asked"), cancelled(5, 5))
    records = kept.store.outcomes(1, ranges=[(0, 9)], limit=9)
    assert [record.report.task for record in records] == [2, 3, 4, 5]
    told = records[0]
    assert (told.state, told.worker, told.ended_at) == (CANCELLED, "", 300.5)
    assert (told.report.attempt, told.report.end, told.report.note) == (0, End.CANCELLED, "ada asked")


def test_a_span_of_a_hundred_million_tasks_is_told_a_page_at_a_time(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 10**8 - 1)), *concluded([10**8 - 2]), cancelled(0, 10**8 - 3))
    assert kept.store.ended(1, CANCELLED) == [(0, 10**8 - 3)]
    page = kept.store.outcomes(1, ranges=[(10**8 - 5, 10**8 - 1)], states=[CANCELLED, FINISHED], limit=4)
    assert [record.report.task for record in page] == [10**8 - 5, 10**8 - 4, 10**8 - 3, 10**8 - 2]


def test_part_of_a_span_may_be_reopened(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 99)), cancelled(10, 49), cancelled(50, 59, reason="bob asked"))
    hand_over(kept.store, Reopened(1, ((0, 11), (20, 20), (45, 52), (59, 70))))
    assert kept.store.ended(1, CANCELLED) == [(12, 19), (21, 44), (53, 58)]
    reasons = {o.report.task: o.report.note for o in kept.store.outcomes(1, ranges=[(0, 99)], limit=99)}
    assert (reasons[44], reasons[53], reasons.get(45)) == ("ada asked", "bob asked", None)
    assert kept.store.history(1, 20) == []


def test_a_reopened_part_of_a_span_may_be_cancelled_again_for_another_reason(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 99)), cancelled(10, 49))
    hand_over(kept.store, Reopened(1, ((20, 29),)), cancelled(20, 24, reason="bob asked"), *concluded([25]))
    assert kept.store.ended(1, CANCELLED) == [(10, 24), (30, 49)]
    assert kept.store.ended(1, FINISHED) == [(25, 25)]
    records = kept.store.outcomes(1, ranges=[(19, 30)], limit=99)
    assert [(o.report.task, o.report.note) for o in records] == [
        (19, "ada asked"),
        *[(task, "bob asked") for task in range(20, 25)],
        (25, ""),
        (30, "ada asked"),
    ]


def test_a_span_may_be_cut_by_a_reopening_in_the_same_batch(kept: Kept) -> None:
    hand_over(kept.store, job(1), cancelled(0, 4), Reopened(1, ((1, 2),)))
    assert kept.store.ended(1, CANCELLED) == [(0, 0), (3, 4)]


def test_a_span_of_any_ended_state_counts_as_that_state(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1),
        SpanConcluded(1, 0, 2, FAILED, 1.0, "condition gave up"),
        *concluded([3], state=FAILED),
    )
    assert kept.store.ended(1, FAILED) == [(0, 3)]
    assert [o.report.task for o in kept.store.outcomes(1, ranges=[(0, 9)], states=[FAILED], limit=9)] == [
        0,
        1,
        2,
        3,
    ]


def test_ended_tasks_are_told_as_maximal_ranges(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_outcomes, "TASKS_AT_ONCE", 3)
    hand_over(
        kept.store,
        job(1, (0, 99)),
        *concluded([0, 1, 2, 3, 4, 5, 6, 8, 10, 11, 12]),
        *concluded([20, 25], state=CANCELLED),
        cancelled(21, 24),
        cancelled(26, 30),
        cancelled(40, 40),
    )
    assert kept.store.ended(1, FINISHED) == [(0, 6), (8, 8), (10, 12)]
    assert kept.store.ended(1, CANCELLED) == [(20, 30), (40, 40)]
    assert kept.store.ended(1, FAILED) == []
    assert kept.store.ended(1, TaskState.READY) == []


# --- reopening and history


def test_a_reopened_tasks_record_moves_into_its_history_with_its_output(kept: Kept) -> None:
    first = outcome(3, attempt=11, state=FAILED, note="no licence", out=Output(2, 2, b"hi"))
    second = outcome(3, attempt=12, out=Output(3, 3, b"yes"))
    hand_over(kept.store, job(1), Concluded(first))
    hand_over(kept.store, Reopened(1, ((3, 3),)))
    assert kept.store.outcomes(1, ranges=[(0, 9)], limit=9) == []
    assert kept.store.history(1, 3) == [first]
    assert kept.store.tried(1, 3) == [(11, first.worker)]
    hand_over(kept.store, Concluded(second))
    assert kept.store.outcomes(1, ranges=[(0, 9)], limit=9) == [second]
    assert kept.store.history(1, 3) == [first]
    assert kept.store.tried(1, 3) == [(11, first.worker), (12, second.worker)]
    assert kept.store.tried(1, 4) == kept.store.tried(2, 3) == []


def test_a_task_was_tried_however_that_ended_but_not_if_it_never_began(kept: Kept) -> None:
    ends = [outcome(3, attempt=11, state=FAILED), outcome(4, attempt=12, state=CANCELLED)]
    hand_over(kept.store, job(1), *map(Concluded, ends), cancelled(5, 6))
    hand_over(kept.store, cancelled(7, 7))
    hand_over(kept.store, Reopened(1, ((7, 7),)))
    tried = [kept.store.tried(1, task) for task in range(3, 8)]
    assert tried == [[(11, ends[0].worker)], [(12, ends[1].worker)], [], [], []]


def test_history_is_told_oldest_first_whatever_the_order_of_reports(kept: Kept) -> None:
    late, early = outcome(3, attempt=11, state=FAILED), outcome(3, attempt=12, state=FAILED)
    hand_over(kept.store, job(1), AttemptSpent(early), AttemptSpent(late), *concluded([3]))
    assert kept.store.history(1, 3) == [late, early]
    assert kept.store.history(1, 4) == []


def test_retries_spent_are_counted_for_unfinished_tasks_only(kept: Kept) -> None:
    spent = [
        AttemptSpent(outcome(task, attempt=100 * task + n, state=FAILED))
        for task, times in ((1, 2), (2, 1), (3, 1), (4, 3))
        for n in range(times)
    ]
    hand_over(kept.store, job(1), *spent, *concluded([2]), cancelled(3, 3))
    assert kept.reopen().jobs[0].failures == {1: 2, 4: 3}


def test_a_reopened_task_has_all_its_retries_again(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1),
        AttemptSpent(outcome(1, attempt=10, state=FAILED)),
        Concluded(outcome(1, attempt=11, state=FAILED)),
        AttemptSpent(outcome(2, attempt=20, state=FAILED)),
        cancelled(2, 2),
    )
    hand_over(kept.store, Reopened(1, ((1, 2),)))
    assert kept.reopen().jobs[0].failures == {}
    hand_over(kept.store, AttemptSpent(outcome(1, attempt=12, state=FAILED)))
    assert kept.reopen().jobs[0].failures == {1: 1}
    assert [earlier.report.attempt for earlier in kept.store.history(1, 1)] == [10, 11, 12]


@pytest.mark.parametrize("blame", Blame)
def test_an_attempt_that_was_anothers_fault_counts_against_no_retries(kept: Kept, blame: Blame) -> None:
    spent = [outcome(task, attempt=10 + task, state=FAILED) for task in (0, 0, 1, 2)]
    spent[1] = outcome(0, attempt=20, state=FAILED, out=Output(2, 2, b"hi"))
    hand_over(kept.store, job(1), *map(AttemptSpent, spent))
    hand_over(kept.store, Blamed(1, ((0, 20), (1, 11), (5, 99)), blame))
    assert kept.reopen().jobs[0].failures == {0: 1, 2: 1}
    assert kept.store.history(1, 0) == [spent[0], replace(spent[1], blame=blame)]
    assert kept.store.history(1, 1) == [replace(spent[2], blame=blame)]
    assert kept.store.history(1, 5) == []


def test_blame_is_put_on_what_is_reopened_and_lost_in_the_same_batch(kept: Kept) -> None:
    failed, lost = outcome(0, attempt=1, state=FAILED), outcome(1, attempt=2, blame=Blame.NODE)
    batch: list[Change] = [
        Concluded(failed),
        Reopened(1, ((0, 0),)),
        Blamed(1, ((0, 1),), Blame.WORKER),
        AttemptLost(lost),
        Concluded(outcome(0, attempt=3)),
    ]
    hand_over(kept.store, job(1), *batch)
    hand_over(kept.store, *batch)
    assert kept.store.history(1, 0) == [replace(failed, blame=Blame.WORKER)]
    assert kept.store.history(1, 1) == [lost]
    assert kept.store.outcomes(1, ranges=[(0, 9)], limit=9) == [outcome(0, attempt=3)]


def test_changes_of_a_task_are_applied_in_their_order(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1),
        Concluded(outcome(1, attempt=10, state=FAILED)),
        Reopened(1, ((1, 1),)),
        AttemptSpent(outcome(1, attempt=11, state=FAILED)),
        cancelled(0, 4),
        Reopened(1, ((1, 2),)),
        AttemptSpent(outcome(1, attempt=12, state=FAILED)),
        Concluded(outcome(2, attempt=20)),
    )
    live = kept.reopen().jobs[0]
    assert (live.finished, live.failed, live.cancelled) == ([(2, 2)], [], [(0, 0), (3, 4)])
    assert live.failures == {1: 1}
    assert [earlier.report.attempt for earlier in kept.store.history(1, 1)] == [10, 11, 12]


def test_a_batch_handed_over_twice_is_the_same_as_once(kept: Kept) -> None:
    """After a commit that failed, or only seemed to."""
    hand_over(kept.store, job(1, (0, 99)), Concluded(outcome(1, attempt=10, state=FAILED)), cancelled(20, 29))
    batch: list[Change] = [
        job(2),
        Leased(lease(5)),
        Reopened(1, ((1, 1), (22, 25))),
        Concluded(outcome(1, attempt=11)),
        AttemptSpent(outcome(22, attempt=12, state=FAILED)),
        Concluded(outcome(23, attempt=13, state=FAILED)),
        Reopened(1, ((23, 23),)),
        cancelled(22, 23, reason="bob asked"),
        LeaseClosed(5),
        JobEnded(2, 9.0, 1, 0, 0),
        OutputKept(1, "out", 0, b"piece"),
        TokenAdded(token("t")),
    ]
    hand_over(kept.store, *batch)
    once = answers(kept.store, attempts=1)
    hand_over(kept.store, *batch)
    assert answers(kept.store, attempts=1) == once
    assert kept.store.history(1, 1) == [outcome(1, attempt=10, state=FAILED)]
