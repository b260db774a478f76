"""The catalogue, on each store: files, replicas, who made and who reads them, and what is left where it had been delivered to."""

import pytest

from tercel.core.changes import (
    Change,
    FileRegistered,
    FileRemoved,
    JobEnded,
    LeftRemoved,
    MadeUndone,
    Reopened,
    ReplicaRemoved,
    ReplicaSet,
)
from tercel.core.files import KEPT, Input, ReplicaRow
from tercel.core.model import JobSpec
from tercel.stores.contract import Cleaned, Store
from tercel.stores.sqlite import files as sqlite_files
from tests.conformance.stores import DIGESTS, FAILED, Kept, concluded, file, hand_over, job

STORE, OTHER = "sftp://store/calib", "https://other.lab/calib"


def urls(store: Store, name: str) -> list[str]:
    (found,) = store.files([name])
    return [replica.url for replica in found.replicas]


def names(store: Store) -> list[str]:
    return [row.name for row in store.files_from(limit=1000)]


def test_a_registered_file_is_there_with_its_replicas_after_a_restart(kept: Kept) -> None:
    row = file("lfn:calib/2026 µ", job=1, task=4, attempt=77)
    hand_over(kept.store, FileRegistered(row, (STORE, OTHER)))
    kept.reopen()
    (found,) = kept.store.files(["lfn:none", "lfn:calib/2026 µ", "lfn:calib/2026 µ"])
    assert found.file == row
    assert found.replicas == tuple(
        ReplicaRow(name=row.name, url=url, verified_at=row.made_at, made=True) for url in (OTHER, STORE)
    )


def test_registering_the_same_bytes_again_only_adds_replicas(kept: Kept) -> None:
    first = file(job=1, task=4)
    hand_over(kept.store, FileRegistered(first, (STORE,)))
    hand_over(kept.store, FileRegistered(file(job=2, made_at=999.0), (OTHER,)))
    (found,) = kept.store.files([first.name])
    assert (found.file, urls(kept.store, first.name)) == (first, [OTHER, STORE])


def test_registering_other_bytes_under_a_name_that_is_taken_changes_nothing(kept: Kept) -> None:
    first = file()
    second = FileRegistered(file(digest=DIGESTS[1]), (OTHER,))
    hand_over(kept.store, FileRegistered(first, (STORE,)), second)
    hand_over(kept.store, second)
    (found,) = kept.store.files([first.name])
    assert (found.file, urls(kept.store, first.name)) == (first, [STORE])


def test_what_is_known_of_a_replica_is_replaced_and_registering_it_again_makes_it_good(kept: Kept) -> None:
    bad = ReplicaRow(name=file().name, url=STORE, verified_at=5.0, bad="its digest is another")
    hand_over(kept.store, FileRegistered(file(), (STORE,)), ReplicaSet(bad))
    (found,) = kept.store.files([bad.name])
    assert found.replicas == (bad,)
    hand_over(kept.store, FileRegistered(file(), (STORE,)))
    (found,) = kept.store.files([bad.name])
    assert found.replicas[0].bad == ""


def test_a_replica_of_a_file_that_is_not_there_is_not_kept(kept: Kept) -> None:
    hand_over(kept.store, ReplicaSet(ReplicaRow(name="lfn:x", url=STORE)))
    hand_over(kept.store, FileRegistered(file("lfn:x"), ()))
    assert urls(kept.store, "lfn:x") == []


def test_a_file_without_replicas_is_still_known_until_it_is_removed(kept: Kept) -> None:
    name = file().name
    hand_over(kept.store, FileRegistered(file(), (STORE, OTHER)), ReplicaRemoved(name, STORE))
    hand_over(kept.store, ReplicaRemoved(name, OTHER))
    assert urls(kept.store, name) == []
    hand_over(kept.store, FileRegistered(file(), (STORE,)), FileRemoved(name))
    assert kept.store.files([name]) == []
    assert kept.store.names_at([STORE]) == {}


def test_files_are_listed_page_by_page_by_prefix_and_pattern(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_files, "PASSED_AT_ONCE", 700)
    rows = [file(f"lfn:run/{number:04d}.root") for number in range(2500)] + [
        file("lfn:run2"),
        file("lfn:a[b]"),
    ]
    hand_over(kept.store, *[FileRegistered(row, ()) for row in rows])
    store, told, after = kept.store, list[str](), ""
    while page := store.files_from(prefix="lfn:run/", after=after, limit=999):
        told += [row.name for row in page]
        after = page[-1].name
    assert told == [row.name for row in rows[:2500]]
    last = store.files_from(pattern="lfn:run/24*[13].root", after="lfn:run/2411.root", limit=3)
    assert [row.name for row in last] == ["lfn:run/2413.root", "lfn:run/2421.root", "lfn:run/2423.root"]
    assert [row.name for row in store.files_from(prefix="lfn:a[", limit=5)] == ["lfn:a[b]"]


