"""The tables, and how a file of an older version becomes one of this.

A fresh file gets SCHEMA at once; an older one every script in MIGRATIONS from its version on. Both must end
alike: tests/conformance/test_stores.py compares them, starting from each version that was ever released.

    job ---< line_chunk, call_chunk
     |----< outcome >---- output (by attempt), output_segment (by attempt)
     |----< history >---- the same
     |----< span
     |----< lease >------ worker ---- also named by outcome and history
     |----< job_edge, job_need, note
     |----< blocked >---- condition
     |----< value_use >-- value_piece
     |----< file_use           which names it reads
     |----< left_over
     |---o< file ---< replica  files outlive the job that made them
    epoch, token, queue, worker_row, reservation, switch, next_number, restored   stand alone
"""

import sqlite3
from pathlib import Path

from tercel.core.errors import UsageError
from tercel.stores.sqlite import queries
from tercel.stores.sqlite.migrations import MIGRATIONS

APPLICATION_ID = 0x54455243
"""`TERC`, in the file's header: tells our files from other programs'."""

VERSION = 7

SCHEMA: tuple[str, ...] = (
    """
    CREATE TABLE epoch (
        id INTEGER PRIMARY KEY CHECK (id = 0),
        value INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE job (
        id INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        key TEXT NOT NULL,
        submitted_at REAL NOT NULL,
        max_running INTEGER NOT NULL,
        has_lines INTEGER NOT NULL,
        ended_at REAL,
        finished INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        cancelled INTEGER NOT NULL,
        spec BLOB NOT NULL,    -- msgpack of JobSpec
        ranges BLOB NOT NULL,  -- msgpack of [[first, last], ...]
        flow INTEGER NOT NULL DEFAULT 0,
        held BLOB,             -- as ranges; none if nothing is
        postponed BLOB         -- msgpack of [Postponed, ...]; none if nothing is
    )
    """,
    "CREATE INDEX job_unfinished ON job (id) WHERE ended_at IS NULL",
    "CREATE INDEX job_ended ON job (ended_at) WHERE ended_at IS NOT NULL",
    "CREATE INDEX job_by_owner ON job (owner, id)",
    # Not unique: a key used twice by mistake of a manager must not make its whole batch impossible to store.
    "CREATE INDEX job_by_key ON job (owner, key, id) WHERE key <> ''",
    # Not WITHOUT ROWID, as no table whose rows are large: SQLite keeps those badly inside an index.
    """
    CREATE TABLE line_chunk (
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,  -- the task of the first line; the others follow without a gap
        lines BLOB NOT NULL,     -- msgpack of [line, ...]
        PRIMARY KEY (job, first)
    )
    """,
    """
    CREATE TABLE call_chunk (
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,
        calls BLOB NOT NULL,     -- msgpack of [Call, ...]
        PRIMARY KEY (job, first)
    )
    """,
    # What single tasks need: one row per job that has such, read whole when the job is loaded.
    """
    CREATE TABLE job_edge (
        job INTEGER PRIMARY KEY,
        edges BLOB NOT NULL  -- msgpack of [[task, job, first, last], ...]
    )
    """,
    # Which jobs wait for which: read when something is retried.
    """
    CREATE TABLE job_need (
        needed INTEGER NOT NULL,
        job INTEGER NOT NULL,
        PRIMARY KEY (needed, job)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX job_need_by_job ON job_need (job)",
    # Jobs that were removed and have rows in other tables still.
    "CREATE TABLE leaving (job INTEGER PRIMARY KEY)",
    # Jobs whose rows in other tables are being put there, and that nobody sees until all are.
    "CREATE TABLE restoring (job INTEGER PRIMARY KEY)",
    # Which snapshots were restored, and as what.
    "CREATE TABLE restored (id TEXT PRIMARY KEY, row BLOB NOT NULL)",
    # What the next of a kind is at least called, though the last of them was removed.
    "CREATE TABLE next_number (kind TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    """
    CREATE TABLE queue (
        name TEXT PRIMARY KEY,
        row BLOB NOT NULL  -- msgpack of QueueRow
    )
    """,
    # What people and faults have made of workers: of most nothing.
    "CREATE TABLE worker_row (name TEXT PRIMARY KEY, row BLOB NOT NULL)",
    "CREATE TABLE reservation (id INTEGER PRIMARY KEY, row BLOB NOT NULL)",
    "CREATE TABLE switch (name TEXT PRIMARY KEY, row BLOB NOT NULL)",
    "CREATE TABLE worker (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    """
    CREATE TABLE lease (
        id INTEGER PRIMARY KEY,
        worker INTEGER NOT NULL,
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL
    )
    """,
    # No output in it: loading a job reads all these rows, so they stay small.
    """
    CREATE TABLE outcome (
        job INTEGER NOT NULL,
        task INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        state INTEGER NOT NULL,  -- outcomes.STATE_CODES
        worker INTEGER NOT NULL,
        end INTEGER NOT NULL,    -- outcomes.END_CODES
        code INTEGER NOT NULL,
        started_at REAL NOT NULL,
        ended_at REAL NOT NULL,
        wall_s REAL NOT NULL,
        cpu_s REAL NOT NULL,
        max_rss_bytes INTEGER NOT NULL,
        note TEXT,
        exceeded TEXT,
        PRIMARY KEY (job, task)
    ) WITHOUT ROWID
    """,
    # The few failed among a million finished are found without reading the million. 1 is `finished`.
    "CREATE INDEX outcome_unsuccessful ON outcome (job, task, state) WHERE state <> 1",
    """
    CREATE TABLE history (
        job INTEGER NOT NULL,
        task INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        state INTEGER NOT NULL,
        worker INTEGER NOT NULL,
        end INTEGER NOT NULL,
        code INTEGER NOT NULL,
        started_at REAL NOT NULL,
        ended_at REAL NOT NULL,
        wall_s REAL NOT NULL,
        cpu_s REAL NOT NULL,
        max_rss_bytes INTEGER NOT NULL,
        note TEXT,
        spent INTEGER NOT NULL,  -- whether it counts against the retries since the task was last reopened
        exceeded TEXT,
        blame INTEGER,           -- outcomes.BLAME_CODES; none: as its end says
        PRIMARY KEY (job, task, attempt)
    ) WITHOUT ROWID
    """,
    # Spans of one job never overlap.
    """
    CREATE TABLE span (
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        state INTEGER NOT NULL,
        at REAL NOT NULL,
        reason TEXT NOT NULL,
        end INTEGER NOT NULL DEFAULT 4,  -- outcomes.END_CODES
        PRIMARY KEY (job, first)
    ) WITHOUT ROWID
    """,
    # A row each, as msgpack of ConditionRow. Closed ones are kept for people.
    "CREATE TABLE condition (id INTEGER PRIMARY KEY, row BLOB NOT NULL, closed_at REAL)",
    "CREATE INDEX condition_open ON condition (id) WHERE closed_at IS NULL",
    "CREATE INDEX condition_closed ON condition (closed_at) WHERE closed_at IS NOT NULL",
    # Ranges of one job never overlap.
    """
    CREATE TABLE blocked (
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        condition INTEGER NOT NULL,
        at REAL NOT NULL,
        stage INTEGER NOT NULL DEFAULT 3,  -- codes.STAGE_CODES
        PRIMARY KEY (job, first)
    ) WITHOUT ROWID
    """,
    # Ranges of one job may overlap. By level, which is about how long they are, so that those which contain a task are
    # found among few.
    """
    CREATE TABLE note (
        id INTEGER PRIMARY KEY,
        job INTEGER NOT NULL,
        level INTEGER NOT NULL,  -- notes.LENGTHS
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        at REAL NOT NULL,
        what TEXT NOT NULL,
        note TEXT NOT NULL
    )
    """,
    "CREATE INDEX note_by_task ON note (job, level, first)",
    "CREATE INDEX note_by_job ON note (job, at)",
    "CREATE INDEX note_by_time ON note (at)",
    # By attempt, so that it stays in place when an outcome moves into history.
    """
    CREATE TABLE output (
        attempt INTEGER PRIMARY KEY,
        out BLOB,  -- msgpack of Output
        err BLOB,
        value BLOB
    )
    """,
    """
    CREATE TABLE output_segment (
        attempt INTEGER NOT NULL,
        stream TEXT NOT NULL,
        number INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (attempt, stream, number)
    )
    """,
    # Uploaded by clients; named by what it contains.
    """
    CREATE TABLE value_piece (
        key TEXT NOT NULL,
        number INTEGER NOT NULL,
        data BLOB NOT NULL,
        last INTEGER NOT NULL,   -- 1: the value is whole, and this is its end
        PRIMARY KEY (key, number)
    )
    """,
    # Which jobs refer to which. In the place of a job: 0 stands for all from before this was known, and a time in seconds,
    # negative, for none since then: see `cleaning`.
    "CREATE TABLE value_use (job INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (job, key)) WITHOUT ROWID",
    "CREATE INDEX value_use_by_key ON value_use (key, job)",
    # The catalogue. A file stays when the job that made it goes, if people gave it its name.
    """
    CREATE TABLE file (
        name TEXT PRIMARY KEY,
        size_bytes INTEGER NOT NULL,
        digest TEXT NOT NULL,
        owner TEXT NOT NULL,
        made_at REAL NOT NULL,
        job INTEGER NOT NULL,  -- 0: somebody added it
        task INTEGER NOT NULL,
        attempt INTEGER NOT NULL
    )
    """,
    "CREATE INDEX file_by_task ON file (job, task, name) WHERE job <> 0",
    """
    CREATE TABLE replica (
        name TEXT NOT NULL,
        url TEXT NOT NULL,
        verified_at REAL NOT NULL,
        bad TEXT NOT NULL,
        made INTEGER NOT NULL,
        PRIMARY KEY (name, url)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX replica_by_url ON replica (url)",
    # What is to be removed where it was delivered to, before its task is run again.
    """
    CREATE TABLE left_over (
        job INTEGER NOT NULL,
        task INTEGER NOT NULL,
        url TEXT NOT NULL,
        PRIMARY KEY (job, task, url)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX left_over_by_url ON left_over (url)",
    # Which jobs read which names: sources with holes, and what they begin with up to the first.
    """
    CREATE TABLE file_use (
        job INTEGER NOT NULL,
        source TEXT NOT NULL,
        begins TEXT NOT NULL,
        PRIMARY KEY (job, source)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX file_use_by_name ON file_use (begins, job)",
    """
    CREATE TABLE token (
        id TEXT PRIMARY KEY,
        role TEXT NOT NULL,
        user TEXT NOT NULL,
        digest TEXT NOT NULL,
        created_at REAL NOT NULL,
        note TEXT NOT NULL
    )
    """,
)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not ours to touch, before anything in it is changed."""
    version = _number(connection, queries.SCHEMA_VERSION)
    if _number(connection, queries.TABLE_COUNT) == 0:
        return
    if _number(connection, queries.APPLICATION_ID) != APPLICATION_ID:
        raise UsageError(f"{path} is an SQLite file of another program; choose another data directory")
    if version > VERSION:
        raise UsageError(
            f"{path} was written by a newer Tercel (its schema is version {version}, this one knows "
            f"up to {VERSION}); use that version or a later one"
        )


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, or bring older ones up to date: all of it, or none."""
    version = _number(connection, queries.SCHEMA_VERSION)
    if version == VERSION:
        return
    steps = [MIGRATIONS[older] for older in range(version, VERSION)] if version else [SCHEMA]
    connection.execute(queries.BEGIN)
    for statements in steps:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute(queries.COMMIT)


def _number(connection: sqlite3.Connection, query: str) -> int:
    (number,) = connection.execute(query).fetchone()
    return int(number)
