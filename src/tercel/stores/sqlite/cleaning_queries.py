"""The statements that remove what is old, by name. `:limit` bounds how many rows one of them takes."""

# --- jobs

REMOVABLE = """
    SELECT id FROM job INDEXED BY job_ended
    WHERE ended_at IS NOT NULL AND ended_at < :ended_before AND (:owner IS NULL OR owner = :owner)
        AND NOT EXISTS (SELECT 1 FROM job_need WHERE needed = job.id)
    ORDER BY ended_at LIMIT :limit
"""
"""Also those that are leased: they are few, and told apart by LEASED."""
REMOVABLE_STILL = """
    SELECT id FROM job
    WHERE id = :job AND ended_at IS NOT NULL AND ended_at < :ended_before
        AND NOT EXISTS (SELECT 1 FROM job_need WHERE needed = job.id)
"""
LEASED = "SELECT DISTINCT job FROM lease"

JOB_NUMBER_KEEP = """
    INSERT INTO next_number (kind, value) SELECT 'job', coalesce(max(id), 0) + 1 FROM job WHERE true
    ON CONFLICT (kind) DO UPDATE SET value = excluded.value WHERE excluded.value > value
"""
"""The number of a job that is removed is not used again. (`WHERE true`: else SQLite takes ON for a join's.)"""
JOB_REMOVE: tuple[str, ...] = (
    "DELETE FROM job WHERE id = ?",
    "DELETE FROM job_need WHERE job = ?",
    "INSERT INTO leaving (job) VALUES (?)",
)

# --- what they leave behind

LEAVING = "SELECT job FROM leaving ORDER BY job LIMIT 1"
LEFT = "DELETE FROM leaving WHERE job = ?"

SPANS_REMOVE = """
    DELETE FROM span WHERE job = :job
        AND first IN (SELECT first FROM span WHERE job = :job ORDER BY first LIMIT :limit)
"""
BLOCKED_REMOVE = """
    DELETE FROM blocked WHERE job = :job
        AND first IN (SELECT first FROM blocked WHERE job = :job ORDER BY first LIMIT :limit)
"""
NOTES_REMOVE = "DELETE FROM note WHERE id IN (SELECT id FROM note WHERE job = :job LIMIT :limit)"
EDGES_REMOVE = "DELETE FROM job_edge WHERE job = :job"
LINES_REMOVE = (
    "DELETE FROM line_chunk WHERE rowid IN (SELECT rowid FROM line_chunk WHERE job = :job LIMIT :limit)"
)
CALLS_REMOVE = (
    "DELETE FROM call_chunk WHERE rowid IN (SELECT rowid FROM call_chunk WHERE job = :job LIMIT :limit)"
)

OUTCOMES_FIRST = "SELECT task, attempt FROM outcome WHERE job = :job ORDER BY task LIMIT :limit"
HISTORY_FIRST = "SELECT task, attempt FROM history WHERE job = :job ORDER BY task, attempt LIMIT :limit"
OUTCOME_REMOVE = "DELETE FROM outcome WHERE job = ? AND task = ? AND attempt = ?"
HISTORY_REMOVE = "DELETE FROM history WHERE job = ? AND task = ? AND attempt = ?"
OUTPUT_REMOVE = "DELETE FROM output WHERE attempt = ?"
SEGMENTS_REMOVE = """
    DELETE FROM output_segment
    WHERE rowid IN (SELECT rowid FROM output_segment WHERE attempt = :attempt LIMIT :limit)
"""

VALUES_USED = "SELECT key FROM value_use WHERE job = :job ORDER BY key LIMIT :limit"
VALUE_SHARED = """
    SELECT 1 FROM value_use WHERE key = :key AND job <> :job AND (job >= 0 OR job <= :young) LIMIT 1
"""
"""`young`: whoever was told since then that it is there has still to name it."""
VALUES_UNNAMED = """
    SELECT key FROM value_piece AS piece
    WHERE number = 0 AND NOT EXISTS (SELECT 1 FROM value_use WHERE key = piece.key)
"""
VALUE_PUT_UNNAMED = "INSERT INTO value_use (job, key) VALUES (:since, :key)"
VALUES_LONG_UNNAMED = """
    SELECT job, key FROM value_use WHERE job BETWEEN :since AND -1 ORDER BY job DESC LIMIT :limit
"""
VALUE_UNUSE = "DELETE FROM value_use WHERE job = :job AND key = :key"
PIECES_REMOVE = """
    DELETE FROM value_piece WHERE key = :key
        AND number IN (SELECT number FROM value_piece WHERE key = :key ORDER BY number DESC LIMIT :limit)
"""
"""From its end: a value without its last piece is none, so nobody reads half of one."""

# --- by age: but for what is noted under contract.LEFT_OUT

OLD_NOTES_COUNT = "SELECT count(*) FROM note WHERE at < :before AND what <> 'left out'"
OTHER_NOTES_COUNT = "SELECT count(*) FROM note WHERE job = :job AND (at >= :before OR what = 'left out')"
"""Of a job that is removed, those that would stay otherwise."""
OLD_CONDITIONS_COUNT = """
    SELECT count(*) FROM condition INDEXED BY condition_closed WHERE closed_at IS NOT NULL AND closed_at < :before
"""
OLD_NOTES_REMOVE = """
    DELETE FROM note WHERE id IN (SELECT id FROM note WHERE at < :before AND what <> 'left out' LIMIT :limit)
"""
CONDITION_NUMBER_KEEP = """
    INSERT INTO next_number (kind, value) SELECT 'condition', coalesce(max(id), 0) + 1 FROM condition WHERE true
    ON CONFLICT (kind) DO UPDATE SET value = excluded.value WHERE excluded.value > value
"""
OLD_CONDITIONS_REMOVE = """
    DELETE FROM condition WHERE id IN (
        SELECT id FROM condition INDEXED BY condition_closed
        WHERE closed_at IS NOT NULL AND closed_at < :before LIMIT :limit
    )
"""

# --- long histories

LONG_HISTORIES = """
    SELECT job, task, count(*) FROM history WHERE (job, task) > (:job, :task) GROUP BY job, task LIMIT :limit
"""
"""Of so many tasks, how many rows each has: few are long, and their rows are read again."""
HISTORY_MIDDLE = """
    SELECT attempt, ended_at FROM history
    WHERE job = :job AND task = :task AND spent = 0 AND ended_at < :ended_before
        AND attempt > (
            SELECT attempt FROM history WHERE job = :job AND task = :task ORDER BY attempt LIMIT 1 OFFSET :keep - 1
        )
        AND attempt < (
            SELECT attempt FROM history WHERE job = :job AND task = :task ORDER BY attempt DESC LIMIT 1 OFFSET :keep - 1
        )
        AND attempt NOT IN (SELECT attempt FROM outcome WHERE job = :job AND task = :task)
    ORDER BY attempt LIMIT :limit
"""
"""Without those that count: against a task's retries, or as its record, whose output it shares."""

LEFT_OUT_BEFORE = """
    SELECT id, at, note FROM note
    WHERE job = :job AND level = 0 AND first = :task AND what = 'left out'
"""
NOTE_REMOVE = "DELETE FROM note WHERE id = ?"

# --- room

VACUUM_MODE = "PRAGMA auto_vacuum"
FREE_PAGES = "PRAGMA freelist_count"
PAGE_BYTES = "PRAGMA page_size"
