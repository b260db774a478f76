"""What a rollback undoes: from how jobs stand to a plan. Nothing is changed here.

    chosen tasks that have ended --> back at a checkpoint, and with them
        what finished using their results, and so on           its inputs are undone
        what was skipped because of them, and so on            it waits again
    chosen ones that need something else which did not end as it should stay as they are
    what is under way and is chosen, or uses results that are undone, must be cancelled first

A checkpoint is a committed stage of a task. There are two until data is staged: `accepted`, and its end.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tercel.core.changes import Edge
from tercel.core.graph import edges_of
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import After, AfterKind, JobRow, OnFailure
from tercel.core.states import Checkpoint


def healthy(asked: Checkpoint, rows: Iterable[JobRow]) -> Checkpoint:
    """The last checkpoint not after the one asked for that tasks of these jobs can be resumed from.

    What was brought for a task stays in its worker's cache, and is checked when it is used again. A job that reads nothing has
    nothing staged.
    """
    stages = all(row.spec.inputs for row in rows)
    return asked if stages else Checkpoint.ACCEPTED


class Standing(msgspec.Struct):
    """How the tasks of a job stand; those in none of these rest."""

    row: JobRow
    finished: IntervalSet
    failed: IntervalSet
    cancelled: IntervalSet
    skipped: IntervalSet
    """Some of the cancelled."""
    under_way: IntervalSet
    edges: Sequence[Edge] = ()

    @property
    def ended(self) -> IntervalSet:
        tasks = self.finished.copy()
        tasks.update(self.failed)
        tasks.update(self.cancelled)
        return tasks


class Part(msgspec.Struct):
    """What is undone of one job."""

    chosen: IntervalSet
    used: IntervalSet
    """Finished, using what is undone."""
    skipped: IntervalSet
    """Wait again, for what is undone."""

    @property
    def tasks(self) -> IntervalSet:
        tasks = self.chosen.copy()
        tasks.update(self.used)
        tasks.update(self.skipped)
        return tasks


class Plan(msgspec.Struct):
    parts: dict[int, Part]
    """By job, ascending; none of them empty."""
    in_the_way: dict[int, IntervalSet]
    """Under way, and would have to be cancelled."""
    hopeless: dict[int, IntervalSet]
    """Chosen, and need something which has not ended as it should: they stay as they are."""


def plan(chosen: Mapping[int, IntervalSet], known: Mapping[int, Standing], *, only: bool = False) -> Plan:
    """`known`: all that is chosen, all that needs any of it, and so on. `only`: what used its results is left alone."""
    return _Planning(chosen, known, only).run()


Arrow = tuple[int, int, int, int]
"""Tasks first to last of a job are needed by a job's task."""


class _Arrows:
    """Onto the tasks of one job, to be found by those.

    By level, which is about how many tasks an arrow is about, so that those which reach a task begin not far before it. None is
    looked at twice for one question, and none is taken apart: a hundred thousand may point at the same thousand tasks.
    """

    def __init__(self, arrows: Iterable[Arrow]) -> None:
        levels: dict[int, list[Arrow]] = {}
        for arrow in arrows:
            levels.setdefault((arrow[1] - arrow[0]).bit_length(), []).append(arrow)
        self._levels = [((1 << level) - 1, sorted(found)) for level, found in levels.items()]

    def behind(self, tasks: IntervalSet) -> Iterable[tuple[int, IntervalSet]]:
        """Who needs any of these, by job."""
        found: dict[int, list[Range]] = {}
        ranges = tasks.ranges()
        for reach, arrows in self._levels:
            at, end = 0, len(arrows)
            for first, last in ranges:
                # What begins before the range before ended, and reaches this one, was found there.
                at = bisect_left(arrows, (first - reach,), at)
                while at < end and arrows[at][0] <= last:
                    _, until, job, task = arrows[at]
                    if until >= first:
                        found.setdefault(job, []).append((task, task))
                    at += 1
                if at == end:
                    break
        return [(job, IntervalSet(waiting)) for job, waiting in found.items()]