def test_what_a_task_made_is_told_by_task_and_name(kept: Kept) -> None:
    made = [file(f"lfn:{name}", job=7, task=task) for task, name in ((2, "b"), (2, "a"), (9, "c"), (11, "d"))]
    hand_over(
        kept.store, *[FileRegistered(row, ()) for row in made], FileRegistered(file("lfn:z", task=2), ())
    )
    store = kept.store
    assert [row.name for row in store.made_by(7, [(2, 2)], limit=9)] == ["lfn:a", "lfn:b"]
    assert [row.name for row in store.made_by(7, [(0, 9)], after=(2, "lfn:a"), limit=1)] == ["lfn:b"]
    assert [row.name for row in store.made_by(7, [(0, 99)], after=(2, "lfn:b"), limit=9)] == [
        "lfn:c",
        "lfn:d",
    ]
    assert store.made_by(0, [(0, 99)], limit=9) == []


def test_jobs_that_read_a_file_are_told_also_those_whose_sources_have_holes(kept: Kept) -> None:
    def reading(number: int, *sources: str) -> Change:
        inputs = tuple(Input(source=source) for source in sources)
        return job(number, spec=JobSpec(argv=("true",), inputs=inputs))

    hand_over(
        kept.store,
        reading(1, "lfn:calib/2026"),
        reading(2, "lfn:calib/{task}"),
        reading(3, "lfn:calib/{task}/x", "lfn:calib/{{2026}}"),
        reading(4, "https://x/lfn:calib/2026"),
        reading(5, "lfn:{kind}/2026", "lfn:calib/2026"),
    )
    assert kept.store.readers("lfn:calib/2026", limit=9) == [5, 2, 1]
    assert kept.store.readers("lfn:calib/2026", limit=1) == [5]
    assert kept.store.readers("lfn:calib/{2026}", limit=9) == [3, 2]


# --- undoing


def test_what_undone_tasks_made_is_gone_and_noted_where_it_was_delivered_to(kept: Kept) -> None:
    hand_over(kept.store, job(1), *concluded([4, 5]))
    hand_over(
        kept.store,
        FileRegistered(file("lfn:a", job=1, task=4), (STORE, f"{KEPT}{DIGESTS[0]}")),
        FileRegistered(file("lfn:b", job=1, task=4), (OTHER,)),
        FileRegistered(file("lfn:c", job=1, task=5), ("sftp://store/c",)),
    )
    hand_over(kept.store, Reopened(1, ((4, 4),)), MadeUndone(1, ((4, 4),)))
    (live,) = kept.reopen().jobs
    assert names(kept.store) == ["lfn:c"]
    assert live.left == {4: [OTHER, STORE]}  # what the manager kept itself needs nobody to remove it
    hand_over(kept.store, LeftRemoved(1, 4))
    (live,) = kept.reopen().jobs
    assert live.left == {}


def test_what_others_put_elsewhere_is_not_removed_with_the_task_that_made_the_file(kept: Kept) -> None:
    mine, ours, theirs = "sftp://store/mine", "https://mirror/ours", "s3://bucket/theirs"
    hand_over(kept.store, FileRegistered(file("lfn:a", job=1, task=4), (mine,)))
    hand_over(kept.store, FileRegistered(file("lfn:a"), (mine, ours)))  # somebody knows a mirror
    hand_over(
        kept.store, FileRegistered(file("lfn:a", job=2, task=4), (theirs,))
    )  # another job made the same
    hand_over(kept.store, ReplicaSet(ReplicaRow(name="lfn:a", url=mine, bad="flipped")))
    (found,) = kept.store.files(["lfn:a"])
    assert [row.url for row in found.replicas if row.made] == [mine]
    hand_over(kept.store, MadeUndone(1, ((4, 4),)))
    assert kept.store.left_overs(1, [(0, 9)]) == {4: [mine]}


def test_what_tasks_left_that_have_ended_is_known_but_asked_of_nobody(kept: Kept) -> None:
    made = FileRegistered(file("lfn:a", job=1, task=4), (STORE,))
    hand_over(kept.store, job(1), made, MadeUndone(1, ((4, 4),)), *concluded([4], state=FAILED))
    (live,) = kept.reopen().jobs
    assert (live.left, kept.store.left_overs(1, [(0, 9)])) == ({}, {4: [STORE]})


