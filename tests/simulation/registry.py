"""What the witness knows of files: what tasks left, and what the catalogue has of that.

A file is registered with the outcome of the task that made it, once, by the attempt that counts. What is run again has
nothing there. What has run well and is kept at a worker that is there is not run again.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tercel.core.changes import (
    AttemptLost,
    Change,
    Concluded,
    FileRegistered,
    FileRemoved,
    LeftRemoved,
    MadeUndone,
    Reopened,
)
from tercel.core.files import FileRow
from tercel.core.intervals import IntervalSet
from tercel.core.model import Lease
from tercel.core.reports import Report
from tercel.core.states import TaskState

if TYPE_CHECKING:
    from .world import World

Task = tuple[int, int]
_CONCERNED = (FileRegistered, FileRemoved, MadeUndone, LeftRemoved, Concluded, Reopened)


class Registry:
    """Of one view."""

    def __init__(self) -> None:
        self.files: dict[str, FileRow] = {}
        self.made: dict[Task, set[tuple[str, str]]] = {}
        """By task that has ended: the names and digests of what its report told."""
        self.set_aside: set[int] = set()
        """Attempts that were blocked, and have not been told to go on."""

    def copy(self) -> "Registry":
        twin = Registry()
        twin.files, twin.made, twin.set_aside = dict(self.files), dict(self.made), set(self.set_aside)
        return twin

    def apply(self, change: Change) -> None:
        match change:
            case FileRegistered(file):
                self.files.setdefault(file.name, file)
            case FileRemoved(name):
                self.files.pop(name, None)
            case MadeUndone(job, ranges):
                tasks = IntervalSet(ranges)
                self.files = {
                    n: row for n, row in self.files.items() if row.job != job or row.task not in tasks
                }
            case Concluded(outcome):
                self.made[outcome.report.job, outcome.report.task] = told_by(outcome.report)
            case Reopened(job, ranges):
                for number in IntervalSet(ranges):
                    self.made.pop((job, number), None)
            case AttemptLost(outcome) if outcome.state is TaskState.BLOCKED:
                self.set_aside.add(outcome.report.attempt)

    def of(self, task: Task) -> set[tuple[str, str]]:
        return {(row.name, row.digest) for row in self.files.values() if (row.job, row.task) == task}


def told_by(report: Report) -> set[tuple[str, str]]:
    return {(made.name or made.url, made.digest) for made in report.files}


def violations(before: Registry, changes: list[Change]) -> Iterator[str]:
    """In one batch: before it, and what it changes."""
    if not any(isinstance(change, _CONCERNED) for change in changes):
        return
    counts = {
        change.outcome.report.attempt: change.outcome for change in changes if isinstance(change, Concluded)
    }
    seen: set[tuple[int, str]] = set()
    known = before.copy()
    for change in changes:
        if isinstance(change, FileRegistered) and change.file.job:
            file = change.file
            if file.attempt not in counts:
                yield f"{file.name} is registered by attempt {file.attempt}, which does not count"
            if (file.attempt, file.name) in seen:
                yield f"{file.name} is registered twice by attempt {file.attempt}"
            seen.add((file.attempt, file.name))
            other = known.files.get(file.name)
            if other is not None and other.digest != file.digest:
                yield f"{file.name} is registered, and is another's: {other}"
        known.apply(change)
        if isinstance(change, LeftRemoved) and known.of((change.job, change.task)):
            yield f"{change.job}.{change.task} has files, and nothing of it is left"
    for outcome in counts.values():
        task = outcome.report.job, outcome.report.task
        told = told_by(outcome.report)
        if any((outcome.report.attempt, name) not in seen for name, _ in told):
            yield f"{task} has ended, and not all that it left is registered: {told}"
    for change in changes:
        if isinstance(change, Reopened):
            for number in IntervalSet(change.ranges):
                if (change.job, number) not in known.made and known.of((change.job, number)):
                    yield f"{change.job}.{number} is run again, and its files are in the catalogue"


def kept_at_hand(world: "World", attempt: int, name: str) -> bool:
    """Whether what an attempt left waits at a worker that is there, of which the manager has been told."""
    manager = world.manager
    holder = next((worker for worker in world.workers if worker.name == name), None)
    if manager is None or holder is None or not holder.up or not holder.welcomed:
        return False
    link = holder.link
    if link is None or link.dark or not link.welcomed or manager.links.get(name) is not link:
        return False
    return attempt in holder.agent.parcels.parked and attempt not in holder.agent.owed


def run_again(world: "World", lease: Lease, number: int, attempts: list[int], issued: dict[int, str]) -> str:
    """A task is offered; which of its earlier attempts would go on with what it left, if one would."""
    for attempt in attempts:
        if attempt in issued and kept_at_hand(world, attempt, issued[attempt]):
            return (
                f"{lease.job}.{number} is run again while {issued[attempt]} keeps what attempt {attempt} left"
            )
    return ""
