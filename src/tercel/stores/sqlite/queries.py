"""Every statement that is run on an open store, by name. What a name promises stands beside it.

Kept to what SQLite 3.24 (2018) can do: people bring the SQLite their Python was built with.
"""

BEGIN = "BEGIN IMMEDIATE"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
BEGIN_READING = "BEGIN"

SCHEMA_VERSION = "PRAGMA user_version"
APPLICATION_ID = "PRAGMA application_id"
TABLE_COUNT = "SELECT count(*) FROM sqlite_master"

WRITER_SETTINGS = (
    # Before anything is in the file: else it changes nothing. Room that old jobs took can be given back.
    "PRAGMA auto_vacuum = INCREMENTAL",
    "PRAGMA journal_mode = WAL",
    # FULL syncs the log at every commit: what was acknowledged survives the loss of power.
    "PRAGMA synchronous = FULL",
    # On macOS only this reaches the medium; elsewhere it changes nothing.
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA cache_size = -16384",
    # Some distributions overwrite what is deleted; nothing here is secret, and leases come and go all the time.
    "PRAGMA secure_delete = OFF",
    "PRAGMA temp_store = MEMORY",
    # Fewer, larger checkpoints; and a log that grew in a burst gives its room back.
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
)
READER_SETTINGS = (
    "PRAGMA query_only = ON",
    "PRAGMA cache_size = -4096",
    "PRAGMA temp_store = MEMORY",
)

# --- epoch

# A new file begins at any of a million epochs: workers may still have results of a file that is gone, and their
# attempts must not be taken for ours. Attempt ids stay below 2**53, which JSON readers can represent.
EPOCH_ADVANCE = (
    "INSERT INTO epoch (id, value) VALUES (0, abs(random() % 1048576) + 1) "
    "ON CONFLICT (id) DO UPDATE SET value = value + 1"
)
EPOCH = "SELECT value FROM epoch"

# --- jobs

JOB_ADD = """
    INSERT INTO job (id, owner, key, submitted_at, max_running, has_lines, ended_at, finished, failed, cancelled,
        spec, ranges, flow, held, postponed)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING
"""
JOB_END = "UPDATE job SET ended_at = ?, finished = ?, failed = ?, cancelled = ? WHERE id = ?"
"""Also resumes: with no end and no counts."""

JOB = """
    SELECT id, owner, key, submitted_at, max_running, has_lines, ended_at, finished, failed, cancelled, spec, ranges,
        flow, held, postponed
    FROM job WHERE id = ?
"""
JOB_BY_KEY = """
    SELECT id, owner, key, submitted_at, max_running, has_lines, ended_at, finished, failed, cancelled, spec, ranges,
        flow, held, postponed
    FROM job INDEXED BY job_by_key WHERE owner = ? AND key = ? AND key <> '' ORDER BY id LIMIT 1
"""
JOBS = """
    SELECT id, owner, key, submitted_at, max_running, has_lines, ended_at, finished, failed, cancelled, spec, ranges,
        flow, held, postponed
    FROM job WHERE id < ? ORDER BY id DESC LIMIT ?
"""
JOBS_OF_OWNER = """
    SELECT id, owner, key, submitted_at, max_running, has_lines, ended_at, finished, failed, cancelled, spec, ranges,
        flow, held, postponed
    FROM job INDEXED BY job_by_owner WHERE owner = ? AND id < ? ORDER BY id DESC LIMIT ?
"""
JOBS_UNFINISHED = """
    SELECT id, owner, key, submitted_at, max_running, has_lines, ended_at, finished, failed, cancelled, spec, ranges,
        flow, held, postponed
    FROM job INDEXED BY job_unfinished WHERE ended_at IS NULL ORDER BY id
"""
JOB_REVISE = "UPDATE job SET spec = ?, held = ?, postponed = ? WHERE id = ?"
JOB_NEXT = """
    SELECT max(
        coalesce((SELECT max(id) FROM job), 0) + 1,
        coalesce((SELECT value FROM next_number WHERE kind = 'job'), 1)
    )
"""

# --- lines and calls

LINES_ADD = "INSERT OR REPLACE INTO line_chunk (job, first, lines) VALUES (?, ?, ?)"
LINES_AT = "SELECT first, lines FROM line_chunk WHERE job = ? AND first <= ? ORDER BY first DESC LIMIT 1"
LINES_AFTER = "SELECT first, lines FROM line_chunk WHERE job = ? AND first > ? ORDER BY first LIMIT 1"

