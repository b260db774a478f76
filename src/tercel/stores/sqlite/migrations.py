"""The way from each version of the tables to the next."""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "ALTER TABLE job ADD COLUMN flow INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE job ADD COLUMN held BLOB",
        "ALTER TABLE span ADD COLUMN end INTEGER NOT NULL DEFAULT 4",
        "CREATE TABLE job_edge (job INTEGER PRIMARY KEY, edges BLOB NOT NULL)",
        "CREATE TABLE job_need (needed INTEGER NOT NULL, job INTEGER NOT NULL, PRIMARY KEY (needed, job)) WITHOUT ROWID",
        "CREATE TABLE queue (name TEXT PRIMARY KEY, row BLOB NOT NULL)",
        """
        CREATE TABLE call_chunk (
            job INTEGER NOT NULL,
            first INTEGER NOT NULL,
            calls BLOB NOT NULL,
            PRIMARY KEY (job, first)
        )
        """,
        "ALTER TABLE output ADD COLUMN value BLOB",
        """
        CREATE TABLE value_piece (
            key TEXT NOT NULL,
            number INTEGER NOT NULL,
            data BLOB NOT NULL,
            last INTEGER NOT NULL,
            PRIMARY KEY (key, number)
        )
        """,
    ),
    2: (
        "ALTER TABLE outcome ADD COLUMN exceeded TEXT",
        "ALTER TABLE history ADD COLUMN exceeded TEXT",
        "ALTER TABLE history ADD COLUMN blame INTEGER",
        "CREATE TABLE worker_row (name TEXT PRIMARY KEY, row BLOB NOT NULL)",
        "CREATE TABLE reservation (id INTEGER PRIMARY KEY, row BLOB NOT NULL)",
    ),
    3: (
        "CREATE INDEX job_ended ON job (ended_at) WHERE ended_at IS NOT NULL",
        "CREATE INDEX job_need_by_job ON job_need (job)",
        "CREATE TABLE leaving (job INTEGER PRIMARY KEY)",
        "CREATE TABLE restoring (job INTEGER PRIMARY KEY)",
        "CREATE TABLE restored (id TEXT PRIMARY KEY, row BLOB NOT NULL)",
        "CREATE TABLE switch (name TEXT PRIMARY KEY, row BLOB NOT NULL)",
        "CREATE TABLE next_number (kind TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        "CREATE TABLE condition (id INTEGER PRIMARY KEY, row BLOB NOT NULL, closed_at REAL)",
        "CREATE INDEX condition_open ON condition (id) WHERE closed_at IS NULL",
        "CREATE INDEX condition_closed ON condition (closed_at) WHERE closed_at IS NOT NULL",
        """
        CREATE TABLE blocked (
            job INTEGER NOT NULL,
            first INTEGER NOT NULL,
            last INTEGER NOT NULL,
            condition INTEGER NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (job, first)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE note (
            id INTEGER PRIMARY KEY,
            job INTEGER NOT NULL,
            level INTEGER NOT NULL,
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
        "CREATE TABLE value_use (job INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (job, key)) WITHOUT ROWID",
        "CREATE INDEX value_use_by_key ON value_use (key, job)",
        # Who refers to these stands in rows that SQL cannot read: they stay.
        "INSERT INTO value_use (job, key) SELECT DISTINCT 0, key FROM value_piece",
    ),
    4: ("ALTER TABLE job ADD COLUMN postponed BLOB",),
    # In which stage tasks met what they wait for was not kept until then: 3 is `run`, which goes on as all did.
    5: ("ALTER TABLE blocked ADD COLUMN stage INTEGER NOT NULL DEFAULT 3",),
    6: (
        """
        CREATE TABLE file (
            name TEXT PRIMARY KEY,
            size_bytes INTEGER NOT NULL,
            digest TEXT NOT NULL,
            owner TEXT NOT NULL,
            made_at REAL NOT NULL,
            job INTEGER NOT NULL,
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
        """
        CREATE TABLE left_over (
            job INTEGER NOT NULL,
            task INTEGER NOT NULL,
            url TEXT NOT NULL,
            PRIMARY KEY (job, task, url)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX left_over_by_url ON left_over (url)",
        """
        CREATE TABLE file_use (
            job INTEGER NOT NULL,
            source TEXT NOT NULL,
            begins TEXT NOT NULL,
            PRIMARY KEY (job, source)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX file_use_by_name ON file_use (begins, job)",
    ),
}
"""The statements that make a file of this version one of the next."""
