"""Removing what is old, in every store."""

import sqlite3
from pathlib import Path

import pytest

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Change,
    Concluded,
    ConditionSet,
    FileRegistered,
    JobAdded,
    JobEnded,
    JobResumed,
    JobRevised,
    LeaseClosed,
    Leased,
    MadeUndone,
    Noted,
    OutputKept,
    Reopened,
    TasksBlocked,
    ValueKept,
)
from tercel.core.files import Input
from tercel.core.model import After, Call, Function, JobSpec
from tercel.core.reports import Output
from tercel.core.states import Stage
from tercel.stores.contract import Cleaned, Old, Store, count_left_out
from tercel.stores.sqlite import SqliteStore, cleaning
from tests.conformance.stores import (
    BLOCKED,
    FAILED,
    FINISHED,
    Kept,
    KeptInSqlite,
    answers,
    cancelled,
    concluded,
    condition,
    file,
    hand_over,
    job,
    lease,
    outcome,
)

NEW = 1000.0


def ended(number: int, at: float = 10.0, *, after: tuple[int, ...] = (), owner: str = "ada") -> list[Change]:
    spec = JobSpec(argv=("true",), after=tuple(After(job=needed) for needed in after))
    return [
        job(number, spec=spec, owner=owner),
        *concluded(range(10), job=number),
        JobEnded(number, at, 10, 0, 0),
    ]


def removable(
    store: Store, ended_before: float = NEW, owner: str | None = None, limit: int = 100
) -> list[int]:
    return store.removable(ended_before=ended_before, owner=owner, limit=limit)


def clean(
    store: Store,
    before: float = NEW,
    limit: int = 1000,
    keep_values: tuple[str, ...] = (),
    unnamed_before: float = 0.0,
) -> Cleaned:
    cleaned = Cleaned(more=True)
    while cleaned.more:
        cleaned += store.clean(
            before=before, limit=limit, keep_values=keep_values, unnamed_before=unnamed_before
        )
    return cleaned


# --- which jobs


def test_jobs_that_ended_long_ago_are_removable_the_oldest_first(kept: Kept) -> None:
    hand_over(
        kept.store, *ended(1, 30.0), *ended(2, 20.0), *ended(3, 50.0), job(4), *ended(5, 20.0, owner="bob")
    )
    assert removable(kept.store, 50.0) == [2, 5, 1]
    assert removable(kept.store, 50.0, owner="ada") == [2, 1]
    assert removable(kept.store, 50.0, limit=1) == [2]
    assert removable(kept.store, 20.0) == []


def test_a_job_that_another_needs_is_not_removable_until_that_one_is_gone(kept: Kept) -> None:
    hand_over(
        kept.store, *ended(1), *ended(2, after=(1,)), job(3, spec=JobSpec(argv=("x",), after=(After(job=2),)))
    )
    assert removable(kept.store) == []
    assert kept.store.remove_jobs([1, 2, 3], ended_before=NEW) == []
    hand_over(kept.store, JobEnded(3, 10.0, 10, 0, 0))
    assert removable(kept.store) == [3]
    assert kept.store.remove_jobs([3, 2], ended_before=NEW) == [3, 2]
    assert removable(kept.store) == [1]


def test_a_job_of_which_a_worker_may_still_hold_something_is_not_removable(kept: Kept) -> None:
    hand_over(kept.store, *ended(1), Leased(lease(7)))
    assert (removable(kept.store), kept.store.remove_jobs([1], ended_before=NEW)) == ([], [])
    hand_over(kept.store, LeaseClosed(7))
    assert removable(kept.store) == [1]


@pytest.mark.T(1)
def test_a_job_that_was_resumed_or_ended_again_meanwhile_is_not_removed(kept: Kept) -> None:
    hand_over(kept.store, *ended(1), *ended(2))
    assert removable(kept.store, 50.0) == [1, 2]
    hand_over(kept.store, JobResumed(1), JobResumed(2), JobEnded(2, 60.0, 10, 0, 0))
    assert kept.store.remove_jobs([1, 2, 3, 10**30], ended_before=50.0) == []
    assert kept.store.job(1) is not None


