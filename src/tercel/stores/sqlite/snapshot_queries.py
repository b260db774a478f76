"""The statements of snapshots, by name."""

JOB_IDS = "SELECT id FROM job WHERE :owner IS NULL OR owner = :owner ORDER BY id"
FLOW_IDS = "SELECT id FROM job WHERE id >= :flow AND flow = :flow ORDER BY id"
"""A flow has the number of its first job."""
WORKER = "SELECT name FROM worker WHERE id = ?"
LINE_CHUNKS = "SELECT first, lines FROM line_chunk WHERE job = ? ORDER BY first"
CALL_CHUNKS = "SELECT first, calls FROM call_chunk WHERE job = ? ORDER BY first"
OUTCOMES = """
    SELECT o.task, o.attempt, o.state, o.worker, o.end, o.code, o.started_at, o.ended_at, o.wall_s, o.cpu_s,
        o.max_rss_bytes, o.note, o.exceeded, output.out, output.err, output.value
    FROM outcome AS o LEFT JOIN output ON output.attempt = o.attempt
    WHERE o.job = :job ORDER BY o.task
"""
HISTORY = """
    SELECT h.task, h.attempt, h.state, h.worker, h.end, h.code, h.started_at, h.ended_at, h.wall_s, h.cpu_s,
        h.max_rss_bytes, h.note, h.exceeded, output.out, output.err, output.value, h.blame, h.spent
    FROM history AS h LEFT JOIN output ON output.attempt = h.attempt
    WHERE h.job = :job
        AND NOT EXISTS (
            SELECT 1 FROM outcome AS o WHERE o.job = :job AND o.task = h.task AND o.attempt = h.attempt
        )
    ORDER BY h.task, h.attempt
"""
"""Without an attempt that is its task's record: a batch handed over twice may have left it in both."""
SEGMENTS = "SELECT stream, number, data FROM output_segment WHERE attempt = ? ORDER BY stream, number"
PIECE_COUNT = "SELECT count(*) FROM value_piece WHERE key = ? AND number < ?"
SPANS = "SELECT first, last, state, at, reason, end FROM span WHERE job = ? ORDER BY first"
BLOCKED = "SELECT first, last, condition, at FROM blocked WHERE job = ? AND stage = ? ORDER BY first"
NOTES = "SELECT first, last, at, what, note FROM note WHERE job = ? ORDER BY id"

# --- staging

RESTORING_ADD = "INSERT OR IGNORE INTO restoring (job) VALUES (?)"
RESTORING_REMOVE = "DELETE FROM restoring WHERE job = ?"
RESTORING_LEAVE = "INSERT OR IGNORE INTO leaving (job) SELECT job FROM restoring"
RESTORING_CLEAR = "DELETE FROM restoring"
LEAVING_ADD = "INSERT OR IGNORE INTO leaving (job) SELECT job FROM restoring WHERE job = ?"
"""Only what is staged still: a job that was adopted is everybody's."""
JOB_NUMBER_KEEP = """
    INSERT INTO next_number (kind, value) VALUES ('job', ?)
    ON CONFLICT (kind) DO UPDATE SET value = excluded.value WHERE excluded.value > value
"""
VALUE_USE = "INSERT OR IGNORE INTO value_use (job, key) VALUES (?, ?)"
RESTORED_SET = "INSERT OR REPLACE INTO restored (id, row) VALUES (?, ?)"
RESTORED = "SELECT row FROM restored WHERE id = ?"
