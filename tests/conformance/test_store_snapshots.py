"""Snapshots: from any store into any store, all that is told of jobs stays the same."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tercel.core.changes import JobAdded
from tercel.core.errors import UsageError
from tercel.core.model import After, JobSpec
from tercel.core.reports import Output
from tercel.stores.contract import Store
from tercel.stores.memory import MemoryStore
from tercel.stores.snapshot import files
from tercel.stores.snapshot.checking import check
from tercel.stores.snapshot.records import FORMAT, Restored
from tercel.stores.snapshot.saving import Choice
from tercel.stores.sqlite import SqliteStore
from tercel.stores.sqlite.snapshots import has_segments
from tests.conformance.snapshots import KEY, NOW, OPEN, campaign, filled, restored_into, saved, told
from tests.conformance.stores import Kept, KeptInSqlite, hand_over, job


@pytest.fixture(params=["memory", "sqlite"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Another store, empty."""
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "target.db")
    store.load()
    request.addfinalizer(store.close)
    return store


@pytest.mark.C(8)
@pytest.mark.must("c")
def test_all_that_is_told_of_jobs_is_the_same_after_a_snapshot(
    kept: Kept, target: Store, tmp_path: Path
) -> None:
    path = saved(filled(kept.store), tmp_path / "one.tercel")

    ids = restored_into(target, path)

    assert ids == {4: 4, 5: 5, 6: 6, 8: 8}
    assert told(target) == told(kept.store)
    assert target.condition(1) == msgspec.structs.replace(OPEN, id=1)
    assert target.value_pieces(KEY, 0, 9) == kept.store.value_pieces(KEY, 0, 9)
    assert target.load().next_job == 9


@pytest.mark.C(8)
def test_a_snapshot_of_what_was_restored_is_the_same_snapshot(
    kept: Kept, target: Store, tmp_path: Path
) -> None:
    first = saved(filled(kept.store), tmp_path / "one.tercel")
    restored_into(target, first)
    second = saved(target, tmp_path / "two.tercel")

    one, two = check(first), check(second)
    assert [found.row for found in one.jobs] == [found.row for found in two.jobs]
    assert one.attempts == two.attempts
    assert one.values == two.values == one.wanted == {KEY}


def test_jobs_get_new_numbers_where_theirs_are_taken_and_refer_to_one_another_by_those(
    kept: Kept, target: Store, tmp_path: Path
) -> None:
    path = saved(filled(kept.store), tmp_path / "one.tercel")
    hand_over(target, job(20))

    ids = restored_into(target, path, free=21)

    assert ids == {4: 21, 5: 22, 6: 23, 8: 24}
    last = target.live(24)
    assert last is not None
    assert [after.job for after in last.job.spec.after] == [21, 22]
    assert last.edges == [(0, 23, 0, 0)]
    (call,) = target.calls(24, [(0, 0)])
    assert call.values == ("t23.0",)
    assert call.named({"t23.0": 3}) == {"t23.0": 3, "t6.0": 3}, "its pickle names it as it did"
    assert target.dependents(21) == [24]
    assert [target.job(id).flow for id in (21, 22, 23)] == [0, 22, 22]  # type: ignore[union-attr]
    assert target.job(20) == job(20).job


def test_a_chosen_job_brings_along_what_it_needs_and_nothing_else(kept: Kept, tmp_path: Path) -> None:
    filled(kept.store)
    path = saved(kept.store, tmp_path / "some.tercel", Choice(jobs=frozenset({5})))
    assert [found.row.id for found in check(path).jobs] == [5]
    path = saved(kept.store, tmp_path / "some.tercel", Choice(jobs=frozenset({8})))
    assert [found.row.id for found in check(path).jobs] == [4, 5, 6, 8]


def test_a_snapshot_of_one_owner_has_no_other_owners_jobs(kept: Kept, tmp_path: Path) -> None:
    filled(kept.store)
    hand_over(kept.store, job(9, (0, 0), owner="bob", spec=JobSpec(argv=("x",))))
    path = saved(kept.store, tmp_path / "bob.tercel", Choice(owner="bob"))
    assert [(found.row.id, found.row.owner) for found in check(path).jobs] == [(9, "bob")]


