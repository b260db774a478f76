"""The statements of the catalogue, by name."""

# --- writing

FILE_ADD = """
    INSERT OR IGNORE INTO file (name, size_bytes, digest, owner, made_at, job, task, attempt)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
REPLICA_ADD = """
    INSERT INTO replica (name, url, verified_at, bad, made)
    SELECT :name, :url, :at, '', job <> 0 AND job = :job AND task = :task FROM file WHERE name = :name AND digest = :digest
    ON CONFLICT (name, url) DO UPDATE SET verified_at = excluded.verified_at, bad = '', made = max(made, excluded.made)
"""
REPLICA_SET = """
    INSERT INTO replica (name, url, verified_at, bad, made)
    SELECT :name, :url, :at, :bad, 0 WHERE EXISTS (SELECT 1 FROM file WHERE name = :name)
    ON CONFLICT (name, url) DO UPDATE SET verified_at = excluded.verified_at, bad = excluded.bad
"""
LEFT_KEPT = """
    DELETE FROM left_over WHERE url = :url AND EXISTS (SELECT 1 FROM replica WHERE name = :name AND url = :url)
"""
"""What is a replica of a file is not to be removed, whoever left it."""
FILE_REMOVE: tuple[str, ...] = (
    "DELETE FROM replica WHERE name = :name",
    "DELETE FROM file WHERE name = :name",
)
REPLICA_REMOVE = "DELETE FROM replica WHERE name = ? AND url = ?"

UNDONE: tuple[str, ...] = (
    """
    INSERT OR IGNORE INTO left_over (job, task, url)
    SELECT f.job, f.task, r.url FROM file AS f CROSS JOIN replica AS r ON r.name = f.name
    WHERE f.job <> 0 AND f.job = :job AND f.task BETWEEN :first AND :last AND r.made AND substr(r.url, 1, 7) <> 'tercel:'
    """,
    """
    DELETE FROM replica WHERE name IN (
        SELECT name FROM file WHERE job <> 0 AND job = :job AND task BETWEEN :first AND :last
    )
    """,
    "DELETE FROM file WHERE job <> 0 AND job = :job AND task BETWEEN :first AND :last",
    """
    DELETE FROM left_over
    WHERE job = :job AND task BETWEEN :first AND :last AND EXISTS (SELECT 1 FROM replica WHERE url = left_over.url)
    """,
)
"""(`job <> 0` is what the index says: without it SQLite would not use that.)"""
LEFT_REMOVED = "DELETE FROM left_over WHERE job = ? AND task = ?"

USE_ADD = "INSERT OR IGNORE INTO file_use (job, source, begins) VALUES (?, ?, ?)"
USES_DROP = "DELETE FROM file_use WHERE job = ?"

# --- questions

FILES_NAMED = """
    SELECT name, size_bytes, digest, owner, made_at, job, task, attempt
    FROM json_each(:names) AS asked CROSS JOIN file ON file.name = asked.value
"""
REPLICAS_NAMED = """
    SELECT name, url, verified_at, bad, made FROM json_each(:names) AS asked CROSS JOIN replica ON replica.name = asked.value
"""
FILES_FROM = """
    SELECT name, size_bytes, digest, owner, made_at, job, task, attempt FROM file
    WHERE name >= :least AND name > :after AND name < :below ORDER BY name LIMIT :limit
"""
FILES_MADE = """
    SELECT name, size_bytes, digest, owner, made_at, job, task, attempt FROM file
    WHERE job <> 0 AND job = :job AND (task, name) > (:task, :name) AND task BETWEEN :first AND :last
    ORDER BY task, name LIMIT :limit
"""
NAMES_AT = """
    SELECT url, name FROM json_each(:urls) AS asked CROSS JOIN replica ON replica.url = asked.value
"""
LEFT = "SELECT task, url FROM left_over WHERE job = ? AND task BETWEEN ? AND ? ORDER BY task, url"
READERS = """
    SELECT job, source FROM json_each(:begins) AS asked
        CROSS JOIN file_use ON file_use.begins = asked.value CROSS JOIN job ON job.id = file_use.job
"""

# --- cleaning

LEFT_CLEAN = """
    DELETE FROM left_over WHERE job = :job AND (task, url) IN (
        SELECT task, url FROM left_over WHERE job = :job ORDER BY task, url LIMIT :limit
    )
"""
MADE_UNNAMED = """
    SELECT name FROM file
    WHERE job <> 0 AND job = :job AND substr(name, 1, 4) <> 'lfn:' AND substr(name, 1, 3) <> 'up:' LIMIT :limit
"""
"""What is registered under its URL alone."""
USES = "SELECT source FROM file_use WHERE job = :job ORDER BY source LIMIT :limit"
USE_DROP = "DELETE FROM file_use WHERE job = :job AND source = :source"
UPLOAD_SHARED = """
    SELECT 1 FROM file_use WHERE begins >= :upload AND begins < :behind AND NOT (job = :job AND source = :source) LIMIT 1
"""
UPLOAD_FILES = "SELECT name FROM file WHERE name >= :upload AND name < :behind LIMIT :limit"
UPLOADS_UNUSED = """
    SELECT name FROM file
    WHERE name >= 'up:' AND name < 'up;' AND made_at < :before AND NOT EXISTS (
        SELECT 1 FROM file_use
        WHERE begins >= substr(name, 1, instr(name, '/')) AND begins < substr(name, 1, instr(name, '/') - 1) || '0'
    )
    LIMIT :limit
"""
"""Uploaded for a job that never came. ('0' comes right behind '/'.)"""
