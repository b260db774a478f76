"""The SQLite store's file: its mode, its settings, its version, its owner, and how it is read."""

import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from heapq import merge
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tercel.core.changes import (
    AttemptSpent,
    Change,
    Concluded,
    JobEnded,
    Leased,
    Noted,
    OutputKept,
    Reopened,
    TasksBlocked,
    TokenAdded,
)
from tercel.core.errors import PassingFault, TercelError, UsageError
from tercel.core.model import JobSpec
from tercel.core.reports import Output
from tercel.core.states import Stage
from tercel.stores.sqlite import (
    SqliteStore,
    chunks,
    cleaning_queries,
    conditions,
    file_queries,
    notes,
    outcomes,
    queries,
    schema,
)
from tercel.stores.sqlite.connections import BUSY_TIMEOUT_S
from tests.conformance.stores import (
    FAILED,
    FINISHED,
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

RELEASED = sorted(Path(__file__).parent.glob("store_v*.sql"))
"""A file of each schema version that was ever released, holding HISTORY."""

HISTORY: list[Change] = [
    job(1, (0, 9), key="k"),
    job(2, (0, 2), lines=("a", "b", "c")),
    Leased(lease(7, worker="n2")),
    Concluded(outcome(0, attempt=10, out=Output(2, 2, b"hi"), note="done")),
    Concluded(outcome(1, attempt=11, state=FAILED, err=Output(9, 9, b"", segments=1))),
    AttemptSpent(outcome(2, attempt=12, state=FAILED)),
    cancelled(3, 5),
    Reopened(1, ((1, 1), (4, 4))),
    OutputKept(3, "err", 0, b"piece"),
    *concluded(range(3), job=2),
    JobEnded(2, 9.5, 3, 0, 0),
    TokenAdded(token("t")),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def kept(path: Path) -> Iterator[KeptInSqlite]:
    kept = KeptInSqlite(path)
    yield kept
    kept.store.close()


def ask(path: Path, query: str) -> object:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchone()[0]
    finally:
        connection.close()


def tables(path: Path) -> dict[str, object]:
    """What the file is made of, without regard to how the statements were laid out."""
    connection = sqlite3.connect(path)
    try:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            **{name: connection.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in names},
            "statements": {
                name: re.sub(r"\s+", "", re.sub(r"--[^\n]*", "", sql))
                for name, sql in connection.execute(
                    "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
                )
            },
            "version": connection.execute("PRAGMA user_version").fetchone(),
            "application": connection.execute("PRAGMA application_id").fetchone(),
        }
    finally:
        connection.close()


# --- the file


def test_nobody_else_can_read_the_file_or_those_beside_it(kept: KeptInSqlite, path: Path) -> None:
    hand_over(kept.store, job(1))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes) == {"store.db", "store.db-wal", "store.db-shm", "store.db-lock"}
    assert set(modes.values()) == {0o600}


def test_a_closed_store_is_one_file_whole_in_itself(kept: KeptInSqlite, path: Path, tmp_path: Path) -> None:
    hand_over(kept.store, job(1))
    kept.store.close()
    assert not path.with_name("store.db-wal").exists()
    copied = tmp_path / "copy.db"
    copied.write_bytes(path.read_bytes())
    copy = SqliteStore(copied)
    assert copy.job(1) is not None
    copy.close()


def test_commits_are_synced_to_the_disk(path: Path) -> None:
    writers: list[sqlite3.Connection] = []

    class Spied(sqlite3.Connection):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            writers.append(self)

    store = SqliteStore(path, factory=Spied)
    settings = [
        writers[0].execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    ]
    store.close()
    assert settings == ["wal", 2]


def test_closing_twice_does_no_harm(kept: KeptInSqlite) -> None:
    kept.store.close()
    kept.store.close()


def test_a_second_process_cannot_open_a_store_in_use(kept: KeptInSqlite, path: Path) -> None:
    assert "in use by another manager" in opened_elsewhere(path)
    kept.store.close()
    assert opened_elsewhere(path) == ""