CALLS_ADD = "INSERT OR REPLACE INTO call_chunk (job, first, calls) VALUES (?, ?, ?)"
CALLS_AT = "SELECT first, calls FROM call_chunk WHERE job = ? AND first <= ? ORDER BY first DESC LIMIT 1"
CALLS_AFTER = "SELECT first, calls FROM call_chunk WHERE job = ? AND first > ? ORDER BY first LIMIT 1"

# --- needs and queues

EDGES_ADD = "INSERT OR REPLACE INTO job_edge (job, edges) VALUES (?, ?)"
EDGES = "SELECT edges FROM job_edge WHERE job = ?"
NEED_ADD = "INSERT OR IGNORE INTO job_need (needed, job) VALUES (?, ?)"
DEPENDENTS = "SELECT job FROM job_need WHERE needed = ? ORDER BY job"

QUEUE_SET = "INSERT OR REPLACE INTO queue (name, row) VALUES (?, ?)"
QUEUE_REMOVE = "DELETE FROM queue WHERE name = ?"
QUEUES = "SELECT row FROM queue ORDER BY name"

# --- workers and leases

WORKER_SET = "INSERT OR REPLACE INTO worker_row (name, row) VALUES (?, ?)"
WORKER_REMOVE = "DELETE FROM worker_row WHERE name = ?"
WORKERS = "SELECT row FROM worker_row ORDER BY name"

RESERVATION_SET = "INSERT OR REPLACE INTO reservation (id, row) VALUES (?, ?)"
RESERVATION_REMOVE = "DELETE FROM reservation WHERE id = ?"
RESERVATIONS = "SELECT row FROM reservation ORDER BY id"
SWITCH_SET = "INSERT OR REPLACE INTO switch (name, row) VALUES (?, ?)"
SWITCH_REMOVE = "DELETE FROM switch WHERE name = ?"
SWITCHES = "SELECT row FROM switch ORDER BY name"

WORKER_ADD = "INSERT OR IGNORE INTO worker (name) VALUES (?)"
WORKER_ID = "SELECT id FROM worker WHERE name = ?"

LEASE_ADD = "INSERT OR REPLACE INTO lease (id, worker, job, first, last) VALUES (?, ?, ?, ?, ?)"
LEASE_CLOSE = "DELETE FROM lease WHERE id = ?"
LEASES = """
    SELECT lease.id, worker.name, lease.job, lease.first, lease.last
    FROM lease JOIN worker ON worker.id = lease.worker ORDER BY lease.id
"""

# --- how tasks ended

ROWS_AT_ONCE = 16

OUTCOME_ADD = """
    INSERT OR REPLACE INTO outcome
        (job, task, attempt, state, worker, end, code, started_at, ended_at, wall_s, cpu_s, max_rss_bytes, note,
        exceeded)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
OUTCOME_ADD_MANY = OUTCOME_ADD + ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)" * (ROWS_AT_ONCE - 1)
"""ROWS_AT_ONCE of them: half as much again in speed, and a sixteenth of the hand-overs of the interpreter's lock."""

HISTORY_ADD = """
    INSERT OR REPLACE INTO history
        (job, task, attempt, state, worker, end, code, started_at, ended_at, wall_s, cpu_s, max_rss_bytes, note,
        exceeded, blame, spent)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
OUTPUT_ADD = "INSERT OR REPLACE INTO output (attempt, out, err, value) VALUES (?, ?, ?, ?)"

HISTORY_FORGET = """
    DELETE FROM history
    WHERE job = :job AND task = :task AND attempt = :attempt AND spent = 0
        AND NOT EXISTS (SELECT 1 FROM outcome WHERE job = :job AND task = :task AND attempt = :attempt)
"""
"""One that counts stays: against a task's retries, or as its record, whose output it shares."""
OUTPUT_FORGET: tuple[str, ...] = (
    "DELETE FROM output WHERE attempt = :attempt",
    "DELETE FROM output_segment WHERE attempt = :attempt",
)

