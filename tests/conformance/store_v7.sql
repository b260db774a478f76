-- A file of schema version 7 as it was released. Never changed: it stands for what people have on their disks.
PRAGMA application_id = 1413829187;
PRAGMA user_version = 7;
BEGIN TRANSACTION;
CREATE TABLE blocked (
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        condition INTEGER NOT NULL,
        at REAL NOT NULL,
        stage INTEGER NOT NULL DEFAULT 3,  -- codes.STAGE_CODES
        PRIMARY KEY (job, first)
    ) WITHOUT ROWID
    ;
CREATE TABLE call_chunk (
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,
        calls BLOB NOT NULL,     -- msgpack of [Call, ...]
        PRIMARY KEY (job, first)
    );
CREATE TABLE condition (id INTEGER PRIMARY KEY, row BLOB NOT NULL, closed_at REAL);
CREATE TABLE epoch (
        id INTEGER PRIMARY KEY CHECK (id = 0),
        value INTEGER NOT NULL
    );
INSERT INTO "epoch" VALUES(0,1);
CREATE TABLE file (
            name TEXT PRIMARY KEY,
            size_bytes INTEGER NOT NULL,
            digest TEXT NOT NULL,
            owner TEXT NOT NULL,
            made_at REAL NOT NULL,
            job INTEGER NOT NULL,
            task INTEGER NOT NULL,
            attempt INTEGER NOT NULL
        );
CREATE TABLE file_use (
            job INTEGER NOT NULL,
            source TEXT NOT NULL,
            begins TEXT NOT NULL,
            PRIMARY KEY (job, source)
        ) WITHOUT ROWID
        ;
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
    ;
INSERT INTO "history" VALUES(1,1,11,2,2,1,3,201.125,201.3,0.1,0.03,3456789,NULL,0,NULL,NULL);
INSERT INTO "history" VALUES(1,2,12,2,2,1,3,202.125,202.3,0.1,0.03,3456789,NULL,1,NULL,NULL);
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
    );
INSERT INTO "job" VALUES(1,'ada','k',101.0,0,0,NULL,0,0,0,X'DE0001A46172677691A474727565',X'91920009',0,NULL,NULL);
INSERT INTO "job" VALUES(2,'ada','',102.0,0,1,9.5,3,0,0,X'DE0001A46172677691A474727565',X'91920002',0,NULL,NULL);
CREATE TABLE job_edge (
        job INTEGER PRIMARY KEY,
        edges BLOB NOT NULL  -- msgpack of [[task, job, first, last], ...]
    );
CREATE TABLE job_need (
        needed INTEGER NOT NULL,
        job INTEGER NOT NULL,
        PRIMARY KEY (needed, job)
    ) WITHOUT ROWID
    ;
CREATE TABLE lease (
        id INTEGER PRIMARY KEY,
        worker INTEGER NOT NULL,
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL
    );
INSERT INTO "lease" VALUES(7,1,1,0,4);
CREATE TABLE leaving (job INTEGER PRIMARY KEY);
CREATE TABLE left_over (
            job INTEGER NOT NULL,
            task INTEGER NOT NULL,
            url TEXT NOT NULL,
            PRIMARY KEY (job, task, url)
        ) WITHOUT ROWID
        ;
CREATE TABLE line_chunk (
        job INTEGER NOT NULL,
        first INTEGER NOT NULL,  -- the task of the first line; the others follow without a gap
        lines BLOB NOT NULL,     -- msgpack of [line, ...]
        PRIMARY KEY (job, first)
    );
