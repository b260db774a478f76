"""What is in a worker's directory, for people who ask. All of it runs in a thread, on a file system that may be slow.

    dir/spool                     results that are not acknowledged
    dir/outputs/<attempt>.out     their large outputs, and those of tasks under way
    dir/kept/<job>.<task>.<n>     sandboxes that were kept, of attempt n
    dir/sandboxes/<pid>.<n>/      in use by this process, or left by an earlier one
    dir/outgoing/<attempt>/       files that tasks left and that are not delivered yet
    dir/cache, dir/values         files that tasks read, if no other place was said for them; values of calls
    dir/trash                     being removed

What the worker knows of its attempts comes in as `Books`, taken before the look began: so of outputs and of what is in the trash
only what has not changed for a while is said to be nobody's. A sandbox of an earlier process is nobody's at once, by its name,
and whose a kept one is, the manager knows.

One sandbox, and the worker's log: see sandboxes.
"""

import os
import re
import shutil
from collections.abc import Mapping
from itertools import islice, takewhile
from pathlib import Path

import msgspec

from tercel.wire.looking import (
    KEPT_MOST,
    LARGEST_MOST,
    LEFT_MOST,
    Contents,
    Entry,
    KeptSandbox,
    Left,
    Part,
)
from tercel.worker.walking import (
    TOO_MANY,
    Budget,
    measure,
    opened,
    shown,
    told_size,
    told_time,
)

DIRECTORIES = ("outputs", "values", "cache", "outgoing", "trash", "kept", "sandboxes")
"""In this order: the last ones are as large as tasks make them."""
SPOOL = frozenset({"spool", "spool.new"})
OWN = frozenset({"worker-id", "worker-id.new", "lock", "node.json", "node.json.new", "cgroups", "containers"})
LOGS_MOST = 5
"""Older ones that a process keeps beside its log."""
LEFT_AFTER_S = 3600.0
"""Removing takes a while, and so does telling the manager: what is younger is not said to be left."""
DIRECT_MOST = 50_000
"""Entries directly in a part, which are held at once."""
_KEPT = re.compile(r"(\d{1,16})\.(\d{1,16})\.(\d{1,18})", re.ASCII)


class Books(msgspec.Struct, frozen=True):
    """What the worker knows of its attempts."""

    held: frozenset[int] = frozenset()
    """Offered, under way, or not acknowledged."""
    reports: int = 0
    reports_since: float = 0.0
    lanes: dict[str, str] = {}
    """By the name of the directory among `sandboxes`: the task that runs there, as 37.4."""


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