def test_a_removed_job_is_not_found_and_its_number_not_used_again(kept: Kept) -> None:
    hand_over(kept.store, *ended(1), *ended(2))
    assert kept.store.remove_jobs([2], ended_before=NEW) == [2]
    assert kept.store.job(2) is None
    assert kept.store.live(2) is None
    assert [row.id for row in kept.store.jobs(owner=None, before=None, limit=9)] == [1]
    assert kept.reopen().next_job == 3
    assert kept.store.remove_jobs([1, 2], ended_before=NEW) == [1]
    clean(kept.store)
    assert kept.reopen().next_job == 3


def test_nothing_is_removed_between_a_write_and_its_commit(kept: Kept) -> None:
    hand_over(kept.store, *ended(1))
    kept.store.write([job(2)])
    with pytest.raises(RuntimeError):
        kept.store.remove_jobs([1], ended_before=NEW)
    with pytest.raises(RuntimeError):
        kept.store.clean(before=NEW)
    with pytest.raises(RuntimeError):
        kept.store.compact_history(ended_before=NEW, keep=1)
    kept.store.commit()
    assert (kept.store.job(1), kept.store.job(2)) != (None, None)


# --- what they leave behind


LARGE: list[Change] = [
    job(2, (0, 2999), lines=tuple(map(str, range(3000)))),
    *[Concluded(outcome(task, job=2, out=Output(2, 2, b"hi"))) for task in range(2000)],
    Concluded(outcome(2000, attempt=7, job=2, err=Output(9, 9, b"", segments=40))),
    *[OutputKept(7, "err", number, b"x" * 1000) for number in range(40)],
    *[AttemptSpent(outcome(5, attempt=10_000 + n, job=2, state=FAILED)) for n in range(30)],
    cancelled(2001, 2999, job=2),
    TasksBlocked(2, ((4, 5),), 1, 3.0, Stage.RUN),
    Noted(2, ((0, 2999),), 2000.0, "held"),
    JobEnded(2, 10.0, 2001, 0, 999),
]


@pytest.mark.parametrize("limit", [7, 500, 100_000])
def test_all_that_a_removed_job_left_goes_in_slices(kept: Kept, limit: int) -> None:
    stays = [
        job(1),
        *concluded(range(5)),
        Noted(1, ((0, 9),), 2000.0, "held"),
        OutputKept(1000, "out", 0, b"x"),
    ]
    hand_over(kept.store, *stays)
    before = answers(kept.store, attempts=9)
    hand_over(kept.store, *LARGE)
    assert kept.store.lines(2, [(0, 1)]) == ["0", "1"]
    assert kept.store.remove_jobs([2], ended_before=NEW) == [2]
    kept.reopen()
    cleaned = clean(kept.store, limit=limit)
    assert (cleaned.records, cleaned.segments, cleaned.notes) == (2001 + 30 + 1, 40, 1)
    assert answers(kept.store, attempts=9) == before
    assert kept.store.outcomes(2, ranges=[(0, 2999)], limit=9) == []
    assert kept.store.history(2, 5) == []
    assert kept.store.notes(2, 5) == []
    assert kept.store.lines(2, [(0, 1)]) == []
    assert kept.store.output_segments(7, "err") == []
    assert kept.store.output_segments(1000, "out") == [b"x"]
    assert not clean(kept.store).records


def test_a_slice_removes_no_more_than_it_was_asked_to(tmp_path: Path) -> None:
    kept = KeptInSqlite(tmp_path / "store.db")
    hand_over(kept.store, *LARGE)
    kept.store.remove_jobs([2], ended_before=NEW)
    slices = [kept.store.clean(before=NEW, limit=100)]
    while slices[-1].more:
        slices.append(kept.store.clean(before=NEW, limit=100))
    kept.store.close()
    assert max(slice.records for slice in slices) <= 100
    assert max(slice.segments for slice in slices) <= 100 // cleaning.HEAVY
    assert len(slices) > 20