INSERT INTO "line_chunk" VALUES(2,0,X'93A161A162A163');
CREATE TABLE next_number (kind TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE note (
        id INTEGER PRIMARY KEY,
        job INTEGER NOT NULL,
        level INTEGER NOT NULL,  -- notes.LENGTHS
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        at REAL NOT NULL,
        what TEXT NOT NULL,
        note TEXT NOT NULL
    );
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
    ;
INSERT INTO "outcome" VALUES(1,0,10,1,2,1,0,200.125,200.3,0.1,0.03,3456789,'done',NULL);
INSERT INTO "outcome" VALUES(2,0,2000,1,2,1,0,200.125,200.3,0.1,0.03,3456789,NULL,NULL);
INSERT INTO "outcome" VALUES(2,1,2001,1,2,1,0,201.125,201.3,0.1,0.03,3456789,NULL,NULL);
INSERT INTO "outcome" VALUES(2,2,2002,1,2,1,0,202.125,202.3,0.1,0.03,3456789,NULL,NULL);
CREATE TABLE output (
        attempt INTEGER PRIMARY KEY,
        out BLOB,  -- msgpack of Output
        err BLOB,
        value BLOB
    );
INSERT INTO "output" VALUES(10,X'940202C402686900',NULL,NULL);
INSERT INTO "output" VALUES(11,NULL,X'940909C40001',NULL);
CREATE TABLE output_segment (
        attempt INTEGER NOT NULL,
        stream TEXT NOT NULL,
        number INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (attempt, stream, number)
    );
INSERT INTO "output_segment" VALUES(3,'err',0,X'7069656365');
CREATE TABLE queue (
        name TEXT PRIMARY KEY,
        row BLOB NOT NULL  -- msgpack of QueueRow
    );
CREATE TABLE replica (
            name TEXT NOT NULL,
            url TEXT NOT NULL,
            verified_at REAL NOT NULL,
            bad TEXT NOT NULL,
            made INTEGER NOT NULL,
            PRIMARY KEY (name, url)
        ) WITHOUT ROWID
        ;
CREATE TABLE reservation (id INTEGER PRIMARY KEY, row BLOB NOT NULL);
CREATE TABLE restored (id TEXT PRIMARY KEY, row BLOB NOT NULL);
CREATE TABLE restoring (job INTEGER PRIMARY KEY);
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
    ;
INSERT INTO "span" VALUES(1,3,3,3,300.5,'ada asked',4);
INSERT INTO "span" VALUES(1,5,5,3,300.5,'ada asked',4);
CREATE TABLE switch (name TEXT PRIMARY KEY, row BLOB NOT NULL);
CREATE TABLE token (
        id TEXT PRIMARY KEY,
        role TEXT NOT NULL,
        user TEXT NOT NULL,
        digest TEXT NOT NULL,
        created_at REAL NOT NULL,
        note TEXT NOT NULL
    );
INSERT INTO "token" VALUES('t','user','ada','abababababababababababababababababababababababababababababababab',5.5,'laptop');
CREATE TABLE value_piece (
        key TEXT NOT NULL,
        number INTEGER NOT NULL,
        data BLOB NOT NULL,
        last INTEGER NOT NULL,   -- 1: the value is whole, and this is its end
        PRIMARY KEY (key, number)
    );
CREATE TABLE value_use (job INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (job, key)) WITHOUT ROWID;
CREATE TABLE worker (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO "worker" VALUES(1,'n2');
INSERT INTO "worker" VALUES(2,'node1');
CREATE TABLE worker_row (name TEXT PRIMARY KEY, row BLOB NOT NULL);
CREATE INDEX job_unfinished ON job (id) WHERE ended_at IS NULL;
CREATE INDEX job_ended ON job (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX job_by_owner ON job (owner, id);
CREATE INDEX job_by_key ON job (owner, key, id) WHERE key <> '';
CREATE INDEX job_need_by_job ON job_need (job);
CREATE INDEX outcome_unsuccessful ON outcome (job, task, state) WHERE state <> 1;
CREATE INDEX condition_open ON condition (id) WHERE closed_at IS NULL;
CREATE INDEX condition_closed ON condition (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX note_by_task ON note (job, level, first);
CREATE INDEX note_by_job ON note (job, at);
CREATE INDEX note_by_time ON note (at);
CREATE INDEX value_use_by_key ON value_use (key, job);
CREATE INDEX file_by_task ON file (job, task, name) WHERE job <> 0;
CREATE INDEX replica_by_url ON replica (url);
CREATE INDEX left_over_by_url ON left_over (url);
CREATE INDEX file_use_by_name ON file_use (begins, job);
COMMIT;