def test_what_is_registered_again_is_not_removed_under_its_readers(kept: Kept) -> None:
    """By the task that ran again, or by another that delivered to the same place."""
    for task in (4, 5):
        hand_over(
            kept.store, FileRegistered(file("lfn:a", job=1, task=4), (STORE,)), MadeUndone(1, ((0, 9),))
        )
        again = FileRegistered(file("lfn:a", digest=DIGESTS[1], job=1, task=task), (STORE,))
        hand_over(kept.store, again)
        assert kept.store.left_overs(1, [(0, 9)]) == {}
        hand_over(kept.store, FileRemoved("lfn:a"))


def test_a_place_that_another_file_has_as_well_is_not_left_over(kept: Kept) -> None:
    hand_over(
        kept.store,
        FileRegistered(file("lfn:a", job=1, task=4), (STORE, OTHER)),
        FileRegistered(file("lfn:kept"), (STORE,)),
        MadeUndone(1, ((4, 4),)),
    )
    assert kept.store.left_overs(1, [(0, 9)]) == {4: [OTHER]}
    assert kept.store.left_overs(1, [(0, 3), (5, 9)]) == {}


# --- cleaning


def clean(store: Store, *, limit: int = 1000, unnamed_before: float = 0.0) -> int:
    gone = Cleaned(more=True)
    while gone.more:
        gone += store.clean(before=0.0, unnamed_before=unnamed_before, limit=limit)
    return gone.files


def reading(number: int, *sources: str) -> list[Change]:
    inputs = tuple(Input(source=source) for source in sources)
    added = job(number, (0, 0), spec=JobSpec(argv=("true",), inputs=inputs))
    return [added, *concluded([0], job=number), JobEnded(number, 10.0, 1, 0, 0)]


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_of_what_a_removed_job_made_only_what_people_named_stays(kept: Kept, limit: int) -> None:
    made = [file(name, job=1) for name in ("lfn:fit", STORE, OTHER, "/data/x")]
    hand_over(kept.store, *reading(1), *[FileRegistered(row, (STORE,)) for row in made])
    hand_over(kept.store, FileRegistered(file("lfn:gone", job=1, task=0), ("sftp://store/left",)))
    hand_over(kept.store, FileRegistered(file("https://mine", job=2), ()))
    hand_over(kept.store, MadeUndone(1, ((5, 5),)))
    assert kept.store.remove_jobs([1], ended_before=99.0) == [1]
    assert clean(kept.store, limit=limit) == 3
    assert names(kept.store) == ["https://mine", "lfn:fit", "lfn:gone"]
    assert [row.job for row in kept.store.files_from(prefix="lfn:", limit=9)] == [1, 1]
    assert kept.store.left_overs(1, [(0, 9)]) == {}


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_an_upload_goes_with_the_last_job_that_reads_any_of_it(kept: Kept, limit: int) -> None:
    uploaded = ["up:7f/a", "up:7f/b", "up:7f/c d", "up:7f0/a", "up:8a/a"]
    hand_over(kept.store, *[FileRegistered(file(name, made_at=500.0), (STORE,)) for name in uploaded])
    hand_over(kept.store, *reading(1, "up:7f/a", "up:8a/{task}"), *reading(2, "up:7f/{task}"))
    kept.store.remove_jobs([1], ended_before=99.0)
    clean(kept.store, limit=limit)
    assert names(kept.store) == ["up:7f/a", "up:7f/b", "up:7f/c d", "up:7f0/a"]
    assert kept.store.readers("up:7f/a", limit=9) == [2]
    kept.store.remove_jobs([2], ended_before=99.0)
    clean(kept.store, limit=limit)
    assert names(kept.store) == ["up:7f0/a"]
    assert kept.store.names_at([STORE]) == {STORE: ["up:7f0/a"]}


def test_an_upload_that_no_job_reads_goes_by_its_age(kept: Kept) -> None:
    ages = {"up:7f/a": 100.0, "up:8a/a": 300.0, "up:9b/a": 100.0, "lfn:old": 100.0}
    hand_over(kept.store, *[FileRegistered(file(name, made_at=at), ()) for name, at in ages.items()])
    hand_over(kept.store, *reading(1, "up:9b/{task}"))
    assert clean(kept.store, unnamed_before=200.0, limit=1) == 1
    assert names(kept.store) == ["lfn:old", "up:8a/a", "up:9b/a"]
