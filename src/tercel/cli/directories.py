"""The directories of workers, for people: see `tercel worker look`.

Names in them are what tasks made them, so they are told in plain characters only. The text of a file is given as it is where
it goes into another program; on a terminal, which would obey it, it is made plain too.
"""

import shlex
import sys
import time
from collections.abc import Sequence

from tercel.cli.screen import Screen, write_stdout
from tercel.cli.words import Cell, duration, pairs, plain, short, size, table
from tercel.wire.api_looking import DirectoryView, FileTail, FileView, PartView, SandboxView

OTHERS_MOST = 3
UNRECORDED = "not on record"
"""Of an attempt that the manager's books do not have, though the job is known: a cancelled one, mostly."""
WHAT = {
    "spool": "results that the manager has not acknowledged",
    "outputs": "large outputs, until the manager has them",
    "values": "kept for the next calls",
    "trash": "being removed",
    "kept": "sandboxes that were kept",
    "sandboxes": "of running tasks, or left by an earlier process",
    "own": "its name, its lock, its log",
    "other": "not Tercel's",
}


def tell_directory(screen: Screen, view: DirectoryView) -> None:
    now = time.time()
    screen.emit(view)
    facts = [
        ("worker", f"{view.worker} on {view.node}"),
        ("directory", view.dir),
        ("free", f"{size(view.free_bytes)} of {size(view.disk_bytes)}"),
        ("results", _results(view, now)),
        ("log", view.log or "none (--log)"),
    ]
    screen.tell(pairs(facts))
    if view.findings:
        screen.tell(["", *(f"! {plain(finding)}" for finding in view.findings)])
    else:
        screen.note("nothing here needs a look")
    rows = [_part(part, now) for part in view.parts if part.entries]
    if rows:
        headers = ("PART", "SIZE", "ENTRIES", "OLDEST", "LARGEST", "WHAT")
        screen.tell(["", *_fitted(headers, rows, screen.width)])
    if view.kept:
        screen.tell(["", *_kept(view, now, screen.width)])
    if view.left:
        screen.tell(["", *_left(view, now)])


def _results(view: DirectoryView, now: float) -> str:
    if not view.reports:
        return "all acknowledged"
    oldest = f", the oldest for {duration(now - view.reports_since)}" if view.reports_since else ""
    return f"{view.reports:,} not acknowledged{oldest}"


def _part(part: PartView, now: float) -> list[Cell]:
    largest = part.largest[0] if part.largest else None
    return [
        part.name,
        _size(part.size_bytes, part.cut),
        part.entries,
        _age(part.oldest_at, now),
        f"{largest.task or short(largest.name, 32)} ({size(largest.size_bytes)})"
        if largest is not None
        else "",
        WHAT.get(part.name, ""),
    ]


def _fitted(headers: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[str]:
    """Where a terminal is too narrow, without the last column: broken lines are no table."""
    whole = table(headers, rows)
    if not width or max(map(len, whole)) <= width:
        return whole
    return table(headers[:-1], [row[:-1] for row in rows])


def _kept(view: DirectoryView, now: float, width: int) -> list[str]:
    rows: list[Sequence[Cell]] = [
        (
            k.id,
            k.attempt,
            "nobody" if not k.known else k.owner if k.recorded else f"{k.owner} ({UNRECORDED})",
            _age(k.since, now),
            _size(k.size_bytes, k.cut),
            shlex.quote(k.path),
        )
        for k in view.kept
    ]
    return _fitted(("KEPT", "ATTEMPT", "OWNER", "FOR", "SIZE", "PATH"), rows, width)


def _left(view: DirectoryView, now: float) -> list[str]:
    rows = [
        (short(left.path, 80), size(left.size_bytes), _age(left.since, now), left.why) for left in view.left
    ]
    advice = dict.fromkeys((left.why, left.advice) for left in view.left)
    return [
        *table(("LEFT OVER", "SIZE", "FOR", "WHY"), rows),
        *(f"{plain(why)}: {plain(what)}" for why, what in advice),
    ]


def _size(size_bytes: int, cut: str) -> str:
    return f"> {size(size_bytes)}" if cut else size(size_bytes)


def _age(at: float, now: float) -> str:
    return duration(max(0.0, now - at)) if at else ""


# -- a task's files ---------------------------------------------------------------------------------------


def tell_sandbox(screen: Screen, view: SandboxView) -> None:
    now = time.time()
    screen.emit(view)
    what = "running" if view.running else "kept"
    since = f"{what} for {duration(max(0.0, now - view.since))}"
    facts = [
        ("task", f"{view.id}, attempt {view.attempt}, {since}"),
        ("directory", f"{view.worker}: {view.dir}"),
        ("kept too", _others(view)),
    ]
    screen.tell(pairs(facts))
    if view.files:
        rows = [(size(file.size_bytes), _age(file.changed_at, now), _name(file)) for file in view.files]
        screen.tell(["", *table(("SIZE", "CHANGED", "FILE"), rows)])
    else:
        screen.note("nothing is in it")
    if view.cut:
        screen.note(f"that is not all: {plain(view.cut)}")


def _others(view: SandboxView) -> str:
    """The newest of the other attempts: there may be a hundred, with numbers of sixteen digits."""
    others = [str(attempt) for attempt in reversed(view.kept) if attempt != view.attempt]
    if not others:
        return ""
    more = f" and {len(others) - OTHERS_MOST} more" if len(others) > OTHERS_MOST else ""
    return f"attempt {', '.join(others[:OTHERS_MOST])}{more} (--attempt)"


def _name(file: FileView) -> str:
    mark = {"directory": "/", "link": " (a link)", "other": " (no regular file)"}
    return file.path + mark.get(file.kind, "")


def tell_tail(screen: Screen, tail: FileTail) -> None:
    text = tail.data.decode("utf-8", "replace")
    screen.emit(
        {
            "worker": tail.worker,
            "path": tail.path,
            "size_bytes": tail.size_bytes,
            "offset": tail.offset,
            "changed_at": tail.changed_at,
            "text": text,
        }
    )
    if not screen.json:
        if sys.stdout.isatty():
            screen.tell([plain(line) for line in text.splitlines()])
        else:
            write_stdout(tail.data)
    if tail.offset:
        screen.note(f"the last {size(len(tail.data))} of {size(tail.size_bytes)}")
    elif not tail.data:
        screen.note("it is empty")
