"""What every store must do, one set of sentences, run on each: opening, committing, jobs, lines."""

from threading import Thread

from msgspec.structs import replace

from tercel.core.changes import (
    Concluded,
    JobAdded,
    JobEnded,
    JobResumed,
    Leased,
    Reopened,
    TokenAdded,
)
from tercel.core.model import JobRow, JobSpec
from tercel.stores.sqlite import chunks as sqlite_chunks
from tests.conformance.stores import (
    FAILED,
    FINISHED,
    Kept,
    concluded,
    hand_over,
    job,
    lease,
    outcome,
    token,
)

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
    assert kept.store.lines(1, [(0, 0)]) == ["fit 0"]
    assert kept.store.lines(1, [(995, 1004)]) == [f"fit {n}" for n in range(995, 1005)]
    assert kept.store.lines(1, [(0, 2499)]) == list(lines)
    assert kept.store.lines(1, [(2499, 4000)]) == ["fit 2499"]
    assert kept.store.lines(1, [(2500, 4000)]) == []
    assert kept.store.lines(1, [(5, 4)]) == []
    assert kept.store.lines(2, [(0, 5)]) == []
    scattered = [(3, 4), (7, 7), (998, 1001), (2400, 2401), (1500, 1500), (0, 0)]
    assert kept.store.lines(1, scattered) == [
        lines[task] for first, last in scattered for task in range(first, last + 1)
    ]


def test_lines_belong_to_task_numbers_also_where_those_have_gaps(kept: Kept) -> None:
    hand_over(kept.store, job(1, (5, 6), (10, 10), (20, 22), lines=("a", "b", "c", "d", "e", "f")))
    assert kept.store.lines(1, [(0, 99)]) == ["a", "b", "c", "d", "e", "f"]
    assert kept.store.lines(1, [(6, 20)]) == ["b", "c", "d"]
    assert kept.store.lines(1, [(7, 9)]) == []
    assert kept.store.lines(1, [(21, 21)]) == ["e"]
    assert kept.store.lines(1, [(6, 6), (8, 9), (10, 20), (22, 22), (5, 5)]) == ["b", "c", "d", "f", "a"]


def test_a_job_with_lines_uses_no_more_than_it_was_given_by_another(kept: Kept) -> None:
    hand_over(
        kept.store, job(1, (0, 2), lines=("a", "b", "c")), job(2, (0, 2), lines=("x", "y", "z")), job(3)
    )
    assert kept.store.lines(1, [(0, 9)]) == ["a", "b", "c"]
    assert kept.store.lines(2, [(0, 9)]) == ["x", "y", "z"]
    assert kept.store.lines(3, [(0, 9)]) == []


def test_long_lines_come_back_whole(kept: Kept) -> None:
    lines = tuple(chr(ord("a") + n) * (sqlite_chunks.CHUNK_BYTES // 3 + n) for n in range(10))
    hand_over(kept.store, job(1, (0, 9), lines=lines))
    assert kept.store.lines(1, [(0, 9)]) == list(lines)
    assert [kept.store.lines(1, [(n, n)]) for n in range(10)] == [[line] for line in lines]
