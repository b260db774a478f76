"""What tasks wait for, and what befell them beside their attempts, in every store."""

import msgspec
import pytest

from tercel.core.changes import (
    AttemptLost,
    Change,
    Concluded,
    ConditionSet,
    JobRevised,
    LiveJob,
    Noted,
    OutputKept,
    OutputsDropped,
    Reopened,
    TasksBlocked,
    TasksUnblocked,
)
from tercel.core.conditions import Fault, Place, Postponed
from tercel.core.intervals import Range
from tercel.core.reports import Blame, Output
from tercel.core.states import Stage
from tests.conformance.stores import BLOCKED, FAILED, Kept, cancelled, condition, hand_over, job, outcome

MILLION = 10**6


def blocked(
    *ranges: Range, of: int = 1, at: float = 7.5, job: int = 1, met: Stage = Stage.RUN
) -> TasksBlocked:
    return TasksBlocked(job, ranges, of, at, met)


def freed(*ranges: Range, job: int = 1) -> TasksUnblocked:
    return TasksUnblocked(job, ranges)


def waiting(kept: Kept, number: int = 1) -> list[tuple[int, list[Range]]]:
    """Of tasks that all met it when they ran."""
    live = kept.store.live(number)
    assert live is not None
    return of_run(live)


def of_run(live: LiveJob) -> list[tuple[int, list[Range]]]:
    assert all(stage is Stage.RUN for _, stage, _ in live.blocked)
    return [(id, ranges) for id, _, ranges in live.blocked]


def test_what_held_tasks_will_wait_for_is_kept_until_it_is_not_so_any_more(kept: Kept) -> None:
    met = Fault(tester="command:./ok.sh", place=Place.SITE, where="lab", cwd="/data", env={"A": "b"})
    postponed = (Postponed(met, ((2, 3), (7, 7))),)
    spec = job(1).job.spec
    hand_over(kept.store, job(1), JobRevised(1, spec, ((0, 9),), postponed))
    (live,) = kept.reopen().jobs
    assert (live.job.held, live.job.postponed) == (((0, 9),), postponed)
    hand_over(kept.store, JobRevised(1, spec, ()))
    (live,) = kept.reopen().jobs
    assert (live.job.held, live.job.postponed) == ((), ())


# --- conditions


@pytest.mark.T(13)
def test_open_conditions_are_there_after_a_restart_as_they_were_last_set(kept: Kept) -> None:
    hand_over(kept.store, *[ConditionSet(condition(id)) for id in (3, 1, 2)])
    hand_over(kept.store, ConditionSet(condition(2, closed_at=9.5)), ConditionSet(condition(1, tests=4)))
    loaded = kept.reopen()
    assert loaded.conditions == [condition(1, tests=4), condition(3)]
    assert loaded.next_condition == 4


def test_of_one_batch_the_last_word_on_a_condition_counts(kept: Kept) -> None:
    hand_over(kept.store, ConditionSet(condition(1, closed_at=3.0)), ConditionSet(condition(1, tests=2)))
    assert kept.reopen().conditions == [condition(1, tests=2)]


def test_the_number_of_a_closed_condition_is_not_used_again(kept: Kept) -> None:
    assert kept.reopen().next_condition == 1
    hand_over(kept.store, ConditionSet(condition(5, closed_at=9.5)))
    loaded = kept.reopen()
    assert (loaded.conditions, loaded.next_condition) == ([], 6)


def test_conditions_are_told_newest_first_the_closed_ones_too_unless_only_open_ones_are_asked_for(
    kept: Kept,
) -> None:
    rows = {id: condition(id, closed_at=9.5 if id % 2 else None) for id in range(1, 7)}
    hand_over(kept.store, *map(ConditionSet, rows.values()))

    def told(open_only: bool, before: int | None, limit: int) -> list[int]:
        return [row.id for row in kept.store.conditions(open_only=open_only, before=before, limit=limit)]

    assert told(False, None, 9) == [6, 5, 4, 3, 2, 1]
    assert told(False, 5, 2) == [4, 3]
    assert told(True, None, 9) == [6, 4, 2]
    assert told(True, 6, 1) == [4]
    assert told(False, 10**30, 10**30) == [6, 5, 4, 3, 2, 1]
    assert told(False, None, -1) == []
    assert [kept.store.condition(id) for id in (3, 4, 7, 10**30)] == [rows[3], rows[4], None, None]


# --- who waits for them


