"""What is in a worker's directory, for people who ask. All of it runs in a thread, on a file system that may be slow.

    dir/spool                     results that are not acknowledged
    dir/outputs/<attempt>.out     their large outputs, and those of tasks under way
    dir/kept/<job>.<task>.<n>     sandboxes that were kept, of attempt n
    dir/sandboxes/<pid>.<n>/      in use by this process, or left by an earlier one
    dir/values, dir/trash         kept for the next calls; being removed

What the worker knows of its attempts comes in as `Books`, taken before the look began: so only what has not changed for a
while is said to be nobody's.
"""

import os
import re
import shutil
from collections.abc import Mapping
from itertools import islice, takewhile
from pathlib import Path

import msgspec

from tercel.core.errors import NotFound
from tercel.wire.looking import (
    FILES_MOST,
    KEPT_MOST,
    LARGEST_MOST,
    LEFT_MOST,
    NAMES_BYTES,
    PATH_MOST,
    Contents,
    Entry,
    File,
    KeptSandbox,
    Left,
    Listing,
    Part,
    Tail,
)
from tercel.worker.walking import (
    TOO_MANY,
    Budget,
    below,
    descended,
    kind_of,
    measure,
    opened,
    read_below,
    read_file,
    shown,
    told_size,
    told_time,
)

DIRECTORIES = ("outputs", "values", "trash", "kept", "sandboxes")
"""In this order: the last ones are as large as tasks make them."""
SPOOL = frozenset({"spool", "spool.new"})
OWN = frozenset({"worker-id", "worker-id.new", "lock", "node.json", "node.json.new", "cgroups", "containers"})
LOGS_MOST = 5
"""Older ones that a process keeps beside its log."""
LEFT_AFTER_S = 3600.0
"""Removing takes a while, and so does telling the manager: what is younger is not said to be left."""
DIRECT_MOST = 50_000
"""Entries directly in a part, which are held at once."""
LANE_MOST = 1000
"""Entries in a lane's directory: there are one or two, unless a task puts more there."""
_KEPT = re.compile(r"(\d{1,16})\.(\d{1,16})\.(\d{1,18})", re.ASCII)
_TOKEN = re.compile(rb"\b[0-9a-f]{8}\.[A-Za-z0-9_-]{43}")
"""As managers issue them: none belongs into a log, and should one be there, it is not told on."""


class Books(msgspec.Struct, frozen=True):
    """What the worker knows of its attempts."""

    held: frozenset[int] = frozenset()
    """Offered, under way, or not acknowledged."""
    reports: int = 0
    reports_since: float = 0.0
    lanes: dict[str, str] = {}
    """By the name of the directory among `sandboxes`: the task that runs there, as 37.4."""


class Running(msgspec.Struct, frozen=True):
    """An attempt that runs here."""

    attempt: int
    lane: str
    """The name of the directory, among `sandboxes`, that its sandbox is in."""


# -- the whole --------------------------------------------------------------------------------------------


def contents(dir: Path, books: Books, log: Path | None, now: float, budget: Budget) -> Contents:
    """Raises OSError if the directory cannot be looked into."""
    disk = shutil.disk_usage(dir)
    parts: list[Part] = []
    kept: list[KeptSandbox] = []
    left: list[Left] = []
    with opened(dir) as root:
        files = _Files(root, _log_names(dir, log), budget)
        parts += [files.part("spool", SPOOL), files.part("own", files.own)]
        for at, name in enumerate(DIRECTORIES):
            share = budget.share(len(DIRECTORIES) + 1 - at)
            measured = _measured(root, name, share)
            parts.append(_part(name, measured, share.cut, books.lanes if name == "sandboxes" else {}))
            kept += [sandbox for one in measured if (sandbox := _kept(name, one)) is not None]
            left += [lost for one in measured if (lost := _left(name, one, books, now)) is not None]
        foreign = _each(root, files.others(), budget)
    parts.append(_part("other", foreign, budget.cut))
    left += [Left("foreign", one.name, one.size_bytes, one.changed_at) for one in foreign]
    return Contents(
        dir=shown(dir),
        # Some file systems that have no end of their own name one beyond all that is believed.
        disk_bytes=told_size(disk.total),
        free_bytes=told_size(disk.free),
        reports=books.reports,
        reports_since=books.reports_since,
        parts=parts,
        kept=sorted(kept, key=lambda one: -one.since)[:KEPT_MOST],
        left=sorted(left, key=lambda one: -one.size_bytes)[:LEFT_MOST],
        log=shown(log) if log is not None else "",
    )


def _log_names(dir: Path, log: Path | None) -> frozenset[str]:
    """Of the worker's log and the older ones beside it, if they are in its own directory."""
    if log is None or log.parent.resolve() != dir:
        return frozenset()
    return frozenset([log.name, *(f"{log.name}.{number}.gz" for number in range(1, LOGS_MOST + 1))])


