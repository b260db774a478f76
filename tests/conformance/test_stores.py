"""What every store must do: one set of sentences, run on each."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from tercel.core.changes import (
    AttemptSpent,
    Change,
    Concluded,
    JobAdded,
    JobEnded,
    JobResumed,
    LeaseClosed,
    Leased,
    OutputKept,
    Reopened,
    SpanConcluded,
    TokenAdded,
    TokenRevoked,
)
from tercel.core.model import End, JobRow, JobSpec, Outcome, Output, Report, Role
from tercel.core.states import TaskState
from tercel.stores.sqlite import lines as sqlite_lines
from tercel.stores.sqlite import outcomes as sqlite_outcomes
from tests.conformance.stores import (
    CANCELLED,
    FAILED,
    FINISHED,
    Kept,
    KeptInMemory,
    KeptInSqlite,
    answers,
    cancelled,
    concluded,
    hand_over,
    job,
    lease,
    outcome,
    token,
)


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    kept: Kept = KeptInMemory() if request.param == "memory" else KeptInSqlite(tmp_path / "store.db")
    yield kept
    kept.store.close()


# --- opening, committing, losing


def test_an_empty_store_loads_as_nothing(kept: Kept) -> None:
    loaded = kept.store.load()
    assert (loaded.next_job, loaded.jobs, loaded.leases, loaded.tokens) == (1, [], [], [])


def test_every_opening_begins_a_new_epoch(kept: Kept) -> None:
    first = kept.store.load().epoch
    assert first >= 1
    assert [kept.reopen().epoch, kept.reopen().epoch] == [first + 1, first + 2]


def test_what_was_committed_is_there_after_the_end_of_the_process(kept: Kept) -> None:
    added = job(1, (0, 9))
    hand_over(kept.store, added, Leased(lease(7)), *concluded([0, 1, 5]), TokenAdded(token("t1")))
    loaded = kept.reopen()
    assert [live.job for live in loaded.jobs] == [added.job]
    assert loaded.jobs[0].finished == [(0, 1), (5, 5)]
    assert loaded.leases == [lease(7)]
    assert loaded.tokens == [token("t1")]
    assert loaded.next_job == 2


def test_what_was_only_written_is_gone_after_the_end_of_the_process(kept: Kept) -> None:
    hand_over(kept.store, job(1))
    kept.store.write([job(2), *concluded([3])])
    loaded = kept.reopen()
    assert [live.job.id for live in loaded.jobs] == [1]
    assert loaded.jobs[0].finished == []
    assert kept.store.job(2) is None


def test_questions_see_only_what_is_committed(kept: Kept) -> None:
    kept.store.write([job(1), *concluded([3])])
    assert kept.store.job(1) is None
    assert kept.store.ended(1, FINISHED) == []
    kept.store.commit()
    assert kept.store.job(1) is not None
    assert kept.store.ended(1, FINISHED) == [(3, 3)]


def test_several_batches_may_share_a_commit(kept: Kept) -> None:
    kept.store.write([job(1)])
    kept.store.write(concluded([3]))
    kept.store.commit()
    assert kept.store.ended(1, FINISHED) == [(3, 3)]


def test_a_commit_of_nothing_and_an_empty_batch_do_no_harm(kept: Kept) -> None:
    kept.store.commit()
    kept.store.write([])
    kept.store.commit()
    assert kept.store.jobs(owner=None, before=None, limit=10) == []


def test_the_commit_may_happen_on_another_thread(kept: Kept) -> None:
    kept.store.write([job(1)])
    other = Thread(target=kept.store.commit)
    other.start()
    other.join()
    kept.store.write(concluded([3]))
    kept.store.commit()
    assert kept.store.ended(1, FINISHED) == [(3, 3)]


def test_questions_from_many_threads_see_whole_batches_while_others_are_committed(kept: Kept) -> None:
    """Each batch ends ten tasks: nobody ever sees another number."""
    store, seen = kept.store, list[int]()

    def watch() -> None:
        while not seen or seen[-1] < 500:
            seen.append(sum(last - first + 1 for first, last in store.ended(1, FINISHED)))

    hand_over(store, job(1, (0, 499)))
    watchers = [Thread(target=watch) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    for first in range(0, 500, 10):
        store.write(concluded(range(first, first + 10)))
        commit = Thread(target=store.commit)
        commit.start()
        commit.join()
    for watcher in watchers:
        watcher.join()
    assert {count % 10 for count in seen} == {0}


# --- jobs


def test_a_job_comes_back_as_it_was_submitted(kept: Kept) -> None:
    spec = JobSpec(
        line="fit --seed $TERCEL_TASK_ID | tail",
        name="fit µ",
        array="0-9:3%2",
        cpus=0.5,
        mem_bytes=2**40,
        time_limit_s=3600.5,
        priority=0,
        retries=3,
        cwd="/home/ada",
        env={"A": "b\nc", "Ü": ""},
        task_id_argument=True,
        kill_grace_s=0.0,
        output_limit_bytes=1,
    )
    row = JobRow(
        id=2**40,
        owner="ada",
        spec=spec,
        ranges=((0, 0), (3, 3), (6, 2**31 - 1)),
        max_running=2,
        submitted_at=1.7e9 + 0.123456,
        key="k-1",
    )
    hand_over(kept.store, JobAdded(row))
    assert kept.store.job(2**40) == row
    loaded = kept.reopen()
    assert [live.job for live in loaded.jobs] == [row]
    assert loaded.next_job == 2**40 + 1


def test_an_ended_job_is_kept_with_its_counts_and_not_loaded(kept: Kept) -> None:
    added = job(1)
    hand_over(kept.store, added, job(2), JobEnded(1, 400.5, 7, 2, 1))
    loaded = kept.reopen()
    assert [live.job.id for live in loaded.jobs] == [2]
    assert loaded.next_job == 3
    assert kept.store.job(1) == replace(added.job, ended_at=400.5, finished=7, failed=2, cancelled=1)


def test_a_resumed_job_is_as_before_it_ended(kept: Kept) -> None:
    added = job(1)
    hand_over(kept.store, added, JobEnded(1, 400.5, 7, 2, 1))
    hand_over(kept.store, JobResumed(1), Reopened(1, ((2, 3),)))
    assert [live.job for live in kept.reopen().jobs] == [added.job]


def test_a_job_may_end_and_be_resumed_and_end_again_in_one_batch(kept: Kept) -> None:
    added = job(1, (0, 0))
    first, second = outcome(0, attempt=1, state=FAILED), outcome(0, attempt=2)
    hand_over(
        kept.store,
        added,
        Concluded(first),
        JobEnded(1, 10.0, 0, 1, 0),
        JobResumed(1),
        Reopened(1, ((0, 0),)),
        Concluded(second),
        JobEnded(1, 20.0, 1, 0, 0),
    )
    assert kept.store.job(1) == replace(added.job, ended_at=20.0, finished=1)
    assert kept.store.outcomes(1, ranges=[(0, 0)], limit=9) == [second]
    assert kept.store.history(1, 0) == [first]
    assert kept.reopen().jobs == []


def test_a_job_is_found_by_its_owners_key(kept: Kept) -> None:
    mine, theirs = job(1, key="k"), job(2, key="k", owner="bob")
    hand_over(kept.store, mine, theirs, job(3), job(4, key="k"))
    assert kept.store.job_by_key("ada", "k") == mine.job
    assert kept.store.job_by_key("bob", "k") == theirs.job
    assert kept.store.job_by_key("ada", "other") is None
    assert kept.store.job_by_key("ada", "") is None


def test_jobs_come_newest_first_in_pages(kept: Kept) -> None:
    hand_over(kept.store, *[job(n, owner="ada" if n % 2 else "bob") for n in range(1, 8)])

    def ids(owner: str | None, before: int | None, limit: int) -> list[int]:
        return [row.id for row in kept.store.jobs(owner=owner, before=before, limit=limit)]

    assert ids(None, None, 3) == [7, 6, 5]
    assert ids(None, 5, 3) == [4, 3, 2]
    assert ids("ada", None, 2) == [7, 5]
    assert ids("ada", 5, 9) == [3, 1]
    assert ids("nobody", None, 9) == []
    assert ids(None, None, 0) == []
    assert ids(None, None, -1) == []


# --- lines


def test_each_task_has_its_own_line(kept: Kept) -> None:
    lines = tuple(f"fit {n}" for n in range(2500))
    hand_over(kept.store, job(1, (0, 2499), lines=lines))
    assert kept.store.lines(1, 0, 0) == ["fit 0"]
    assert kept.store.lines(1, 995, 1004) == [f"fit {n}" for n in range(995, 1005)]
    assert kept.store.lines(1, 0, 2499) == list(lines)
    assert kept.store.lines(1, 2499, 4000) == ["fit 2499"]
    assert kept.store.lines(1, 2500, 4000) == []
    assert kept.store.lines(1, 5, 4) == []
    assert kept.store.lines(2, 0, 5) == []


def test_lines_belong_to_task_numbers_also_where_those_have_gaps(kept: Kept) -> None:
    hand_over(kept.store, job(1, (5, 6), (10, 10), (20, 22), lines=("a", "b", "c", "d", "e", "f")))
    assert kept.store.lines(1, 0, 99) == ["a", "b", "c", "d", "e", "f"]
    assert kept.store.lines(1, 6, 20) == ["b", "c", "d"]
    assert kept.store.lines(1, 7, 9) == []
    assert kept.store.lines(1, 21, 21) == ["e"]


def test_a_job_with_lines_uses_no_more_than_it_was_given_by_another(kept: Kept) -> None:
    hand_over(
        kept.store, job(1, (0, 2), lines=("a", "b", "c")), job(2, (0, 2), lines=("x", "y", "z")), job(3)
    )
    assert kept.store.lines(1, 0, 9) == ["a", "b", "c"]
    assert kept.store.lines(2, 0, 9) == ["x", "y", "z"]
    assert kept.store.lines(3, 0, 9) == []


def test_long_lines_come_back_whole(kept: Kept) -> None:
    lines = tuple(chr(ord("a") + n) * (sqlite_lines.CHUNK_BYTES // 3 + n) for n in range(10))
    hand_over(kept.store, job(1, (0, 9), lines=lines))
    assert kept.store.lines(1, 0, 9) == list(lines)
    assert [kept.store.lines(1, n, n) for n in range(10)] == [[line] for line in lines]


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
    hand_over(kept.store, Concluded(second))
    assert kept.store.outcomes(1, ranges=[(0, 9)], limit=9) == [second]
    assert kept.store.history(1, 3) == [first]


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


# --- leases, outputs, tokens


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
