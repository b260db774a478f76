"""What the SQLite store does when the disk is full, the process is killed, the power fails, or a statement fails.

Always the same: a batch is there whole or not at all, what was committed stays, and the batch may be handed over
again.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import ClassVar

import pytest

from tercel.core.changes import (
    AttemptLost,
    AttemptSpent,
    Change,
    Concluded,
    ConditionSet,
    JobEnded,
    JobResumed,
    LeaseClosed,
    Leased,
    Noted,
    OutputKept,
    Reopened,
    TasksBlocked,
    TasksUnblocked,
    TokenAdded,
    TokenRevoked,
)
from tercel.core.errors import PassingFault, StoreFull
from tercel.core.reports import Output
from tercel.core.states import Stage
from tercel.stores.memory import MemoryStore
from tercel.stores.sqlite import SqliteStore
from tests.conformance.stores import (
    BLOCKED,
    FAILED,
    FINISHED,
    answers,
    cancelled,
    concluded,
    condition,
    hand_over,
    job,
    lease,
    outcome,
    token,
)

ROOT = Path(__file__).parents[2]

BEFORE: list[Change] = [
    job(1, (0, 99)),
    job(2, (0, 1)),
    Concluded(outcome(1, attempt=1, state=FAILED)),
    cancelled(20, 29),
    Leased(lease(5)),
    ConditionSet(condition(1)),
    TasksBlocked(1, ((40, 45),), 1, 1.0, Stage.LAUNCH),
    Noted(1, ((40, 45),), 1.0, "blocked"),
    *concluded(range(2), job=2),
    JobEnded(2, 1.0, 2, 0, 0),
]
BATCH: list[Change] = [
    job(3, (0, 1), lines=("a", "b")),
    Leased(lease(6, worker="new")),
    LeaseClosed(5),
    *concluded(range(50, 90)),
    AttemptSpent(outcome(10, attempt=2, state=FAILED)),
    AttemptLost(outcome(11, attempt=4, state=BLOCKED)),
    ConditionSet(condition(1, closed_at=2.0)),
    ConditionSet(condition(2)),
    TasksUnblocked(1, ((41, 43),)),
    TasksBlocked(1, ((11, 11),), 2, 2.0, Stage.RUN),
    Noted(1, ((41, 43),), 2.0, "released"),
    JobResumed(2),
    Reopened(1, ((1, 1), (22, 25))),
    Concluded(outcome(1, attempt=3, out=Output(2, 2, b"hi"))),
    cancelled(22, 23, reason="again"),
    JobEnded(2, 2.0, 2, 0, 0),
    OutputKept(3, "out", 0, b"piece"),
    TokenAdded(token("a")),
    TokenAdded(token("b")),
    TokenRevoked("a"),
]


def expected(*batches: list[Change]) -> dict[str, object]:
    """What the reference says after these."""
    reference = MemoryStore()
    for batch in batches:
        hand_over(reference, *batch)
    return answers(reference, attempts=3)


# --- a full disk


def run_on_narrow_disk(directory: Path, how: str, before: list[str]) -> None:
    script = [sys.executable, "-m", "tests.faults.filling_store", str(directory), how]
    done = subprocess.run([*before, *script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.must("h")
def test_a_full_disk_refuses_and_loses_nothing_and_all_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """A real one: a file system of 8 MiB, mounted where only the child sees it."""
    alone = (
        ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    )
    mount = ["sh", "-c", 'mount -t tmpfs -o size=8m tercel "$0" && exec "$@"', str(tmp_path)]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*alone, *mount, "true"], capture_output=True).returncode
    ):
        pytest.skip("file systems cannot be mounted here")
    run_on_narrow_disk(tmp_path, "tmpfs", [*alone, *mount])


@pytest.mark.must("h")
def test_a_limit_on_the_size_of_files_is_a_full_disk_too(tmp_path: Path) -> None:
    """SQLite calls this an I/O error, as it does an exhausted quota."""
    run_on_narrow_disk(tmp_path, "limit", [])


# --- kill -9


class Dying:
    """A process that keeps batches, step by step, until it is killed."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.dying_store", str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def run_to(self, point: str) -> None:
        assert self.process.stdout is not None
        while (said := self.process.stdout.readline().strip()) != point:
            assert said, "it ended by itself"
            self.go_on()

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait() == -signal.SIGKILL
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.mark.must("a")
@pytest.mark.T(1)
@pytest.mark.C(1)
@pytest.mark.parametrize("batch", [0, 1, 7])
@pytest.mark.parametrize("point", ["written", "committed"])
def test_kill_9_leaves_exactly_what_was_committed(tmp_path: Path, point: str, batch: int) -> None:
    dying = Dying(tmp_path / "store.db")
    dying.run_to(f"{point} {batch}")
    dying.kill()
    store = SqliteStore(tmp_path / "store.db")
    loaded = store.load()
    whole = batch + (point == "committed")
    assert loaded.jobs[0].finished == ([(0, whole * 10 - 1)] if whole else [])
    records = store.outcomes(1, ranges=[(0, 99_999)], limit=100_000)
    store.close()
    assert [record.report.attempt for record in records] == [
        ((loaded.epoch - 1) << 32) + task for task in range(whole * 10)
    ]