class _Measured(msgspec.Struct):
    """One thing that is directly in a part."""

    name: str
    size_bytes: int
    entries: int
    changed_at: float
    moved_at: float
    """When it was put there, or anything else about it was changed."""
    missed: tuple[str, ...]
    """Why there is more of it, if so."""


class _Files:
    """What is directly in the worker's directory."""

    def __init__(self, root: int, logs: frozenset[str], budget: Budget) -> None:
        self.own = OWN | logs
        self._root = root
        self._budget = budget
        self._names = _names(root, budget)

    def part(self, name: str, names: frozenset[str]) -> Part:
        return _part(name, _each(self._root, [n for n in self._names if n in names], self._budget), "")

    def others(self) -> list[str]:
        known = SPOOL | self.own | frozenset(DIRECTORIES)
        return [n for n in self._names if n not in known]


def _measured(root: int, name: str, budget: Budget) -> list[_Measured]:
    try:
        with opened(name, root) as directory:
            return _each(directory, _names(directory, budget), budget)
    except FileNotFoundError:
        pass  # nothing was ever in it
    except OSError as error:
        budget.miss(os.strerror(error.errno or 0))
    return []


def _names(directory: int, budget: Budget) -> list[str]:
    """Of what is directly in it."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in takewhile(lambda _: budget.take(), islice(entries, DIRECT_MOST))]
    if len(names) == DIRECT_MOST:
        budget.miss(TOO_MANY)
    return sorted(names)


def _each(directory: int, names: list[str], budget: Budget) -> list[_Measured]:
    """An equal share for each; then what is left for those that it was too little for: they are what is looked for."""
    found: dict[str, _Measured] = {}
    scant = _shared_out(directory, names, budget, found)
    _shared_out(directory, scant, budget, found)
    for one in found.values():
        budget.miss(*one.missed)
    return list(found.values())


def _shared_out(directory: int, names: list[str], budget: Budget, found: dict[str, _Measured]) -> list[str]:
    """Measures these, as far as there is time; returns those whose share was too little."""
    scant = []
    for at, name in enumerate(names):
        if not budget.in_time():
            break
        share = budget.share(len(names) - at)
        try:
            one = _measure(directory, name, share)
        except FileNotFoundError:
            continue  # gone meanwhile
        except OSError as error:  # what was mounted there is dead, say
            budget.miss(f"entries that cannot be read: {os.strerror(error.errno or 0)}")
            continue
        if share.spent:
            scant.append(name)
        if name not in found or one.entries >= found[name].entries:
            found[name] = one
    return scant


def _measure(directory: int, name: str, budget: Budget) -> _Measured:
    """Raises OSError."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    size_bytes, entries = measure(directory, name, status, budget)
    times = told_time(status.st_mtime), told_time(status.st_ctime)
    return _Measured(shown(name), told_size(size_bytes), entries, *times, budget.missed)


def _part(name: str, measured: list[_Measured], cut: str, tasks: Mapping[str, str] = {}) -> Part:
    largest = sorted(measured, key=lambda one: -one.size_bytes)[:LARGEST_MOST]
    return Part(
        name=name,
        size_bytes=told_size(sum(one.size_bytes for one in measured)),
        entries=sum(one.entries for one in measured),
        oldest_at=min((one.changed_at for one in measured), default=0.0),
        largest=[Entry(one.name, one.size_bytes, one.changed_at, tasks.get(one.name, "")) for one in largest],
        cut=cut,
    )


def _kept(part: str, one: _Measured) -> KeptSandbox | None:
    if part != "kept" or (name := _KEPT.fullmatch(one.name)) is None:
        return None
    job, task, attempt = map(int, name.groups())
    return KeptSandbox(job, task, attempt, one.moved_at, one.size_bytes, one.entries, "; ".join(one.missed))


def _left(part: str, one: _Measured, books: Books, now: float) -> Left | None:
    """If it is of no use to any attempt that the worker knows."""
    old = now - one.moved_at > LEFT_AFTER_S
    match part:
        case "outputs":
            attempt = one.name.partition(".")[0]
            needed = not old or (attempt.isdecimal() and int(attempt) in books.held)
            return None if needed else Left("output", f"outputs/{one.name}", one.size_bytes, one.changed_at)
        case "sandboxes" if one.name.partition(".")[0] != str(os.getpid()):
            return Left("sandbox", f"sandboxes/{one.name}", one.size_bytes, one.changed_at)
        case "trash" if old:
            return Left("trash", f"trash/{one.name}", one.size_bytes, one.moved_at)
        case "kept" if _KEPT.fullmatch(one.name) is None:
            return Left("kept", f"kept/{one.name}", one.size_bytes, one.moved_at)
    return None


# -- one sandbox ------------------------------------------------------------------------------------------


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
