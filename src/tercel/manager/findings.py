"""What is worth a look first in a worker's directory. Pure: numbers in, sentences out, the most urgent first."""

import shlex

from tercel.core.sizes import duration, least_free, size
from tercel.wire.api_looking import DirectoryView, PartView

TIGHT_SHARE = 0.10
"""Free: below that it is told."""
LARGE_SHARE = 0.10
"""Of the disk: what takes so much of it is told ..."""
LARGE_BYTES = 10 * 2**30
"""... and what takes so much, however large the disk is."""
LATE_S = 60.0
"""A result that waits so long waits for the manager."""
MANY_REPORTS = 1000

WHY = {
    "output": "the output of an attempt that nobody waits for",
    "sandbox": "a sandbox of an earlier process of this worker",
    "trash": "in the trash for long: it cannot be removed",
    "kept": "among the kept sandboxes, and none of a task",
    "foreign": "not put there by Tercel",
}
_AT_START = "it is removed when the worker starts again; if it is back after that, something is mounted there or may not be changed"
ADVICE = {
    "output": _AT_START,
    "sandbox": _AT_START,
    "trash": _AT_START,
    "kept": "remove it by hand if it is of no use to anybody",
    "foreign": "Tercel leaves it alone: remove it by hand if it is of no use to anybody",
}
_LARGE = {
    "kept": "{count} kept {sandboxes} use {size}: `rm -r` those that were looked at, or submit without --sandbox keep",
    "sandboxes": "sandboxes in use take {size}: `tercel worker look {worker} {task}` lists a task's files",
    "outputs": "large outputs that wait for the manager take {size}",
    "values": "values kept for the next calls take {size}: --cache-size says how much they may",
    "trash": "{size} is in the trash and being removed",
    "other": "{size} in its directory is not Tercel's",
}


def findings(view: DirectoryView, now: float) -> list[str]:
    return [*_disk(view), *_reports(view, now), *_large(view), *_unowned(view), *_uncounted(view)]


def _disk(view: DirectoryView) -> list[str]:
    total, free = view.disk_bytes, view.free_bytes
    if free < least_free(total):
        return [f"the disk is nearly full: {size(free)} of {size(total)} free, so it takes no tasks"]
    if free < TIGHT_SHARE * total:
        return [f"the disk is getting full: {size(free)} of {size(total)} free"]
    return []


def _reports(view: DirectoryView, now: float) -> list[str]:
    waited_s = now - view.reports_since if view.reports_since else 0.0
    if not view.reports or (view.reports < MANY_REPORTS and waited_s < LATE_S):
        return []
    reports = "1 result" if view.reports == 1 else f"{view.reports:,} results"
    return [
        f"the spool holds {reports}, the oldest for {duration(waited_s)}: the manager was away, or takes long to save them"
    ]


def _large(view: DirectoryView) -> list[str]:
    """Those that take much, the largest first."""
    most = min(LARGE_BYTES, LARGE_SHARE * view.disk_bytes)
    large = [part for part in view.parts if part.name in _LARGE and part.size_bytes >= max(1, most)]
    return [_told(part, view) for part in sorted(large, key=lambda part: -part.size_bytes)]


def _told(part: PartView, view: DirectoryView) -> str:
    told = f"at least {size(part.size_bytes)}" if part.cut else size(part.size_bytes)
    count = len(view.kept)
    return _LARGE[part.name].format(
        count=count,
        sandboxes="sandbox" if count == 1 else "sandboxes",
        size=told,
        worker=shlex.quote(view.worker),
        task=next((entry.task for entry in part.largest if entry.task), "JOB.TASK"),
    )


def _unowned(view: DirectoryView) -> list[str]:
    told = []
    if orphans := [kept for kept in view.kept if not kept.known]:
        one = len(orphans) == 1
        whose = "1 kept sandbox is of a job" if one else f"{len(orphans):,} kept sandboxes are of jobs"
        used = size(sum(kept.size_bytes for kept in orphans))
        told.append(
            f"{whose} that this manager does not know (any more) ({used}): `rm -r` {'it' if one else 'them'} on {view.node}"
        )
    if doubtful := [kept for kept in view.kept if kept.known and not kept.recorded]:
        one = len(doubtful) == 1
        whose = (
            "1 kept sandbox is of an attempt" if one else f"{len(doubtful):,} kept sandboxes are of attempts"
        )
        used = size(sum(kept.size_bytes for kept in doubtful))
        told.append(
            f"{whose} not on record, as cancelled ones are ({used}): whoever owns the job may still want {'it' if one else 'them'}"
        )
    if view.left:
        things = "1 thing is" if len(view.left) == 1 else f"{len(view.left):,} things are"
        told.append(
            f"{things} left over that no attempt needs: {size(sum(left.size_bytes for left in view.left))}"
        )
    return told


def _uncounted(view: DirectoryView) -> list[str]:
    cut = [f"{part.name} ({part.cut})" for part in view.parts if part.cut]
    return [f"not all could be counted: {', '.join(cut)}"] if cut else []