REOPEN: tuple[str, ...] = (
    "UPDATE history SET spent = 0 WHERE job = :job AND task BETWEEN :first AND :last AND spent = 1",
    """
    INSERT OR REPLACE INTO history
        (job, task, attempt, state, worker, end, code, started_at, ended_at, wall_s, cpu_s, max_rss_bytes, note,
        exceeded, spent)
    SELECT job, task, attempt, state, worker, end, code, started_at, ended_at, wall_s, cpu_s, max_rss_bytes, note,
        exceeded, 0
    FROM outcome WHERE job = :job AND task BETWEEN :first AND :last
    """,
    "DELETE FROM outcome WHERE job = :job AND task BETWEEN :first AND :last",
)
"""Records of tasks first..last move into history, and their retries are whole again."""

BLAME = "UPDATE history SET blame = ?, spent = 0 WHERE job = ? AND task = ? AND attempt = ?"

SPAN_CUT: tuple[str, ...] = (
    # What sticks out behind becomes a span of its own ...
    """
    INSERT OR REPLACE INTO span (job, first, last, state, at, reason, end)
    SELECT job, :last + 1, last, state, at, reason, end FROM span
    WHERE job = :job AND last > :last
        AND first = (SELECT max(first) FROM span WHERE job = :job AND first <= :last)
    """,
    # ... what sticks out in front stays ...
    """
    UPDATE span SET last = :first - 1
    WHERE job = :job AND last >= :first
        AND first = (SELECT max(first) FROM span WHERE job = :job AND first < :first)
    """,
    # ... and the rest goes.
    "DELETE FROM span WHERE job = :job AND first BETWEEN :first AND :last",
)
"""Takes first..last out of the job's spans. Each statement may be run for many disjoint ranges before the next."""
SPAN_ANY = "SELECT 1 FROM span WHERE job = ? LIMIT 1"
SPAN_ADD = (
    "INSERT OR REPLACE INTO span (job, first, last, state, at, reason, end) VALUES (?, ?, ?, ?, ?, ?, ?)"
)

OUTCOMES = """
    SELECT o.job, o.task, o.attempt, o.state, worker.name, o.end, o.code, o.started_at, o.ended_at, o.wall_s, o.cpu_s,
        o.max_rss_bytes, o.note, o.exceeded, NULL, output.out, output.err, output.value
    FROM outcome AS o
        CROSS JOIN worker ON worker.id = o.worker
        LEFT JOIN output ON output.attempt = o.attempt
    WHERE o.job = :job AND o.task BETWEEN :first AND :last AND (:states >> o.state) & 1
    ORDER BY o.task LIMIT :limit
"""
"""`:states` has bit n set where state code n is wanted. CROSS JOIN fixes the order of the loops."""
OUTCOMES_UNSUCCESSFUL = """
    SELECT o.job, o.task, o.attempt, o.state, worker.name, o.end, o.code, o.started_at, o.ended_at, o.wall_s, o.cpu_s,
        o.max_rss_bytes, o.note, o.exceeded, NULL, output.out, output.err, output.value
    FROM outcome AS o INDEXED BY outcome_unsuccessful
        CROSS JOIN worker ON worker.id = o.worker
        LEFT JOIN output ON output.attempt = o.attempt
    WHERE o.job = :job AND o.task BETWEEN :first AND :last AND o.state <> 1 AND (:states >> o.state) & 1
    ORDER BY o.task LIMIT :limit
"""
SPANS = """
    SELECT first, last, state, at, reason, end FROM span
    WHERE job = :job AND first <= :last AND last >= :first AND (:states >> state) & 1
        AND first >= coalesce((SELECT max(first) FROM span WHERE job = :job AND first <= :first), :first)
    ORDER BY first LIMIT :limit
"""
HISTORY = """
    SELECT h.job, h.task, h.attempt, h.state, worker.name, h.end, h.code, h.started_at, h.ended_at, h.wall_s, h.cpu_s,
        h.max_rss_bytes, h.note, h.exceeded, h.blame, output.out, output.err, output.value
    FROM history AS h
        CROSS JOIN worker ON worker.id = h.worker
        LEFT JOIN output ON output.attempt = h.attempt
    WHERE h.job = :job AND h.task = :task
        AND h.attempt NOT IN (SELECT attempt FROM outcome WHERE job = :job AND task = :task)
    ORDER BY h.attempt
"""
"""Without the attempt that is the task's record: a batch handed over twice may have left it in both."""

TRIED = (
    """
    SELECT attempt, worker.name FROM history CROSS JOIN worker ON worker.id = history.worker
    WHERE job = :job AND task = :task
    """,
    """
    SELECT attempt, worker.name FROM outcome CROSS JOIN worker ON worker.id = outcome.worker
    WHERE job = :job AND task = :task
    """,
)
"""What a task's attempts were before the last of them, and that."""

