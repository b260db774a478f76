"""One sandbox of a worker, its files, and the worker's log, for people who ask: see looking. In a thread, too."""

import os
import re
from itertools import islice
from pathlib import Path

import msgspec

from tercel.core.errors import NotFound
from tercel.wire.looking import FILES_MOST, NAMES_BYTES, PATH_MOST, File, Listing, Tail
from tercel.worker.walking import (
    Budget,
    below,
    descended,
    kind_of,
    read_below,
    read_file,
    shown,
    told_size,
    told_time,
)

LANE_MOST = 1000
"""Entries in a lane's directory: there are one or two, unless a task puts more there."""
_TOKEN = re.compile(rb"\b[0-9a-f]{8}\.[A-Za-z0-9_-]{43}")
"""As managers issue them: none belongs into a log, and should one be there, it is not told on."""


class Running(msgspec.Struct, frozen=True):
    """An attempt that runs here."""

    attempt: int
    lane: str
    """The name of the directory, among `sandboxes`, that its sandbox is in."""


class Asked(msgspec.Struct, frozen=True):
    """Whose sandbox."""

    job: int
    task: int
    attempts: list[int]
    """Those that may be shown, oldest first."""
    running: Running | None
    """The one of them that runs here, if one does: it is preferred to what was kept of earlier ones."""


def listing(dir: Path, asked: Asked, budget: Budget) -> Listing:
    """Raises NotFound or OSError."""
    kept = _kept_attempts(dir, asked)
    attempt, steps = _place(dir, asked, kept)
    files: list[File] = []
    names_bytes = 0
    with descended(dir, *steps) as sandbox:
        since = os.fstat(sandbox).st_ctime
        for found, status in below(sandbox, budget, ordered=True):
            path = shown(found)
            names_bytes += len(path.encode())
            if len(files) == FILES_MOST or names_bytes > NAMES_BYTES or len(path) > PATH_MOST:
                budget.miss(f"more than the first {len(files):,} entries")
                break
            size_bytes, changed_at = told_size(status.st_size), told_time(status.st_mtime)
            files.append(File(path, kind_of(status), size_bytes, changed_at))
    where, running = shown(dir.joinpath(*steps)), asked.running is not None
    return Listing(attempt, where, running, since, files, kept, budget.cut)


def read(dir: Path, asked: Asked, path: str) -> Tail:
    """The end of a file in it. Raises NotFound, UsageError or OSError."""
    _, steps = _place(dir, asked, _kept_attempts(dir, asked))
    with descended(dir, *steps) as sandbox:
        return read_below(sandbox, path)


def _kept_attempts(dir: Path, asked: Asked) -> list[int]:
    try:
        with descended(dir, "kept") as kept:
            return [attempt for attempt in asked.attempts if _is_there(kept, _name(asked, attempt))]
    except FileNotFoundError:
        return []  # nothing was ever kept


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _place(dir: Path, asked: Asked, kept: list[int]) -> tuple[int, tuple[str, str] | tuple[str, str, str]]:
    """Which attempt's it is, and the steps to it."""
    if asked.running is not None:
        lane = asked.running.lane
        return asked.running.attempt, ("sandboxes", lane, _in_use(dir, lane))
    if not kept:
        raise NotFound(
            f"no sandbox of {asked.job}.{asked.task} is here: it does not run here now, and was not kept when it ended "
            "(--sandbox keep-on-failure does that), had nothing in it, or was removed since, as the oldest of many",
            "task",
        )
    return kept[-1], ("kept", _name(asked, kept[-1]))


def _name(asked: Asked, attempt: int) -> str:
    return f"{asked.job}.{asked.task}.{attempt}"


def _in_use(dir: Path, lane: str) -> str:
    """Of the sandboxes of a lane the one that was made last: others could not be removed."""
    with descended(dir, "sandboxes", lane) as directory, os.scandir(directory) as entries:
        names = [entry.name for entry in islice(entries, LANE_MOST)]
    numbers = [name for name in names if name.isascii() and name.isdecimal()]
    if not numbers:
        raise NotFound("its sandbox is gone", "task")
    return max(numbers, key=int)


# -- the log ----------------------------------------------------------------------------------------------


def log_tail(log: Path | None) -> Tail:
    """Whole lines. Raises NotFound or UsageError."""
    if log is None:
        raise NotFound("it writes no log file: start it with --log FILE", "worker")
    tail = read_file(log)
    data = tail.data.partition(b"\n")[2] if tail.offset else tail.data
    offset = tail.offset + len(tail.data) - len(data)
    return msgspec.structs.replace(tail, offset=offset, data=_TOKEN.sub(b"(a token)", data))
