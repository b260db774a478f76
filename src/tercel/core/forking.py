"""A job that is replayed from a moment, with some things changed: which of its tasks keep their records, which run again.

    Past        what of a job's tasks had finished by then
    affected    which of those would run something else now
    fates       what runs again in all: what had not finished, what is affected, and whatever needs such

Failed and cancelled tasks have no result that anybody could build on: they run again.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tercel.core.changes import Edge
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import After, JobSpec
from tercel.core.points import CommandTemplate, item_values

SURROUNDINGS = ("cwd", "env", "task_id_argument", "isolate", "container", "inputs", "outputs")
"""Of a job: what all its tasks see, beside what each runs."""
RUN = ("argv", "line", "function", "grid", "template")

Ended = tuple[int, int, bool, float]
"""(task, attempt, whether it finished, when it ended)"""


class Past:
    """Takes the earlier attempts of a job's tasks, then the records of those that have ended.

    `at` None is now: then records are all that counts, whatever the clock said, and what was reopened has none.
    """

    def __init__(self, at: float | None) -> None:
        self._at = at
        self._earlier: dict[int, tuple[float, int, bool]] = {}
        """By task, the last that had ended by then."""
        self._kept = IntervalSet()

    def take_earlier(self, attempts: Iterable[Ended]) -> None:
        if self._at is None:
            return
        for task, attempt, finished, ended_at in attempts:
            if ended_at <= self._at:
                this = (ended_at, attempt, finished)
                self._earlier[task] = max(this, self._earlier.get(task, this))

    def take_records(self, records: Iterable[Ended]) -> None:
        found: list[Range] = []
        for task, _, finished, ended_at in records:
            if self._at is None or ended_at <= self._at:
                self._earlier.pop(task, None)
                if finished:
                    found.append((task, task))
        self._kept.update(IntervalSet(found))

    def chosen(self) -> dict[int, int]:
        """Tasks that had finished by then and have run since, or are to: which attempt was their record."""
        return {task: attempt for task, (_, attempt, finished) in self._earlier.items() if finished}

    def kept(self) -> IntervalSet:
        """All that had finished by then."""
        kept = IntervalSet((task, task) for task in self.chosen())
        kept.update(self._kept)
        return kept


# -- what is affected by a change -------------------------------------------------------------------------


def is_changed(old: JobSpec, new: JobSpec) -> bool:
    """Whether anything of what its tasks run is another. What they ask for, and how they are treated, is not meant."""
    return any(getattr(old, name) != getattr(new, name) for name in (*RUN, *SURROUNDINGS))


def affected(
    old: JobSpec, new: JobSpec, tasks: IntervalSet, texts: Iterable[tuple[int, str, str]] | None
) -> IntervalSet:
    """Those of the tasks that would run something else than they ran.

    `texts`, of a job of lines or items: (task, its line before, its line now), of all its tasks or more.
    """
    if any(getattr(old, name) != getattr(new, name) for name in SURROUNDINGS):
        return tasks.copy()
    if texts is not None:
        return _differing(old, new, tasks, texts)
    if not is_changed(old, new):
        return IntervalSet()
    if old.grid is None or new.grid != old.grid:
        return tasks.copy()
    before, now = CommandTemplate(old.argv, old.line), CommandTemplate(new.argv, new.line)
    return _some(
        task
        for task in tasks
        if before.command(point := old.grid.point(task), task) != now.command(point, task)
    )


def _differing(
    old: JobSpec, new: JobSpec, tasks: IntervalSet, texts: Iterable[tuple[int, str, str]]
) -> IntervalSet:
    if not new.template:
        return _some(task for task, was, now in texts if was != now and task in tasks)
    before, after = CommandTemplate(old.argv, old.line), CommandTemplate(new.argv, new.line)
    same = (old.argv, old.line) == (new.argv, new.line)

    def differs(task: int, was: str, now: str) -> bool:
        if was != now:  # a task can read all of its item, whatever of it stands in the command
            return True
        if same:
            return False
        values = item_values(now)
        return before.command(values, task) != after.command(values, task)

    return _some(task for task, was, now in texts if task in tasks and differs(task, was, now))


def _some(tasks: Iterable[int]) -> IntervalSet:
    return IntervalSet((task, task) for task in tasks)


# -- what runs again --------------------------------------------------------------------------------------


class Copied(msgspec.Struct, frozen=True):
    """A job that is copied."""

    id: int
    ranges: tuple[Range, ...]
    kept: IntervalSet
    """Tasks that had finished."""
    affected: IntervalSet
    after: tuple[After, ...] = ()
    edges: Sequence[Edge] = ()


class Fate(msgspec.Struct, frozen=True):
    """Why tasks of a copy run again: each task for one reason."""

    unfinished: IntervalSet
    changed: IntervalSet
    needy: IntervalSet
    """They need one that runs again."""

    def again(self) -> IntervalSet:
        every = self.unfinished.copy()
        every.update(self.changed)
        every.update(self.needy)
        return every


def fates(jobs: Iterable[Copied]) -> dict[int, Fate]:
    """By job. What is needed comes before what needs it, as it does by number; other jobs do not run again."""
    found: dict[int, Fate] = {}
    again: dict[int, IntervalSet] = {}
    for job in jobs:
        every = IntervalSet(job.ranges)
        unfinished = every.copy()
        unfinished.difference_update(job.kept)
        changed = job.kept.intersection(job.affected)
        running = unfinished.copy()
        running.update(changed)
        needy = _needy(job, every, running, again)
        running.update(needy)
        again[job.id] = running
        found[job.id] = Fate(unfinished, changed, needy)
    return found


def _needy(
    job: Copied, every: IntervalSet, running: IntervalSet, again: Mapping[int, IntervalSet]
) -> IntervalSet:
    """Tasks beside those that run again anyway."""
    reached = IntervalSet()
    for after in job.after:
        behind = again.get(after.job, IntervalSet())
        if after.tasks:
            behind = behind.intersection(IntervalSet(after.tasks))
        if behind:
            reached.update(behind.intersection(every) if after.each else every)
    reached.update(_some(_reached_by_edges(job, again)))
    begun = running.copy()
    begun.update(reached)
    reached.update(_some(_downstream(job, begun)))
    reached.difference_update(running)
    return reached


def _reached_by_edges(job: Copied, again: Mapping[int, IntervalSet]) -> Iterator[int]:
    for task, other, first, last in job.edges:
        behind = again.get(other) if other != job.id else None
        if behind and (
            first in behind if first == last else behind.intersection(IntervalSet([(first, last)]))
        ):
            yield task


def _downstream(job: Copied, begun: IntervalSet) -> Iterator[int]:
    """Tasks that need others of the same job that run again, and those that need them."""
    arrows: dict[int, list[int]] = defaultdict(list)
    for task, other, first, last in job.edges:
        if other == job.id:
            for needed in range(first, last + 1):
                arrows[needed].append(task)
    todo = [needed for needed in arrows if needed in begun]
    seen = set(todo)
    while todo:
        for task in arrows.get(todo.pop(), ()):
            if task not in seen:
                seen.add(task)
                todo.append(task)
                yield task