@pytest.mark.T(13)
def test_blocked_tasks_are_there_after_a_restart_with_what_they_wait_for(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1, (0, 99)),
        ConditionSet(condition(1)),
        ConditionSet(condition(2)),
        *[blocked((task, task)) for task in (5, 4, 9, 6)],
        blocked((20, 29), (7, 8), of=2),
    )
    expected = [(1, [(4, 6), (9, 9)]), (2, [(7, 8), (20, 29)])]
    assert of_run(kept.reopen().jobs[0]) == expected
    assert waiting(kept) == expected


def test_neighbours_blocked_by_many_commits_are_told_as_one_range(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 99)))
    for task in (3, 5, 4):
        hand_over(kept.store, blocked((task, task), at=float(task)))
    assert waiting(kept) == [(1, [(3, 5)])]


@pytest.mark.parametrize("size", [100, 10 * MILLION])
def test_some_of_very_many_blocked_tasks_are_unblocked(kept: Kept, size: int) -> None:
    last = size - 1
    hand_over(kept.store, job(1, (0, last)), blocked((0, last)))
    hand_over(kept.store, freed((0, 9), (20, 29), (last, last)))
    assert waiting(kept) == [(1, [(10, 19), (30, last - 1)])]
    hand_over(kept.store, freed((0, last)))
    assert waiting(kept) == []


def test_within_one_batch_the_last_word_on_a_task_counts(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1, (0, 9)),
        blocked((0, 3)),
        freed((1, 2)),
        blocked((2, 2), of=2),
        freed((2, 2)),
        blocked((2, 2), of=3),
        freed((0, 0)),
    )
    assert waiting(kept) == [(1, [(3, 3)]), (3, [(2, 2)])]


def test_long_and_short_ranges_in_one_batch_are_applied_in_their_order(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1, (0, MILLION)),
        blocked((5, 5)),
        blocked((0, 99_999), of=2),
        blocked((7, 7), of=3),
        freed((50_000, 60_000)),
        blocked((55_000, 55_000), (90_000, 200_000), of=4),
    )
    assert waiting(kept) == [
        (2, [(0, 6), (8, 49_999), (60_001, 89_999)]),
        (3, [(7, 7)]),
        (4, [(55_000, 55_000), (90_000, 200_000)]),
    ]


def test_a_task_waits_for_one_condition_the_last_it_met(kept: Kept) -> None:
    hand_over(kept.store, job(1), blocked((0, 5)))
    hand_over(kept.store, blocked((3, 8), of=2))
    assert waiting(kept) == [(1, [(0, 2)]), (2, [(3, 8)])]


def test_a_task_may_end_be_reopened_and_be_blocked_in_one_batch(kept: Kept) -> None:
    met = outcome(1, attempt=9, state=BLOCKED, blame=Blame.OUTSIDE, note="exit code 75")
    changes: list[Change] = [
        job(1),
        Concluded(outcome(1, attempt=8, state=FAILED)),
        cancelled(3, 3),
        Reopened(1, ((1, 1), (3, 3))),
        AttemptLost(met),
        blocked((1, 1), (3, 3)),
    ]
    for _ in range(2):
        hand_over(kept.store, *changes)
        (live,) = kept.reopen().jobs
        assert (live.failed, live.cancelled, live.failures) == ([], [], {})
        assert of_run(live) == [(1, [(1, 1), (3, 3)])]
        assert [record.state for record in kept.store.history(1, 1)] == [FAILED, BLOCKED]
        assert kept.store.history(1, 1)[1] == met


@pytest.mark.T(3, 13)
def test_the_stage_in_which_tasks_met_it_is_there_after_a_restart(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1, (0, 9)),
        blocked((5, 5), met=Stage.LAUNCH),
        blocked((0, 2), met=Stage.ADMISSION),
        blocked((3, 4)),
        blocked((6, 6), of=2, met=Stage.LAUNCH),
    )
    expected = [
        (1, Stage.ADMISSION, [(0, 2)]),
        (1, Stage.LAUNCH, [(5, 5)]),
        (1, Stage.RUN, [(3, 4)]),
        (2, Stage.LAUNCH, [(6, 6)]),
    ]
    live = kept.store.live(1)
    assert live is not None
    assert live.blocked == kept.reopen().jobs[0].blocked == expected