def test_a_snapshot_holds_one_moment_whatever_happens_while_it_is_read(kept: Kept) -> None:
    filled(kept.store)
    with kept.store.reading() as reading:
        before = list(reading.parts(4))
        hand_over(kept.store, job(30), *campaign()[-2:])
        assert reading.job_ids(None) == [4, 5, 6, 8]
        assert list(reading.parts(4)) == before


def test_the_time_in_the_file_counts_neither_against_patience_nor_as_a_pause(
    kept: Kept, target: Store, tmp_path: Path
) -> None:
    path = saved(filled(kept.store), tmp_path / "one.tercel")
    restored_into(target, path, now=NOW + 10**6)
    row = target.condition(1)
    assert row is not None
    assert (row.opened_at, row.next_test_at, row.tests) == (
        OPEN.opened_at + 10**6,
        OPEN.next_test_at + 10**6,
        4,
    )


def test_what_is_staged_is_seen_by_nobody_and_gone_after_a_crash(
    kept: Kept, target: Store, tmp_path: Path
) -> None:
    path = saved(filled(target), tmp_path / "one.tercel")
    kept.store.load()
    before = told(kept.store)
    parts = [(part, 10**6) for part in files.parts(path) if hasattr(part, "job")]

    kept.store.stage([4, 5, 6, 8], parts)  # type: ignore[arg-type]

    assert told(kept.store) == before == {}
    loaded = kept.reopen()
    assert loaded.jobs == []
    assert loaded.next_job == 9, "its numbers are not used again"
    while kept.store.clean(before=0.0).more:
        pass
    hand_over(kept.store, JobAdded(job(4).job))
    live = kept.store.live(4)
    assert live is not None
    assert (live.finished, live.failures, live.blocked) == ([], {}, [])


def test_unstaging_takes_nothing_from_jobs_that_were_adopted(
    kept: Kept, target: Store, tmp_path: Path
) -> None:
    path = saved(filled(target), tmp_path / "one.tercel")
    kept.store.load()
    restored_into(kept.store, path)
    before = told(kept.store)
    kept.store.unstage([4, 5, 6, 8])
    while kept.store.clean(before=0.0).more:
        pass
    assert told(kept.store) == before


def test_a_store_knows_which_snapshots_were_restored(kept: Kept, target: Store, tmp_path: Path) -> None:
    path = saved(filled(target), tmp_path / "one.tercel")
    kept.store.load()
    assert kept.store.restored("one") is None
    restored_into(kept.store, path)
    known = Restored("one", NOW, "ada", ((4, 4), (5, 5), (6, 6), (8, 8)))
    assert kept.store.restored("one") == known
    if isinstance(kept, KeptInSqlite):
        kept.reopen()
        assert kept.store.restored("one") == known


def test_nothing_secret_is_in_a_snapshot(tmp_path: Path) -> None:
    store = filled(SqliteStore(tmp_path / "a.db"))
    store.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("INSERT INTO token VALUES ('tok', 'admin', 'ada', 'deadbeefcafe', 0.0, '')")
        connection.commit()
    store = SqliteStore(tmp_path / "a.db")
    store.load()
    path = saved(store, tmp_path / "one.tercel")
    store.close()
    assert "deadbeefcafe" not in repr(list(files.parts(path)))


def test_a_need_that_was_not_known_any_more_is_not_known_here_either(
    kept: Kept, target: Store, tmp_path: Path
) -> None:
    kept.store.load()
    hand_over(kept.store, job(7, (0, 0), spec=JobSpec(argv=("x",), after=(After(job=2),))))
    path = saved(kept.store, tmp_path / "one.tercel")
    assert len(check(path).jobs) == 1
    restored_into(target, path)
    row = target.job(7)
    assert row is not None
    assert [after.job for after in row.spec.after] == [0]


def test_outputs_in_pieces_are_told_from_others_without_decoding_all() -> None:
    for inline in (b"", b"x", b"\xcd\x01", bytes(300)):
        assert not has_segments(msgspec.msgpack.encode(Output(9, 9, inline)))
    for segments in (1, 127, 128, 255, 256, 512, 16_384, 65_280):
        assert has_segments(msgspec.msgpack.encode(Output(9, 9, b"", segments)))


@pytest.mark.must("e")
def test_a_snapshot_of_a_newer_tercel_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = saved(filled(MemoryStore()), tmp_path / "one.tercel")
    data = bytearray(path.read_bytes())
    data[len(files.MAGIC) + 3] = FORMAT + 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match="newer Tercel"):
        check(path)