def test_lines_that_were_read_before_are_forgotten_with_their_job(kept: Kept) -> None:
    hand_over(kept.store, job(1, (0, 1), lines=("a", "b")), JobEnded(1, 10.0, 2, 0, 0))
    assert kept.store.lines(1, [(0, 1)]) == ["a", "b"]
    kept.store.remove_jobs([1], ended_before=NEW)
    clean(kept.store)
    assert kept.store.lines(1, [(0, 1)]) == []


def test_an_uploaded_value_goes_with_the_last_job_that_names_it(kept: Kept) -> None:
    calls = (Call(b"", ("ba", "t3.1")), Call(b"", ("bb",)))
    function = JobSpec(function=Function(value="bf", name="f"))
    hand_over(
        kept.store,
        *[
            ValueKept(key, number, b"x", number == 2)
            for key in ("ba", "bb", "bf", "bz")
            for number in range(3)
        ],
        job(1, (0, 1), calls=calls, spec=function),
        job(2, (0, 1), calls=calls[:1] * 2),
        *[JobEnded(number, 10.0, 2, 0, 0) for number in (1, 2)],
    )

    def there() -> list[str]:
        return [key for key in ("ba", "bb", "bf", "bz") if kept.store.value_piece_count(key)]

    kept.store.remove_jobs([1], ended_before=NEW)
    assert clean(kept.store, keep_values=("bf",), limit=1).values == 3
    assert there() == ["ba", "bf", "bz"]
    kept.store.remove_jobs([2], ended_before=NEW)
    kept.reopen()
    assert clean(kept.store, keep_values=("bf",)).values == 3
    assert there() == ["bf", "bz"]
    assert clean(kept.store, limit=1).values == 0, (
        "what was kept for somebody, and what nobody has named, goes by its age"
    )
    assert kept.store.unnamed_values() == ["bf", "bz"]


def test_a_value_that_was_kept_for_a_job_goes_with_that_job(kept: Kept) -> None:
    calls = (Call(b"", ("ba",)),)
    hand_over(
        kept.store,
        ValueKept("ba", 0, b"x", True),
        job(1, (0, 0), calls=calls),
        JobEnded(1, 10.0, 1, 0, 0),
    )
    kept.store.remove_jobs([1], ended_before=NEW)
    clean(kept.store, keep_values=("ba",))
    hand_over(kept.store, job(2, (0, 0), calls=calls))
    assert clean(kept.store).values == 0
    assert kept.store.value_piece_count("ba") == 1
    hand_over(kept.store, JobEnded(2, 10.0, 1, 0, 0))
    kept.store.remove_jobs([2], ended_before=NEW)
    assert clean(kept.store).values == 1
    assert kept.store.value_piece_count("ba") == 0


def test_a_value_that_somebody_was_just_told_is_there_stays_when_its_last_job_goes(kept: Kept) -> None:
    calls = (Call(b"", ("ba",)),)
    ended = job(1, (0, 0), calls=calls), JobEnded(1, 10.0, 1, 0, 0)
    hand_over(kept.store, ValueKept("ba", 0, b"x", True), *ended)
    kept.store.put_unnamed(["ba"], 100.5)
    kept.reopen()
    kept.store.remove_jobs([1], ended_before=NEW)

    assert clean(kept.store, unnamed_before=100.0).values == 0
    assert kept.store.value_piece_count("ba") == 1
    hand_over(kept.store, job(2, (0, 0), calls=calls))
    assert clean(kept.store, unnamed_before=201.0).values == 0, "it is named by now"
    hand_over(kept.store, JobEnded(2, 10.0, 1, 0, 0))
    kept.store.remove_jobs([2], ended_before=NEW)
    assert clean(kept.store, unnamed_before=201.0).values == 1
    assert kept.store.value_piece_count("ba") == 0


