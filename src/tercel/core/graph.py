"""What tasks wait for: needs between jobs, and arrows between single tasks.

    Need     of a whole job (`After`): every task of it for all of some tasks of another, or task i for task i
    arrows   from a task to those that wait for it, where each has needs of its own (a graph of tasks, futures)

A task waits while any of its needs is not met. Needs are kept at the job that is needed, so that the end of a task
costs what waits for it and nothing else. What has ended before is looked at once, when a job is attached.

A need that can no longer be met is *broken*: the tasks behind it are skipped. That may break further needs; `Machine`
walks them one after the other, however long the chain.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Protocol

from tercel.core.changes import Edge
from tercel.core.intervals import IntervalSet, Range
from tercel.core.ledger import Job
from tercel.core.model import After, AfterKind, OnFailure

Find = Callable[[int], Job | None]
"""A job, also one that has ended."""


class Need:
    """One After of a job whose needed tasks have not all ended."""

    __slots__ = ("after", "job", "left", "needed")

    def __init__(self, after: After, job: Job, needed: Job) -> None:
        self.after = after
        self.job = job
        self.needed = needed
        self.left = self._scope()
        """Tasks of `needed` that have not ended as they should."""

    @property
    def kind(self) -> AfterKind:
        if self.after.kind is AfterKind.OK and self.needed.row.spec.on_failure is OnFailure.RUN:
            return AfterKind.ANY
        return self.after.kind

    def hear(self, finished: IntervalSet, unsuccessful: IntervalSet) -> tuple[IntervalSet, IntervalSet]:
        """Tasks of `needed` have ended. Returns those of `job` that need no longer wait for this, and the broken ones."""
        good, bad = self.left.intersection(finished), self.left.intersection(unsuccessful)
        if self.kind is AfterKind.OK:
            self.left.difference_update(good)
            # Broken ones stay in `left`: should they be retried, all is as before.
            return self._behind(good), self._behind_broken(bad)
        self.left.difference_update(good)
        self.left.difference_update(bad)
        if self.kind is AfterKind.ANY:
            good.update(bad)
            return self._behind(good), IntervalSet()
        if self.after.each:
            return bad, good
        if self.left:
            return IntervalSet(), IntervalSet()
        whole = IntervalSet(self.job.row.ranges)
        return (whole, IntervalSet()) if self._any_failed() else (IntervalSet(), whole)

    def _any_failed(self) -> bool:
        """As things stand at the end: a failure that was retried meanwhile is none."""
        scope, needed = self._scope(), self.needed
        return bool(scope.intersection(needed.failed)) or bool(scope.intersection(needed.cancelled))

    def reopened(self, tasks: IntervalSet) -> None:
        """Tasks of `needed` are to run again, however they had ended."""
        self.left.update(self._scope().intersection(tasks))

    def waits(self, task: int) -> bool:
        return task in self.left if self.after.each else bool(self.left)

    def _scope(self) -> IntervalSet:
        """The tasks of `needed` that matter here."""
        scope = IntervalSet(self.needed.row.ranges)
        if self.after.tasks:
            scope = scope.intersection(IntervalSet(self.after.tasks))
        if self.after.each:
            scope = scope.intersection(IntervalSet(self.job.row.ranges))
        return scope

    def _behind(self, ended: IntervalSet) -> IntervalSet:
        if self.after.each:
            return ended
        return IntervalSet() if self.left else IntervalSet(self.job.row.ranges)

    def _behind_broken(self, bad: IntervalSet) -> IntervalSet:
        if self.after.each or not bad:
            return bad
        return IntervalSet(self.job.row.ranges)


class Attached:
    """What became of the needs of a job when it was looked at: which tasks wait, and which never can run."""

    __slots__ = ("broken", "waiting")

    def __init__(self) -> None:
        self.waiting = IntervalSet()
        self.broken: list[tuple[IntervalSet, str]] = []
        """Tasks, and what they need that will not end as it should."""


def attach(job: Job, edges: Sequence[Edge], tasks: IntervalSet, find: Find) -> Attached:
    """Register the needs of these tasks of a job with the jobs they need."""
    found = Attached()
    for after in job.row.spec.after:
        needed = find(after.job)
        if needed is None:
            found.broken.append((tasks.copy(), f"job {after.job}, which is not known any more"))
            continue
        _attach_need(Need(after, job, needed), tasks, found)
    waiting: list[Range] = []
    watched = edges if len(tasks) == job.task_count else [edge for edge in edges if edge[0] in tasks]
    for other, group in groupby(watched, key=itemgetter(1)):
        if (needed := find(other)) is not None:
            _attach_edges(job, needed, group, found, waiting)
            continue
        for edge in group:
            alone = IntervalSet([(edge[0], edge[0])])
            found.broken.append((alone, f"job {other}, which is not known any more"))
    found.waiting.update(IntervalSet(waiting))
    return found


def _attach_need(need: Need, tasks: IntervalSet, found: Attached) -> None:
    needed = need.needed
    if needed.ended_count:
        unsuccessful = needed.failed.copy()
        unsuccessful.update(needed.cancelled)
        _, broken = need.hear(needed.finished, unsuccessful)
        if broken := broken.intersection(tasks):
            found.broken.append((broken, why_broken(needed, unsuccessful, need)))
    if need.left:
        needed.watchers[need] = None
        need.job.after[need] = None
        needed.dependents[need.job.id] = need.job
        if need.after.each:
            found.waiting.update(need.left.intersection(tasks))
        else:
            found.waiting.update(tasks)


def _attach_edges(
    job: Job, needed: Job, edges: Iterable[Edge], found: Attached, waiting: list[Range]
) -> None:
    """Who waits is gathered in `waiting`: a hundred thousand edges are joined at once."""
    runs_anyway = needed.row.spec.on_failure is OnFailure.RUN
    begun = needed.ended_count > 0
    arrows, unmet = needed.arrows, job.unmet
    for task, _, first, last in edges:
        waits = (job.id, task)
        for number in range(first, last + 1):
            if begun and number in needed.finished:
                continue
            if begun and (number in needed.failed or number in needed.cancelled):
                if runs_anyway:
                    continue
                reason = f"{needed.id}.{number}, which {_how(needed, number)}"
                found.broken.append((IntervalSet([(task, task)]), reason))
                # It is an arrow all the same: should that task be retried, this one waits for it again.
            behind = arrows.get(number)
            if behind is None:
                behind = arrows[number] = {}
            if waits not in behind:  # said twice, it is one arrow all the same
                behind[waits] = job
                unmet[task] = unmet.get(task, 0) + 1
            needed.dependents[job.id] = job
            waiting.append((task, task))


def why_broken(needed: Job, unsuccessful: IntervalSet, need: Need) -> str:
    """For people: which task it was."""
    if need.kind is AfterKind.NOTOK:
        if need.after.each:
            return f"a failure of the task of the same number of job {needed.id}, which finished"
        return f"a failure of job {needed.id}, all of which finished"
    culprits = need.left.intersection(unsuccessful)
    if not culprits:
        return f"job {needed.id}, which ended otherwise"
    first = culprits.first()
    if need.after.each and len(culprits) > 1:  # one sentence for all that are behind them, true of each
        all_failed = len(culprits.intersection(needed.failed)) == len(culprits)
        how = "failed" if all_failed else "did not finish"
        return f"the task of the same number of job {needed.id}, which {how}"
    others = f" (and {len(culprits) - 1:,} more)" if len(culprits) > 1 else ""
    return f"{needed.id}.{first}, which {_how(needed, first)}{others}"


def _how(job: Job, task: int) -> str:
    """It ended, other than well."""
    if task in job.failed:
        return "failed"
    return "was skipped" if task in job.skipped else "was cancelled"


def detach(job: Job, find: Find) -> set[int]:
    """The job has ended: nobody needs to tell it anything any more. Returns which jobs it had to do with."""
    for need in job.after:
        del need.needed.watchers[need]
    job.after.clear()
    if job.unmet:
        _remove_arrows(job, find)
        job.unmet.clear()
    needed = {after.job for after in job.row.spec.after} | {edge[1] for edge in job.edges}
    needed.discard(job.id)
    return needed


def _remove_arrows(job: Job, find: Find) -> None:
    """One by one: what others have to do with the same tasks costs nothing here."""
    for task, other, first, last in job.edges:
        needed = job if other == job.id else find(other)
        if task in job.unmet and needed is not None:
            for number in range(first, last + 1):
                if (behind := needed.arrows.get(number)) is not None:
                    behind.pop((job.id, task), None)


def hopeless(job: Job, tasks: IntervalSet, find: Find) -> IntervalSet:
    """Those that could not run if all these were retried together: what they need is not among them."""
    lost = IntervalSet()
    for chosen, _ in broken(job, tasks, find, tasks):
        lost.update(chosen)
    if not lost or not job.edges or job.row.spec.on_failure is OnFailure.RUN:
        return lost
    behind: dict[int, list[int]] = {}
    for task, other, first, last in edges_of(job, tasks):
        if other == job.id:
            for number in range(first, last + 1):
                behind.setdefault(number, []).append(task)
    todo = list(lost)
    while todo:
        for task in behind.get(todo.pop(), ()):
            if task not in lost:
                lost.add(task)
                todo.append(task)
    return lost


def broken(
    job: Job, tasks: IntervalSet, find: Find, retried: IntervalSet | None = None
) -> list[tuple[IntervalSet, str]]:
    """Those of the tasks that need something which will not end as it should, and what that is.

    Tasks of this same job that are `retried` may still end as they should.
    """
    found: list[tuple[IntervalSet, str]] = []
    for after in job.row.spec.after:
        needed = find(after.job)
        if needed is None:
            continue  # it ended as it should, and was forgotten
        need = Need(after, job, needed)
        unsuccessful = needed.failed.copy()
        unsuccessful.update(needed.cancelled)
        _, behind = need.hear(needed.finished, unsuccessful)
        if behind := behind.intersection(tasks):
            found.append((behind, why_broken(needed, unsuccessful, need)))
    for task, other, first, last in edges_of(job, tasks) if job.edges else ():
        needed = find(other)
        if needed is None or needed.row.spec.on_failure is OnFailure.RUN:
            continue
        span = IntervalSet([(first, last)])
        culprits = span.intersection(needed.failed)
        culprits.update(span.intersection(needed.cancelled))
        if needed is job and retried is not None:
            culprits.difference_update(retried)
        if culprits:
            reason = f"{other}.{culprits.first()}, which {_how(needed, culprits.first())}"
            found.append((IntervalSet([(task, task)]), reason))
    return found


class Edged(Protocol):
    @property
    def edges(self) -> Sequence[Edge]: ...


def edges_of(job: Edged, tasks: IntervalSet) -> Iterable[Edge]:
    """What these tasks need. Edges are kept by task."""
    for first, last in tasks.ranges():
        at = bisect_left(job.edges, (first,), key=lambda edge: edge[:1])
        while at < len(job.edges) and job.edges[at][0] <= last:
            yield job.edges[at]
            at += 1


def find_cycle(successors: Callable[[int], Iterable[int]], nodes: Iterable[int]) -> list[int]:
    """Nodes of a cycle in order, the first one again at the end; empty if there is none. Linear, and without recursion."""
    done: set[int] = set()
    for start in nodes:
        if start in done:
            continue
        path = [start]
        on_path = {start}
        todo = [iter(successors(start))]
        while todo:
            node = next(todo[-1], None)
            if node is None:
                todo.pop()
                left = path.pop()
                on_path.discard(left)
                done.add(left)
            elif node in on_path:
                return [*path[path.index(node) :], node]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                todo.append(iter(successors(node)))
    return []


def check_edges(edges: Sequence[Edge], own: int, ranges: Sequence[Range]) -> list[int]:
    """A cycle among the tasks of one job, if there is one. `own` is how its edges name the job itself."""
    inside: dict[int, list[Range]] = {}
    for task, job, first, last in edges:
        if job == own:
            inside.setdefault(task, []).append((first, last))
    known = IntervalSet(ranges)

    def needed(task: int) -> Iterable[int]:
        return (n for first, last in inside.get(task, ()) for n in range(first, last + 1) if n in known)

    return find_cycle(needed, inside)