TASKS_FINISHED = """
    SELECT group_concat(task) FROM (
        SELECT task FROM outcome WHERE job = :job AND state = 1 AND task > :after ORDER BY task LIMIT :limit
    )
"""
"""Numbers separated by commas, in one row: six times as fast as rows of ranges made by window functions."""
TASKS_UNSUCCESSFUL = """
    SELECT group_concat(task) FROM (
        SELECT task FROM outcome INDEXED BY outcome_unsuccessful
        WHERE job = :job AND state <> 1 AND state = :state AND task > :after ORDER BY task LIMIT :limit
    )
"""
TASKS_SINCE = "SELECT task FROM outcome WHERE job = :job AND ended_at >= :at ORDER BY task"
SPANS_SINCE = "SELECT first, last FROM span WHERE job = :job AND at >= :at ORDER BY first"
JOB_BEGUN = """
    SELECT EXISTS (SELECT 1 FROM outcome WHERE job = :job) OR EXISTS (SELECT 1 FROM span WHERE job = :job)
        OR EXISTS (SELECT 1 FROM history WHERE job = :job) OR EXISTS (SELECT 1 FROM job_edge WHERE job = :job)
        OR EXISTS (SELECT 1 FROM blocked WHERE job = :job) OR EXISTS (SELECT 1 FROM left_over WHERE job = :job)
"""
SPANS_ENDED = "SELECT first, last FROM span WHERE job = :job AND state = :state ORDER BY first"
SPANS_SKIPPED = "SELECT first, last FROM span WHERE job = :job AND end = :end ORDER BY first"

FAILURES = """
    SELECT h.task, count(*) FROM history AS h
    WHERE h.job = :job AND h.spent = 1
        AND NOT EXISTS (SELECT 1 FROM outcome AS o WHERE o.job = :job AND o.task = h.task)
        AND NOT EXISTS (
            SELECT 1 FROM span AS s WHERE s.job = :job AND s.last >= h.task
                AND s.first = (SELECT max(first) FROM span WHERE job = :job AND first <= h.task)
        )
    GROUP BY h.task
"""
"""Retries spent by tasks that have not ended."""

# --- what tasks wait for, and what befell them

CONDITION_SET = "INSERT OR REPLACE INTO condition (id, row, closed_at) VALUES (?, ?, ?)"
CONDITION = "SELECT row FROM condition WHERE id = ?"
CONDITION_NEXT = """
    SELECT max(
        coalesce((SELECT max(id) FROM condition), 0) + 1,
        coalesce((SELECT value FROM next_number WHERE kind = 'condition'), 1)
    )
"""
CONDITIONS = "SELECT row FROM condition WHERE id < ? ORDER BY id DESC LIMIT ?"
CONDITIONS_OPEN = """
    SELECT row FROM condition INDEXED BY condition_open WHERE closed_at IS NULL AND id < ? ORDER BY id DESC LIMIT ?
"""

BLOCKED_CUT: tuple[str, ...] = (
    """
    INSERT OR REPLACE INTO blocked (job, first, last, condition, at, stage)
    SELECT job, :last + 1, last, condition, at, stage FROM blocked
    WHERE job = :job AND last > :last
        AND first = (SELECT max(first) FROM blocked WHERE job = :job AND first <= :last)
    """,
    """
    UPDATE blocked SET last = :first - 1
    WHERE job = :job AND last >= :first
        AND first = (SELECT max(first) FROM blocked WHERE job = :job AND first < :first)
    """,
    "DELETE FROM blocked WHERE job = :job AND first BETWEEN :first AND :last",
)
"""As SPAN_CUT does."""
BLOCKED_ANY = "SELECT 1 FROM blocked WHERE job = ? LIMIT 1"
BLOCKED_ADD = """
    INSERT OR REPLACE INTO blocked (job, first, last, condition, at, stage) VALUES (?, ?, ?, ?, ?, ?)
"""
BLOCKED = """
    SELECT group_concat(row) FROM (
        SELECT '[' || first || ',' || last || ',' || condition || ',' || stage || ']' AS row
        FROM blocked WHERE job = :job AND first > :after ORDER BY first LIMIT :limit
    )
"""
"""In one row, as JSON without the outer brackets."""