@pytest.mark.parametrize("limit", [1, 1000])
def test_a_value_that_no_job_refers_to_goes_by_its_age(kept: Kept, limit: int) -> None:
    calls = (Call(b"", ("bc",)),)
    hand_over(
        kept.store,
        *[ValueKept(key, number, b"x", number == 1) for key in ("ba", "bb", "bc", "bd") for number in (0, 1)],
        ValueKept("be", 0, b"x", False),  # never finished
        job(1, (0, 0), calls=calls),
    )

    def cleaned(unnamed_before: float, keep_values: tuple[str, ...] = ()) -> int:
        gone = Cleaned(more=True)
        while gone.more:
            gone += kept.store.clean(
                before=0.0, unnamed_before=unnamed_before, keep_values=keep_values, limit=limit
            )
        return gone.values

    unnamed = kept.store.unnamed_values()
    assert unnamed == ["ba", "bb", "bd", "be"]
    assert cleaned(1e9) == 0, "it is not known since when"
    kept.store.put_unnamed(unnamed, 100.5)
    kept.reopen()
    assert kept.store.unnamed_values() == []
    kept.store.put_unnamed(["bb"], 200.5)
    assert cleaned(100.0) == 0
    hand_over(kept.store, ValueKept("be", 0, b"x", False), job(2, (0, 0), calls=(Call(b"", ("bd",)),)))
    assert cleaned(200.0, keep_values=("ba", "bz")) == 0, (
        "one is wanted, one is named by now, one is uploaded again"
    )
    assert cleaned(200.0) == 2
    assert [key for key in ("ba", "bb", "bc", "bd") if kept.store.value_piece_count(key)] == [
        "bb",
        "bc",
        "bd",
    ]
    assert cleaned(201.5) == 2
    assert kept.store.unnamed_values() == ["be"]
    assert cleaned(1e9) == 0
    assert [key for key in ("bb", "bc", "bd") if kept.store.value_piece_count(key)] == ["bc", "bd"]


def test_half_of_a_value_is_never_there(kept: Kept) -> None:
    hand_over(
        kept.store,
        *[ValueKept("ba", number, b"%d" % number, number == 4) for number in range(5)],
        job(1, (0, 0), calls=(Call(b"", ("ba",)),)),
        JobEnded(1, 10.0, 1, 0, 0),
    )
    kept.store.remove_jobs([1], ended_before=NEW)
    while kept.store.clean(before=NEW, limit=1).more:
        there = kept.store.value_piece_count("ba")
        assert there == 0 or len(kept.store.value_pieces("ba", 0, 9)) == 5
    assert kept.store.value_pieces("ba", 0, 9) == []


# --- by age


def test_old_notes_go_and_conditions_that_were_closed_long_ago(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1),
        *[Noted(1, ((0, 9),), at, "held") for at in (5.0, 20.0, 10.0)],
        ConditionSet(condition(1, closed_at=5.0)),
        ConditionSet(condition(2)),
        ConditionSet(condition(3, closed_at=20.0)),
        ConditionSet(condition(4, closed_at=9.5)),
    )
    cleaned = clean(kept.store, 10.0, limit=1)
    assert (cleaned.notes, cleaned.conditions) == (1, 2)
    assert [note.at for note in kept.store.notes(1, 3)] == [10.0, 20.0]
    assert [row.id for row in kept.store.conditions(open_only=False, before=None, limit=9)] == [3, 2]
    assert kept.reopen().next_condition == 5


def test_what_would_go_is_counted_and_nothing_goes(kept: Kept) -> None:
    hand_over(
        kept.store,
        *ended(1),
        job(2),
        *[Noted(number, ((0, 9),), at, "held") for number in (1, 2) for at in (5.0, 20.0)],
        *[ConditionSet(condition(id, closed_at=at)) for id, at in ((1, 5.0), (2, None), (3, 20.0))],
        *[AttemptLost(outcome(3, attempt=50 + n, job=1, state=BLOCKED)) for n in range(8)],
        *[AttemptLost(outcome(3, attempt=10 + n, job=2, state=BLOCKED)) for n in range(8)],
        *[AttemptSpent(outcome(4, attempt=30 + n, job=2, state=FAILED)) for n in range(8)],
    )
    before = answers(kept.store, attempts=9)
    assert kept.store.old(before=10.0, keep=2, removed=[1]) == Old(conditions=1, notes=3, attempts=0)
    assert kept.store.old(before=NEW, keep=2, removed=[1]) == Old(conditions=2, notes=4, attempts=4)
    assert kept.store.old(before=NEW, keep=2, removed=[]) == Old(conditions=2, notes=4, attempts=8)
    assert kept.store.old(before=NEW, keep=4, removed=[]).attempts == 0
    assert answers(kept.store, attempts=9) == before