class _Planning:
    def __init__(self, chosen: Mapping[int, IntervalSet], known: Mapping[int, Standing], only: bool) -> None:
        self.known = known
        self.only = only
        self.asked = {job: tasks.intersection(known[job].ended) for job, tasks in chosen.items()}
        self.undone = {job: IntervalSet() for job in known}
        self.used = {job: IntervalSet() for job in known}
        self.in_the_way = {job: IntervalSet() for job in known}
        for job, tasks in chosen.items():
            self.in_the_way[job].update(tasks.intersection(known[job].under_way))
        self.needs: dict[int, list[tuple[int, After]]] = {}
        """By job: who needs it as a whole, or task by task."""
        self.edges: dict[int, list[Arrow]] = {job: [] for job in known}
        """By job: which single tasks need some of it ..."""
        self.arrows: dict[int, _Arrows] = {}
        """... and the same, once it is asked for."""
        for job, standing in known.items():
            for after in standing.row.spec.after:
                self.needs.setdefault(after.job, []).append((job, after))
            for task, other, first, last in standing.edges:
                if other in known:
                    self.edges[other].append((first, last, job, task))

    def run(self) -> Plan:
        todo: dict[int, IntervalSet] = {}
        for job, tasks in self.asked.items():
            self._undo(job, tasks, todo)
        while todo:
            job = min(todo)  # those that need others mostly come after them
            tasks = todo.pop(job)
            for other, behind in self._behind(job, tasks):
                self._reach(other, behind, todo)
        return self._plan()

    def _reach(self, job: int, behind: IntervalSet, todo: dict[int, IntervalSet]) -> None:
        """Something that these tasks need is undone."""
        standing = self.known[job]
        self.in_the_way[job].update(behind.intersection(standing.under_way))
        if not self.only:
            used = behind.intersection(standing.finished)
            used.difference_update(self.undone[job])
            self.used[job].update(used)
            self._add(job, used, todo)
        waiting = behind.intersection(standing.skipped)
        waiting.update(behind.intersection(self.asked.get(job, IntervalSet())))
        self._undo(job, waiting, todo)

    def _undo(self, job: int, tasks: IntervalSet, todo: dict[int, IntervalSet]) -> None:
        """Those of them that would have all they need, or may have it yet."""
        fresh = tasks.copy()
        fresh.difference_update(self.undone[job])
        fresh.difference_update(self._broken(job, fresh))
        self._add(job, fresh, todo)

    def _add(self, job: int, tasks: IntervalSet, todo: dict[int, IntervalSet]) -> None:
        if tasks:
            self.undone[job].update(tasks)
            todo.setdefault(job, IntervalSet()).update(tasks)

    def _behind(self, job: int, tasks: IntervalSet) -> Iterable[tuple[int, IntervalSet]]:
        """Who needs any of these."""
        for other, after in self.needs.get(job, ()):
            scope = self._scope(after, other).intersection(tasks)
            if scope:
                yield other, scope if after.each else IntervalSet(self.known[other].row.ranges)
        if self.edges[job]:
            if job not in self.arrows:
                self.arrows[job] = _Arrows(self.edges[job])
            yield from self.arrows[job].behind(tasks)

    def _scope(self, after: After, job: int) -> IntervalSet:
        """The tasks that an After of a job is about."""
        scope = IntervalSet(self.known[after.job].row.ranges)
        if after.tasks:
            scope = scope.intersection(IntervalSet(after.tasks))
        return scope.intersection(IntervalSet(self.known[job].row.ranges)) if after.each else scope

    def _broken(self, job: int, tasks: IntervalSet) -> IntervalSet:
        """Those that need something which has not ended as it should, and is not undone."""
        broken = IntervalSet()
        standing = self.known[job]
        for after in standing.row.spec.after if tasks else ():
            if after.job in self.known:  # what is not known ended as it should, and was forgotten
                broken.update(self._broken_by(after, job, tasks))
        bad: dict[int, IntervalSet] = {}
        for task, other, first, last in edges_of(standing, tasks):
            if other not in bad:
                bad[other] = self._unsuccessful(other)
            if IntervalSet([(first, last)]).intersection(bad[other]):
                broken.add(task)
        return broken

    def _broken_by(self, after: After, job: int, tasks: IntervalSet) -> IntervalSet:
        needed, scope = self.known[after.job], self._scope(after, job)
        kind = after.kind
        if kind is AfterKind.OK and needed.row.spec.on_failure is OnFailure.RUN:
            kind = AfterKind.ANY
        if kind is AfterKind.ANY:
            return IntervalSet()
        if kind is AfterKind.OK:
            bad = scope.intersection(self._unsuccessful(after.job))
            return bad.intersection(tasks) if after.each else (tasks.copy() if bad else IntervalSet())
        good = scope.intersection(needed.finished)
        good.difference_update(self.undone[after.job])
        if after.each:
            return good.intersection(tasks)
        return tasks.copy() if len(good) == len(scope) else IntervalSet()

    def _unsuccessful(self, job: int) -> IntervalSet:
        """Those of its tasks whose end is bad for single tasks that need them."""
        if job not in self.known or self.known[job].row.spec.on_failure is OnFailure.RUN:
            return IntervalSet()
        bad = self.known[job].failed.copy()
        bad.update(self.known[job].cancelled)
        bad.difference_update(self.undone[job])
        return bad

    def _plan(self) -> Plan:
        parts: dict[int, Part] = {}
        hopeless: dict[int, IntervalSet] = {}
        for job in sorted(self.known):
            asked = self.asked.get(job, IntervalSet())
            chosen = self.undone[job].intersection(asked)
            used = self.used[job]
            used.difference_update(chosen)
            skipped = self.undone[job].copy()
            skipped.difference_update(chosen)
            skipped.difference_update(used)
            if self.undone[job]:
                parts[job] = Part(chosen, used, skipped)
            left = asked.copy()
            left.difference_update(chosen)
            if left:
                hopeless[job] = left
        in_the_way = {job: tasks for job, tasks in sorted(self.in_the_way.items()) if tasks}
        return Plan(parts, in_the_way, hopeless)