def opened_elsewhere(path: Path) -> str:
    """What another process that opens the store complains of."""
    script = "import sys; from tercel.stores.sqlite import SqliteStore; SqliteStore(sys.argv[1]).close()"
    return subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True).stderr


def test_what_is_no_store_is_refused_and_not_touched(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="not an SQLite file"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_not_touched(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmark (url TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_directory_that_is_not_there_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        SqliteStore(tmp_path / "missing" / "store.db")


def test_a_damaged_file_is_told_and_no_retry_is_suggested(kept: KeptInSqlite, path: Path) -> None:
    hand_over(kept.store, job(1, (0, 9999)), *concluded(range(10_000)))
    kept.store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 80 :] = b"\xaa" * (len(content) - 4096 * 80)  # what lies before names the tables
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(TercelError, match=r"damaged.*backup") as told:
        store.load()
    store.close()
    assert not isinstance(told.value, PassingFault)


def test_a_stranger_who_locks_the_file_is_a_passing_fault(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tercel.stores.sqlite.connections.BUSY_TIMEOUT_S", BUSY_TIMEOUT_S / 1000)
    store = SqliteStore(path)
    stranger = sqlite3.connect(path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(PassingFault, match="locked"):
        store.write([job(1)])
    stranger.execute("ROLLBACK")
    stranger.close()
    hand_over(store, job(1))
    assert store.job(1) is not None
    store.close()


def test_a_value_that_cannot_be_kept_spoils_only_its_own_batch(kept: KeptInSqlite) -> None:
    good = outcome(1)
    too_large = msgspec.structs.replace(
        good, report=msgspec.structs.replace(good.report, max_rss_bytes=2**64)
    )
    with pytest.raises(OverflowError):
        kept.store.write([job(1), Concluded(good), Concluded(too_large)])
    kept.store.commit()
    assert kept.store.job(1) is None
    hand_over(kept.store, job(1), Concluded(good))
    assert kept.store.outcomes(1, ranges=[(0, 9)], limit=9) == [good]


def test_a_workers_number_is_not_used_if_its_batch_was_undone(kept: KeptInSqlite) -> None:
    with pytest.raises(OverflowError):
        kept.store.write([Concluded(outcome(1, worker="lost")), Leased(lease(2**64, worker="lost too"))])
    hand_over(kept.store, Concluded(outcome(1, worker="other")), Concluded(outcome(2, worker="lost")))
    told = kept.store.outcomes(1, ranges=[(0, 9)], limit=9)
    assert [record.worker for record in told] == ["other", "lost"]


def test_a_question_of_many_parts_sees_one_state_whatever_is_committed_meanwhile(kept: KeptInSqlite) -> None:
    hand_over(kept.store, job(1))
    with kept.store._readers.snapshot() as connection:
        assert outcomes.ended(connection, 1, FINISHED) == []
        hand_over(kept.store, *concluded([1]))
        assert outcomes.ended(connection, 1, FINISHED) == []
    assert kept.store.ended(1, FINISHED) == [(1, 1)]


# --- versions


def test_a_file_of_a_newer_version_is_refused_and_not_touched(kept: KeptInSqlite, path: Path) -> None:
    kept.store.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="newer Tercel"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_there_is_a_file_of_every_released_version() -> None:
    assert [file.stem for file in RELEASED] == [f"store_v{n + 1}" for n in range(schema.VERSION)]


@pytest.mark.parametrize("released", RELEASED, ids=lambda file: file.stem)
def test_a_file_of_any_released_version_becomes_like_a_fresh_one(
    released: Path, path: Path, tmp_path: Path
) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(released.read_text())
    connection.close()
    old, fresh = SqliteStore(path), SqliteStore(tmp_path / "fresh.db")
    hand_over(fresh, *HISTORY)
    told, expected_told = answers(old, attempts=3), answers(fresh, attempts=3)
    # Until now nothing was told of a task's end without an attempt once it was reopened: 1.4 here.
    for name in ("1 notes", "1 all notes"):
        assert told.pop(name) != expected_told.pop(name)
    assert told == expected_told
    loaded, expected = old.load(), fresh.load()
    assert msgspec.structs.replace(loaded, epoch=0) == msgspec.structs.replace(expected, epoch=0)
    old.close()
    fresh.close()
    assert tables(path) == tables(tmp_path / "fresh.db")


def test_tasks_that_were_blocked_before_stages_were_kept_count_as_if_they_had_run(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((Path(__file__).parent / "store_v5.sql").read_text())
    connection.executemany(
        "INSERT INTO blocked (job, first, last, condition, at) VALUES (1, ?, ?, ?, 7.5)",
        [(3, 4, 1), (6, 7, 2)],
    )
    connection.commit()
    connection.close()
    for _ in range(2):
        store = SqliteStore(path)
        (live,) = store.load().jobs
        assert live.blocked == [(1, Stage.RUN, [(3, 4)]), (2, Stage.RUN, [(6, 7)])]
        store.close()


def test_migrations_are_applied_in_turn_and_only_once(
    kept: KeptInSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(kept.store, job(1))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 2)
    now = schema.VERSION
    monkeypatch.setattr(
        schema,
        "MIGRATIONS",
        {
            now - 2: ("ALTER TABLE job ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'",),
            now - 1: ("UPDATE job SET colour = 'blue'", "CREATE INDEX job_by_colour ON job (colour)"),
        },
    )
    kept.reopen()
    kept.reopen()
    assert kept.store.job(1) is not None
    kept.store.close()
    assert ask(path, "SELECT colour FROM job") == "blue"
    assert ask(path, "PRAGMA user_version") == now


def test_a_migration_that_fails_changes_nothing(
    kept: KeptInSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(kept.store, job(1))
    kept.store.close()
    before = tables(path)
    with monkeypatch.context() as later:
        later.setattr(schema, "VERSION", schema.VERSION + 1)
        later.setattr(
            schema, "MIGRATIONS", {schema.VERSION - 1: ("DROP TABLE token", "DROP TABLE no_such_table")}
        )
        with pytest.raises(PassingFault):
            SqliteStore(path)
    assert tables(path) == before
    kept.reopen()
    assert kept.store.job(1) is not None


def test_a_spec_kept_before_a_field_was_added_has_its_default(kept: KeptInSqlite, path: Path) -> None:
    hand_over(kept.store, job(1))
    kept.store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE job SET spec = ?", (msgspec.msgpack.encode({"line": "true"}),))
    connection.commit()
    connection.close()
    kept.reopen()
    row = kept.store.job(1)
    assert row is not None
    assert row.spec == JobSpec(line="true")


# --- cost


SMALL = {
    "EPOCH",
    "LEASES",
    "QUEUES",
    "WORKERS",
    "RESERVATIONS",
    "SWITCHES",
    "TOKENS",
    "TABLE_COUNT",
    "LEASED",
    "LEAVING",
}
"""These read whole tables, which are no larger than what is unfinished."""

STATEMENTS = [
    pytest.param(statement, id=f"{name} {number}")
    for module in (queries, cleaning_queries, file_queries)
    for name, value in vars(module).items()
    if name.isupper() and name not in SMALL and not isinstance(value, int)
    for number, statement in enumerate([value] if isinstance(value, str) else value)
    if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)", statement)
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_statement_reads_or_sorts_a_whole_table(kept: KeptInSqlite, path: Path, statement: str) -> None:
    named = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    names = {name for (name,) in found} | {"o", "h", "s"}
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", named or [1] * statement.count("?"))
    steps = [step for *_, step in plan]
    connection.close()
    for step in steps:
        scanned = re.match(r"SCAN (?:TABLE )?(\w+)", step)
        assert scanned is None or scanned[1] not in names or "job_unfinished" in step
        assert "TEMP B-TREE" not in step


def test_memory_for_lines_is_bounded(kept: KeptInSqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CACHED_CHUNKS", 3)
    hand_over(kept.store, job(1, (0, 9_999), lines=tuple(map(str, range(10_000)))))
    for task in range(10_000):
        assert kept.store.lines(1, [(task, task)]) == [str(task)]
    assert len(kept.store._lines._cached) == 3


def test_lines_are_read_once_for_many_tasks_in_order(
    kept: KeptInSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(kept.store, job(1, (0, 2999), lines=tuple(map(str, range(3000)))))
    reads: list[int] = []
    read = chunks.Chunks._read

    def counted(lines: chunks.Chunks[str], number: int, task: int) -> chunks.Chunk[str] | None:
        reads.append(task)
        return read(lines, number, task)

    monkeypatch.setattr(chunks.Chunks, "_read", counted)
    for task in range(0, 3000, 10):
        kept.store.lines(1, [(task, task + 9)])
    assert len(reads) == 3


def test_neighbours_that_are_blocked_in_one_batch_are_one_row(kept: KeptInSqlite, path: Path) -> None:
    each = [TasksBlocked(1, ((task, task),), 1, float(task), Stage.RUN) for task in range(1000)]
    notes = [Noted(1, ((task, task),), 5.0, "blocked") for task in range(1000)]
    hand_over(kept.store, job(1, (0, 10**7 - 1)), *reversed(each), *notes)
    assert (ask(path, "SELECT count(*) FROM blocked"), ask(path, "SELECT count(*) FROM note")) == (1, 1)
    hand_over(kept.store, TasksBlocked(1, ((0, 10**7 - 1),), 2, 9.0, Stage.RUN))
    assert ask(path, "SELECT count(*) FROM blocked") == 1


def test_neighbours_that_met_it_in_different_stages_are_two_rows(kept: KeptInSqlite, path: Path) -> None:
    met = [Stage.LAUNCH] * 500 + [Stage.RUN] * 500
    each = [TasksBlocked(1, ((task, task),), 1, 1.0, one) for task, one in enumerate(met)]
    hand_over(kept.store, job(1, (0, 999)), *each)
    assert ask(path, "SELECT count(*) FROM blocked") == 2


def test_very_many_blocked_tasks_far_apart_are_read_some_at_a_time(
    kept: KeptInSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "RANGES_AT_ONCE", 3)
    ranges = [(task, task) for task in range(0, 20, 2)]
    hand_over(
        kept.store, job(1, (0, 99)), *[TasksBlocked(1, (range,), 1, 1.0, Stage.RUN) for range in ranges]
    )
    assert kept.reopen().jobs[0].blocked == [(1, Stage.RUN, ranges)]


def test_a_million_outcomes_take_little_room(kept: KeptInSqlite, path: Path) -> None:
    """Shown on 20,000: under 80 bytes each."""
    hand_over(kept.store, job(1, (0, 19_999)), *concluded(range(20_000)))
    kept.store.close()
    assert path.stat().st_size < 80 * 20_000 + 40 * 4096
    assert kept.reopen().jobs[0].finished == [(0, 19_999)]
    assert kept.store.ended(1, FINISHED) == [(0, 19_999)]


def test_a_page_of_a_jobs_notes_reads_no_more_than_it_tells(
    kept: KeptInSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(kept.store, job(1), *(Noted(1, ((0, 0),), float(n), "blocked", f"C{n}") for n in range(500)))
    read: list[object] = []

    def counted(first: Iterable[object], *others: Iterable[object], key: Any) -> Iterator[object]:
        return merge((row for row in first if not read.append(row)), *others, key=key)

    monkeypatch.setattr(notes, "merge", counted)
    told = kept.store.job_notes(1, since=400.0, limit=10)
    assert [note.at for note in told] == [400.0 + n for n in range(10)]
    assert len(read) <= 12