@pytest.mark.parametrize("size", [10, 10 * MILLION])
def test_neighbours_that_met_it_in_different_stages_stay_apart_whatever_is_cut_out(
    kept: Kept, size: int
) -> None:
    last = 3 * size - 1
    hand_over(kept.store, job(1, (0, last)))
    for batch in (
        [blocked((0, size - 1), met=Stage.LAUNCH), blocked((size, last))],
        [blocked((size + 1, size + 1), met=Stage.LAUNCH), freed((3, 3), (last - 3, last - 3))],
        [blocked((5, 5)), freed((5, 5)), blocked((5, 5), met=Stage.ADMISSION)],
    ):
        hand_over(kept.store, *batch)
    assert kept.reopen().jobs[0].blocked == [
        (1, Stage.ADMISSION, [(5, 5)]),
        (1, Stage.LAUNCH, [(0, 2), (4, 4), (6, size - 1), (size + 1, size + 1)]),
        (1, Stage.RUN, [(size, size), (size + 2, last - 4), (last - 2, last)]),
    ]


def test_one_by_one_neighbours_of_one_stage_are_told_together(kept: Kept) -> None:
    met = [Stage.LAUNCH, Stage.LAUNCH, Stage.RUN, Stage.LAUNCH]
    hand_over(
        kept.store, job(1, (0, 9)), *[blocked((n, n), met=one, at=float(n)) for n, one in enumerate(met)]
    )
    live = kept.store.live(1)
    assert live is not None
    assert live.blocked == [(1, Stage.LAUNCH, [(0, 1), (3, 3)]), (1, Stage.RUN, [(2, 2)])]


def test_jobs_are_blocked_apart(kept: Kept) -> None:
    hand_over(kept.store, job(1), job(2), blocked((0, 3)), blocked((2, 5), job=2), freed((1, 2)))
    assert [of_run(live) for live in kept.reopen().jobs] == [[(1, [(0, 0), (3, 3)])], [(1, [(2, 5)])]]


def test_a_hundred_thousand_tasks_are_blocked_and_unblocked_one_by_one(kept: Kept) -> None:
    count = 100_000
    hand_over(
        kept.store,
        job(1, (0, 2 * count)),
        *[blocked((2 * task, 2 * task), at=float(task)) for task in range(count)],
    )
    assert waiting(kept) == [(1, [(2 * task, 2 * task) for task in range(count)])]
    hand_over(kept.store, *[freed((2 * task, 2 * task)) for task in range(1, count)])
    assert waiting(kept) == [(1, [(0, 0)])]


# --- what befell tasks


def noted(what: str, *ranges: Range, at: float, note: str = "") -> Noted:
    return Noted(1, ranges, at, what, note)


def told(kept: Kept, task: int) -> list[tuple[float, str, str]]:
    notes = kept.store.notes(1, task)
    assert all((note.job, note.ranges) == (1, ((task, task),)) for note in notes)
    return [(note.at, note.what, note.note) for note in notes]


@pytest.mark.C(7)
def test_notes_of_a_task_are_those_of_all_ranges_that_contain_it_oldest_first(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1, (0, 99 * MILLION)),
        noted("held", (0, 99 * MILLION), at=2.0, note="by ada"),
        noted("released", (10, 40), (60, 60), at=4.0),
        noted("blocked", (60, 60), at=1.0, note="exit code 75"),
        noted("moved", (0, 300), at=3.0),
    )
    kept.reopen()
    assert told(kept, 60) == [
        (1.0, "blocked", "exit code 75"),
        (2.0, "held", "by ada"),
        (3.0, "moved", ""),
        (4.0, "released", ""),
    ]
    assert [what for _, what, _ in told(kept, 41)] == ["held", "moved"]
    assert [what for _, what, _ in told(kept, 40)] == ["held", "moved", "released"]
    assert [what for _, what, _ in told(kept, 301)] == ["held"]
    assert kept.store.notes(2, 60) == []
    assert kept.store.notes(1, 10**30) == []


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 256, 4096, 65_537, MILLION])
def test_a_note_holds_for_every_task_of_its_range_and_no_other(kept: Kept, length: int) -> None:
    hand_over(kept.store, job(1, (0, 9 * MILLION)), noted("held", (500, 499 + length), at=1.0))
    asked = sorted({499, 500, 499 + length, 500 + length})
    whose = [task for task in asked if kept.store.notes(1, task)]
    assert whose == sorted({500, 499 + length})


def test_what_befell_a_task_at_one_time_is_told_in_the_order_it_was_written(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1),
        noted("blocked", (1, 1), at=5.0),
        noted("released", (1, 1), at=5.0),
        noted("blocked", (0, 0), at=5.0),
        noted("again", (0, 1), at=5.0),
    )
    assert [what for _, what, _ in told(kept, 1)] == ["blocked", "released", "again"]
    assert [what for _, what, _ in told(kept, 0)] == ["blocked", "again"]