# --- long histories


def attempts(store: Store, task: int) -> list[int]:
    return [record.report.attempt for record in store.history(1, task)]


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_of_a_task_that_was_tried_very_often_the_first_and_the_last_attempts_stay(
    kept: Kept, limit: int
) -> None:
    hand_over(
        kept.store,
        job(1),
        *[
            AttemptLost(outcome(3, attempt=10 + n, state=BLOCKED, out=Output(9, 9, b"", 2)))
            for n in range(20)
        ],
        *[OutputKept(10 + n, "out", number, b"x") for n in range(20) for number in range(2)],
        *[AttemptLost(outcome(4, attempt=50 + n, state=BLOCKED)) for n in range(4)],
        *[AttemptSpent(outcome(5, attempt=60 + n, state=FAILED)) for n in range(6)],
    )
    after: tuple[int, int] | None = (0, -1)
    gone = pieces = 0
    while after is not None:
        compacted = kept.store.compact_history(ended_before=NEW, keep=2, after=after, limit=limit)
        gone, pieces, after = gone + compacted.attempts, pieces + compacted.segments, compacted.after
    assert (gone, pieces) == (16, 32)
    assert attempts(kept.store, 3) == [10, 11, 28, 29]
    assert attempts(kept.store, 4) == [50, 51, 52, 53]
    assert kept.store.output_segments(11, "out") == [b"x", b"x"]
    assert kept.store.output_segments(12, "out") == []
    (live,) = kept.reopen().jobs
    assert live.failures == {5: 6}


@pytest.mark.parametrize("limit", [1, 1000])
def test_how_many_attempts_are_left_out_is_noted_and_stays_as_long_as_the_job(kept: Kept, limit: int) -> None:
    def compact() -> None:
        after: tuple[int, int] | None = (0, -1)
        while after is not None:
            after = kept.store.compact_history(ended_before=NEW, keep=2, after=after, limit=limit).after

    def lost(first: int, task: int = 3) -> list[Change]:
        return [AttemptLost(outcome(task, attempt=first + n, state=BLOCKED)) for n in range(8)]

    hand_over(kept.store, job(1), *lost(10), *lost(50, task=4)[:4], Noted(1, ((0, 9),), 5.0, "held"))
    compact()
    (held, told) = kept.store.notes(1, 3)
    assert (held.what, told.what, told.note) == ("held", "left out", "4 of its attempts")
    hand_over(kept.store, *lost(100))
    compact()
    assert clean(kept.store).notes == 1
    (told,) = kept.store.notes(1, 3)
    assert told.note == "12 of its attempts", "in all"
    assert told.at == outcome(3, attempt=0).ended_at
    assert (count_left_out([told]), kept.store.notes(1, 4)) == (12, [])
    hand_over(kept.store, JobEnded(1, 10.0, 10, 0, 0))
    assert kept.store.old(before=NEW, keep=2, removed=[]).notes == 0
    assert kept.store.old(before=NEW, keep=2, removed=[1]).notes == 1
    kept.store.remove_jobs([1], ended_before=NEW)
    assert clean(kept.store).notes == 1


def test_what_others_say_is_left_out_counts_for_nothing() -> None:
    told = [
        Noted(1, ((0, 0),), 1.0, "left out", text) for text in ("", "many", "9" * 5000, "-3 of its attempts")
    ]
    assert count_left_out(told) == 0


def test_an_attempt_that_counts_after_all_keeps_its_output_though_it_is_in_the_midst_of_a_history(
    kept: Kept,
) -> None:
    hand_over(
        kept.store,
        job(1),
        *[AttemptLost(outcome(3, attempt=10 + n, state=BLOCKED)) for n in range(5)],
        OutputKept(12, "out", 0, b"x"),
        Concluded(outcome(3, attempt=12, out=Output(9, 9, b"", 1))),
    )
    kept.store.compact_history(ended_before=NEW, keep=1)
    assert attempts(kept.store, 3) == [10, 14]
    (record,) = kept.store.outcomes(1, ranges=[(3, 3)], limit=1)
    assert record.report.out == Output(9, 9, b"", 1)
    assert kept.store.output_segments(12, "out") == [b"x"]