@pytest.mark.must("a")
def test_kill_9_during_a_commit_leaves_the_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    """Killed as soon as it is told to commit, over and over: who wins is left to chance."""
    for number in range(12):
        path = tmp_path / f"{number}.db"
        dying = Dying(path)
        dying.run_to("written 0")
        dying.go_on()
        dying.kill()
        store = SqliteStore(path)
        finished, records = store.ended(1, FINISHED), store.outcomes(1, ranges=[(0, 99)], limit=100)
        store.close()
        assert (finished, len(records)) in (([], 0), ([(0, 9)], 10))


# --- the loss of power


@pytest.mark.must("a")
def test_wherever_the_log_was_torn_the_store_is_a_prefix_of_its_commits(tmp_path: Path) -> None:
    """What a disk may show after the loss of power: the file, and the log up to some byte."""
    store = SqliteStore(tmp_path / "store.db")
    hand_over(store, job(1, (0, 999)))
    whole = [0]
    log = tmp_path / "store.db-wal"
    sizes = [log.stat().st_size]
    for first in range(0, 80, 20):
        hand_over(store, *concluded(range(first, first + 20)), cancelled(500 + first, 509 + first))
        whole.append(first + 20)
        sizes.append(log.stat().st_size)
    torn = tmp_path / "torn"
    for size in [*range(sizes[0], sizes[-1], 1500), *sizes, *[size - 1 for size in sizes[1:]]]:
        torn.mkdir()
        shutil.copy(tmp_path / "store.db", torn)
        (torn / "store.db-wal").write_bytes(log.read_bytes()[:size])
        after = SqliteStore(torn / "store.db")
        commits = sum(1 for end in sizes if end <= size) - 1
        assert after.ended(1, FINISHED) == ([(0, whole[commits] - 1)] if commits else [])
        assert len(after.outcomes(1, ranges=[(0, 999)], limit=1000)) == commits * 30
        after.close()
        shutil.rmtree(torn)
    store.close()


# --- statements that fail


class FailingConnection(sqlite3.Connection):
    """Fails once, at the statement whose number is in `fail_at`; counts them from 1."""

    fail_at: ClassVar[int] = 0
    fail_rollback: ClassVar[bool] = False
    code: ClassVar[int] = sqlite3.SQLITE_IOERR
    count: ClassVar[int] = 0

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        self._step(sql)
        return super().execute(sql, *arguments)  # type: ignore[arg-type]

    def executemany(self, sql: str, rows: object) -> sqlite3.Cursor:
        self._step(sql)
        return super().executemany(sql, rows)  # type: ignore[arg-type]

    def _step(self, sql: str) -> None:
        if sql == "ROLLBACK":
            if FailingConnection.fail_rollback:
                raise sqlite3.OperationalError("as the test asked")
            return
        FailingConnection.count += 1
        if FailingConnection.count == FailingConnection.fail_at:
            error = sqlite3.OperationalError("as the test asked")
            error.sqlite_errorcode = FailingConnection.code
            raise error

    @classmethod
    def arm(cls, fail_at: int, code: int = sqlite3.SQLITE_IOERR) -> None:
        cls.count, cls.fail_at, cls.code = 0, fail_at, code


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[SqliteStore]:
    FailingConnection.arm(0)
    store = SqliteStore(tmp_path / "store.db", factory=FailingConnection)
    hand_over(store, *BEFORE)
    yield store
    store.close()


@pytest.mark.must("a", "h")
@pytest.mark.parametrize(
    ("code", "fault"), [(sqlite3.SQLITE_IOERR_FSYNC, PassingFault), (sqlite3.SQLITE_FULL, StoreFull)]
)
def test_whichever_statement_fails_the_batch_is_undone_and_may_be_handed_over_again(
    failing: SqliteStore, code: int, fault: type[Exception]
) -> None:
    before, number = expected(BEFORE), 0
    while True:
        number += 1
        FailingConnection.arm(number, code)
        try:
            hand_over(failing, *BATCH)
            break
        except fault as told:
            assert isinstance(told.__cause__, sqlite3.OperationalError)
        assert answers(failing, attempts=3) == before
        failing.commit()  # of nothing: no part of the batch comes with it
        assert answers(failing, attempts=3) == before
    assert number > 20
    assert answers(failing, attempts=3) == expected(BEFORE, BATCH)