NOTE_ADD = "INSERT INTO note (job, level, first, last, at, what, note) VALUES (?, ?, ?, ?, ?, ?, ?)"
NOTES = """
    SELECT at, id, what, note FROM note INDEXED BY note_by_task
    WHERE job = :job AND level = :level AND first BETWEEN :lowest AND :task AND last >= :task
"""

NOTES_OF_JOB = """
    SELECT at, id, first, last, what, note FROM note WHERE job = :job AND at >= :since ORDER BY at, id
"""
"""By `note_by_job`: as they are read, none is sorted."""
SPANS_OF_JOB = "SELECT at, first, last, end, reason FROM span WHERE job = :job AND at >= :since"

# --- values

VALUE_ADD = "INSERT OR REPLACE INTO value_piece (key, number, data, last) VALUES (?, ?, ?, ?)"
VALUE_ANEW = "DELETE FROM value_use WHERE key = ? AND job < 0"
VALUE_USE = "INSERT OR IGNORE INTO value_use (job, key) VALUES (?, ?)"
VALUE_LAST = "SELECT min(number) FROM value_piece WHERE key = ? AND last"
"""The first that is marked: what an upload that came to nothing left behind it does not count."""
VALUE_PIECES = "SELECT data FROM value_piece WHERE key = ? AND number BETWEEN ? AND ? ORDER BY number"

VALUES_RETURNED = """
    SELECT group_concat(row, ';') FROM (
        SELECT o.task || ',' || o.state || ',' || o.end || ',' || o.code || ',' || hex(o.note) || ','
            || hex(output.value) AS row
        FROM outcome AS o LEFT JOIN output ON output.attempt = o.attempt
        WHERE o.job = :job AND o.task BETWEEN :first AND :last ORDER BY o.task LIMIT :limit
    )
"""
"""Rows separated by semicolons, their columns by commas, in one row; bytes and text in hex, empty if there are none."""

# --- output segments and tokens

SEGMENT_ADD = "INSERT OR REPLACE INTO output_segment (attempt, stream, number, data) VALUES (?, ?, ?, ?)"
SEGMENTS = """
    SELECT data FROM output_segment WHERE attempt = ? AND stream = ? AND number BETWEEN ? AND ? ORDER BY number
"""

HALF_DONE = """
    SELECT s.attempt FROM history AS h
        CROSS JOIN output_segment AS s ON s.attempt = h.attempt
        LEFT JOIN output ON output.attempt = h.attempt
    WHERE h.job = :job AND h.task BETWEEN :first AND :last
        AND CASE s.stream WHEN 'out' THEN output.out WHEN 'err' THEN output.err ELSE output.value END IS NULL
"""
"""Pieces of output that no record tells of."""
SEGMENTS_DROP = """
    DELETE FROM output_segment WHERE rowid IN (
        SELECT s.rowid FROM output_segment AS s LEFT JOIN output ON output.attempt = s.attempt
        WHERE s.attempt = ?
            AND CASE s.stream WHEN 'out' THEN output.out WHEN 'err' THEN output.err ELSE output.value END IS NULL
    )
"""
KEPT_BYTES: tuple[str, ...] = (
    "SELECT sum(length(s.data)) FROM outcome AS o CROSS JOIN output_segment AS s ON s.attempt = o.attempt WHERE o.job = :job",
    "SELECT sum(length(s.data)) FROM history AS h CROSS JOIN output_segment AS s ON s.attempt = h.attempt WHERE h.job = :job",
    """
    SELECT sum(coalesce(length(out), 0) + coalesce(length(err), 0) + coalesce(length(value), 0))
    FROM outcome AS o CROSS JOIN output ON output.attempt = o.attempt WHERE o.job = :job
    """,
    """
    SELECT sum(coalesce(length(out), 0) + coalesce(length(err), 0) + coalesce(length(value), 0))
    FROM history AS h CROSS JOIN output ON output.attempt = h.attempt WHERE h.job = :job
    """,
)

# Statements, not secrets: S105 goes by the names.
TOKEN_ADD = """
    INSERT OR REPLACE INTO token (id, role, user, digest, created_at, note) VALUES (?, ?, ?, ?, ?, ?)
"""  # noqa: S105
TOKEN_REVOKE = "DELETE FROM token WHERE id = ?"  # noqa: S105
TOKENS = "SELECT id, role, user, digest, created_at, note FROM token ORDER BY id"