def test_attempts_that_ended_lately_stay(kept: Kept) -> None:
    hand_over(
        kept.store,
        job(1),
        *concluded([3]),
        Reopened(1, ((3, 3),)),
        *[AttemptLost(outcome(3, attempt=5000 + n, state=BLOCKED)) for n in range(5)],
    )
    kept.store.compact_history(ended_before=203.0, keep=1)
    assert len(attempts(kept.store, 3)) == 6
    kept.store.compact_history(ended_before=204.0, keep=1)
    assert len(attempts(kept.store, 3)) == 2


# --- the file


@pytest.fixture
def sqlite_store(tmp_path: Path) -> KeptInSqlite:
    return KeptInSqlite(tmp_path / "store.db")


def test_nothing_of_a_removed_job_is_left_in_any_table(sqlite_store: KeptInSqlite) -> None:
    kept = sqlite_store
    after = (After(job=1),)
    hand_over(
        kept.store,
        *ended(1),
        *LARGE,
        JobAdded(job(3, spec=JobSpec(argv=("x",), after=after)).job, edges=((0, 2, 0, 0),)),
        *[ValueKept("ba", number, b"x", number == 2) for number in range(3)],
        job(4, (0, 0), calls=(Call(b"", ("ba",)),)),
        *[JobEnded(number, 10.0, 2, 0, 0) for number in (3, 4)],
        FileRegistered(file("lfn:undone", job=2), ("sftp://store/undone",)),
        MadeUndone(2, ((0, 0),)),
        FileRegistered(file("sftp://store/made", job=2), ("sftp://store/made",)),
        FileRegistered(file("up:7f/x"), ("tercel:x",)),
        JobRevised(2, JobSpec(argv=("x",), inputs=(Input(source="up:7f/x"),)), ()),
    )
    assert kept.store.remove_jobs([4, 3, 2, 1], ended_before=NEW) == [4, 3, 2, 1]
    clean(kept.store, limit=50)
    kept.store.close()
    connection = sqlite3.connect(kept.path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    left = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    connection.close()
    assert {name for name, count in left.items() if count} == {"next_number", "worker"}


def test_room_that_old_jobs_took_is_given_back(
    sqlite_store: KeptInSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "SPARE_PAGES", 16)
    kept = sqlite_store
    hand_over(kept.store, job(2), *concluded(range(10), job=2))
    for number in range(30):
        hand_over(kept.store, OutputKept(1003, "out", number, bytes(100_000)))
    hand_over(kept.store, *ended(1))
    kept.reopen()
    full = kept.path.stat().st_size
    kept.store.remove_jobs([1], ended_before=NEW)
    cleaned = clean(kept.store)
    kept.store.close()
    assert cleaned.freed_bytes > 2_500_000
    assert full - kept.path.stat().st_size >= cleaned.freed_bytes
    kept.reopen()
    assert kept.store.ended(2, FINISHED) == [(0, 9)]
    kept.store.close()


def test_a_file_that_cannot_be_shortened_is_cleaned_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.executescript((Path(__file__).parent / "store_v3.sql").read_text())
    connection.execute("INSERT INTO value_piece (key, number, data, last) VALUES ('b1', 0, x'00', 1)")
    connection.commit()
    connection.close()
    store = SqliteStore(path)
    hand_over(store, job(9, (0, 0), calls=(Call(b"", ("b1",)),)), JobEnded(9, 1.0, 1, 0, 0))
    assert store.remove_jobs([2, 9], ended_before=NEW) == [2, 9]
    cleaned = clean(store)
    assert (cleaned.records, cleaned.freed_bytes) == (3, 0)
    assert store.value_piece_count("b1") == 1, "who named it before is not known"
    assert [row.id for row in store.jobs(owner=None, before=None, limit=9)] == [1]
    store.close()