def test_a_batch_that_fails_takes_those_before_it_since_the_last_commit_along(failing: SqliteStore) -> None:
    failing.write(BATCH)
    FailingConnection.arm(1)
    with pytest.raises(PassingFault):
        failing.write(concluded([95]))
    failing.commit()
    assert answers(failing, attempts=3) == expected(BEFORE)


def test_a_batch_that_could_not_even_be_undone_is_never_committed(
    failing: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    FailingConnection.arm(10)
    with monkeypatch.context() as worse:
        worse.setattr(FailingConnection, "fail_rollback", True)
        for _ in range(2):
            with pytest.raises(PassingFault):
                failing.write(BATCH)
            failing.commit()
            assert answers(failing, attempts=3) == expected(BEFORE)
    hand_over(failing, *concluded([95]))
    assert answers(failing, attempts=3) == expected(BEFORE, concluded([95]))


def test_wherever_a_statement_is_broken_off_the_batch_is_undone(tmp_path: Path) -> None:
    """Not before or after a statement but within it, at ever later steps of SQLite's machine."""
    opened: list[sqlite3.Connection] = []

    class Caught(sqlite3.Connection):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[arg-type]
            opened.append(self)

    store = SqliteStore(tmp_path / "store.db", factory=Caught)
    hand_over(store, *BEFORE)
    before, broken = expected(BEFORE), 0
    while True:
        steps = chain([False] * 11 * broken, [True], repeat(False))
        opened[0].set_progress_handler(steps.__next__, 5)
        try:
            store.write(BATCH)
            break
        except PassingFault as told:
            assert "interrupted" in str(told)
        opened[0].set_progress_handler(None, 0)
        broken += 1
        store.commit()
        assert answers(store, attempts=3) == before
    opened[0].set_progress_handler(None, 0)
    store.commit()
    assert broken > 20
    assert answers(store, attempts=3) == expected(BEFORE, BATCH)
    store.close()


def test_an_epoch_that_could_not_be_kept_is_not_used(failing: SqliteStore) -> None:
    first = failing.load().epoch
    for number in (1, 2, 3):
        FailingConnection.arm(number)
        with pytest.raises(PassingFault):
            failing.load()
    FailingConnection.arm(0)
    assert failing.load().epoch == first + 1


@pytest.mark.must("a")
def test_whichever_statement_of_cleaning_fails_it_goes_on_where_it_was(failing: SqliteStore) -> None:
    """Each slice and the removal itself with ever later statements failing: no slice half, none lost."""
    lost = [AttemptLost(outcome(11, attempt=20 + n, state=BLOCKED)) for n in range(5)]
    hand_over(failing, *lost)
    before = answers(failing, attempts=3)
    history = failing.history(1, 11)
    number = 0
    done: list[str] = []
    steps: list[tuple[str, Callable[[], bool]]] = [
        ("compact", lambda: failing.compact_history(ended_before=1e9, keep=1).after is not None),
        ("remove", lambda: failing.remove_jobs([2], ended_before=9.0) != [2]),
        ("clean", lambda: failing.clean(before=0.0, limit=2).more),
    ]
    for name, step in steps:
        while True:
            number += 1
            FailingConnection.arm(number)
            try:
                more = step()
            except PassingFault:
                if name == "compact":
                    assert answers(failing, attempts=3) == before
                assert (failing.job(2) is None) == ("remove" in done)
                continue
            number = 0
            if not more:
                break
        done.append(name)
    FailingConnection.arm(0)
    assert failing.history(1, 11) == [history[0], history[-1]]
    assert failing.outcomes(2, ranges=[(0, 1)], limit=9) == []
    assert failing.load().next_job == 3
    hand_over(failing, *concluded([95]))
    reference = MemoryStore()
    hand_over(reference, *BEFORE, *lost, *concluded([95]))
    reference.compact_history(ended_before=1e9, keep=1)
    reference.remove_jobs([2], ended_before=9.0)
    assert answers(failing, attempts=3) == answers(reference, attempts=3)


def test_cleaning_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    hand_over(store, *BEFORE)
    assert store.remove_jobs([2], ended_before=9.0) == [2]
    more, slices = True, 0
    while more:
        more = store.clean(before=0.0, limit=1).more
        store.close()
        store = SqliteStore(tmp_path / "store.db")
        slices += 1
    assert slices > 2
    assert store.outcomes(2, ranges=[(0, 1)], limit=9) == []
    assert store.ended(1, FAILED) == [(1, 1)]
    store.close()