def test_a_note_that_is_handed_over_twice_is_told_once(kept: Kept) -> None:
    notes = [noted("blocked", (task, task), at=5.0, note="x") for task in range(9)]
    hand_over(kept.store, job(1), *notes)
    hand_over(kept.store, *notes[3:])
    assert told(kept, 4) == [(5.0, "blocked", "x")]


def test_notes_of_one_word_at_one_time_with_other_texts_are_all_told(kept: Kept) -> None:
    hand_over(
        kept.store, job(1), noted("freed", (0, 9), at=1.0, note="b"), noted("freed", (3, 3), at=1.0, note="a")
    )
    assert told(kept, 3) == [(1.0, "freed", "b"), (1.0, "freed", "a")]


# --- the history of tasks and jobs


@pytest.mark.C(15)
def test_what_a_span_told_of_tasks_is_in_their_history_after_they_are_reopened(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 99)), cancelled(0, 49, reason="ada asked"))
    before = kept.store.notes(1, 7)
    assert [(note.what, note.note) for note in before] == [("cancelled", "ada asked")]
    hand_over(kept.store, Reopened(1, ((5, 9),)))
    kept.reopen()
    assert kept.store.notes(1, 7) == before
    assert kept.store.notes(1, 4)[0].note == "ada asked"
    (told,) = kept.store.job_notes(1, skip=0, limit=10)
    assert told.ranges == ((0, 49),)


def test_notes_of_a_job_are_read_in_pages_and_what_says_the_same_is_one(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 99)))
    hand_over(kept.store, Noted(1, ((4, 4),), 2.0, "held", "by ada"), Noted(1, ((1, 1),), 1.0, "blocked"))
    hand_over(kept.store, Noted(1, ((6, 7),), 2.0, "held", "by ada"), Noted(1, ((6, 7),), 3.0, "released"))
    told = kept.store.job_notes(1, skip=0, limit=10)
    assert [(note.what, note.ranges) for note in told] == [
        ("blocked", ((1, 1),)),
        ("held", ((4, 4), (6, 7))),
        ("released", ((6, 7),)),
    ]
    assert kept.store.job_notes(1, skip=1, limit=1) == told[1:2]
    assert kept.store.job_notes(1, since=2.0, limit=10) == told[1:]
    assert kept.store.job_notes(1, since=1.5, skip=1, limit=10) == told[2:]
    assert kept.store.job_notes(2, skip=0, limit=9) == []


@pytest.mark.C(6)
def test_pieces_of_output_that_no_record_tells_of_are_found_and_dropped(kept: Kept) -> None:
    whole = outcome(3, attempt=8, out=Output(4, 4, b"", segments=1))
    hand_over(
        kept.store,
        job(1, (0, 9)),
        AttemptLost(outcome(3, attempt=7, state=FAILED)),
        *(OutputKept(attempt, "out", number, b"x") for attempt in (7, 8) for number in (0, 1)),
        Concluded(whole),
        Reopened(1, ((3, 3),)),
    )
    assert kept.store.half_done(1, [(0, 9)]) == [(7, 2)]
    assert kept.store.half_done(1, [(4, 9)]) == []
    for _ in range(2):
        hand_over(kept.store, OutputsDropped((7, 8)))
        assert kept.store.half_done(1, [(0, 9)]) == []
        assert kept.store.output_segments(7, "out") == []
        assert len(kept.store.output_segments(8, "out")) == 2, "its record tells of them"


@pytest.mark.C(6)
def test_tasks_are_found_by_when_they_ended(kept: Kept) -> None:
    early, late = outcome(0, attempt=1), msgspec.structs.replace(outcome(2, attempt=2), ended_at=900.0)
    hand_over(kept.store, job(1, (0, 9)), Concluded(early), Concluded(late), cancelled(3, 5))
    assert kept.store.ended_since(1, 900.0) == [(2, 2)]
    assert kept.store.ended_since(1, 300.0) == [(2, 5)]
    assert kept.store.ended_since(1, 0.0) == [(0, 0), (2, 5)]


def test_the_room_that_outputs_take_is_told(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 9)), job(2), OutputKept(5, "out", 0, b"x" * 5000))
    hand_over(kept.store, Concluded(outcome(1, attempt=5, out=Output(9, 9, b"", segments=1))))
    assert 5000 <= kept.store.kept_bytes(1) < 5200
    assert kept.store.kept_bytes(2) == 0
