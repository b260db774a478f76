"""Tasks that wait: for others, for their next try, or for more memory.

ready --wait--> waiting --meet--> ready          needs, pauses between tries, and the growth of what their job asks for
                   \\--skip--> cancelled          a need that cannot be met any more; and so on down the graph
"""

import heapq
import math
from collections import deque
from collections.abc import Mapping

import msgspec

from tercel.core import graph
from tercel.core.accounts import Settings
from tercel.core.blocked import Blocked
from tercel.core.changes import JobRevised, Loaded, MadeUndone, Noted, Reopened, SpanConcluded
from tercel.core.conditions import Postponed
from tercel.core.effects import Progressed, Revised
from tercel.core.intervals import IntervalSet, Range
from tercel.core.ledger import Job
from tercel.core.model import MAX_MEM_BYTES, JobSpec, OnFailure
from tercel.core.reports import End
from tercel.core.states import TaskEvent, TaskState, next_state

NAMED_MOST = 10_000


class Waiting(Blocked):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self._delays: list[tuple[float, int, int]] = []
        """When the next try of a task is due, of which job and task."""
        self._outgrowing: dict[int, Job] = {}
        """Jobs with tasks that wait for more memory."""
        needed = list(self.past)
        for id in needed:  # the first that ends at once must not take along what the next one needs
            self.pin(id)
        for job in list(self.jobs.values()):
            self._attach(job, now)
        for id in needed:
            self.unpin(id)

    def _attach(self, job: Job, now: float) -> None:
        """Find out which of its resting tasks wait for something, or are held.

        What it needs is watched for the ended ones too, unless they finished: they may be retried.
        """
        broken = self._attach_needs(job) if job.edges or job.row.spec.after else []
        if job.held:
            move(job.ready, job.paused, job.held)
            move(job.waiting, job.paused, job.held)
        if broken:
            self._skip_all(job, broken, now)
        self._settle_or_end(job, now)

    def _attach_needs(self, job: Job) -> list[tuple[IntervalSet, str]]:
        """Returns which of its tasks never can run, and why."""
        watched = _unfinished(job)
        if job.flights:  # these have had all they need, whatever became of that since
            watched.difference_update(IntervalSet((task, task) for task in sorted(job.flights)))
        found = graph.attach(job, job.edges, watched, self.find)
        move(job.ready, job.waiting, found.waiting)
        for tasks, _ in found.broken:
            move(job.ready, job.waiting, tasks)  # if for nothing else, then for their end
        return found.broken

    # -- the end of what others wait for ------------------------------------------------------------------

    def _spread(self, job: Job, tasks: IntervalSet, now: float) -> None:
        """Tasks of a job have ended: whoever waited for them goes on, or is skipped."""
        if job.dependents:
            skips = _Skips()
            skips.todo.append((job, tasks, ""))
            self._spread_all(skips, now)

    def _skip_all(self, job: Job, broken: list[tuple[IntervalSet, str]], now: float) -> None:
        skips = _Skips()
        for tasks, why in broken:
            skips.add(job, tasks, why)
        self._spread_all(skips, now)

    def _spread_all(self, skips: "_Skips", now: float) -> None:
        """From job to job, as far as it goes."""
        todo = skips.todo
        touched: dict[int, Job] = {}
        while todo:
            job, tasks, why = todo.popleft()
            finished = tasks.intersection(job.finished)
            unsuccessful = IntervalSet()
            if len(finished) < len(tasks):
                unsuccessful.update(tasks)
                unsuccessful.difference_update(finished)
            for need in list(job.watchers):
                met, broken = need.hear(finished, unsuccessful)
                touched[need.job.id] = need.job
                if met:
                    self._meet(need.job, met)
                if broken:
                    skips.add(need.job, broken, why or graph.why_broken(job, unsuccessful, need))
                if not need.left:
                    del job.watchers[need]
                    del need.job.after[need]
            if job.arrows:
                self._follow_arrows(job, finished, unsuccessful, why, skips, touched)
        for job, tasks, why in skips.all():
            touched[job.id] = job
            for start, end in tasks.ranges():
                reason = f"skipped: it needs {why}"
                self.changes.append(
                    SpanConcluded(job.id, start, end, TaskState.CANCELLED, now, reason, End.SKIPPED)
                )
            self.effects.append(Progressed(job.id, named(tasks), []))
        for other in touched.values():
            if other.id in self.jobs:
                self._settle_or_end(other, now)

    def _follow_arrows(
        self,
        job: Job,
        finished: IntervalSet,
        unsuccessful: IntervalSet,
        why: str,
        skips: "_Skips",
        touched: dict[int, Job],
    ) -> None:
        good = finished
        if job.row.spec.on_failure is OnFailure.RUN:
            good = finished.copy()
            good.update(unsuccessful)
        free: dict[int, tuple[Job, list[Range]]] = {}
        for task in members_among(job.arrows, good):
            for (_, waiting), other in job.arrows.pop(task).items():
                left = other.unmet.get(waiting, 0) - 1
                if left > 0:
                    other.unmet[waiting] = left
                elif left == 0:
                    del other.unmet[waiting]
                    free.setdefault(other.id, (other, []))[1].append((waiting, waiting))
        for other, tasks in free.values():
            touched[other.id] = other
            self._meet(other, IntervalSet(tasks))
        if job.row.spec.on_failure is not OnFailure.RUN:
            # Their arrows stay: should they be retried, all is as before.
            for task in members_among(job.arrows, unsuccessful):
                how = "failed" if task in job.failed else "was cancelled"
                for (_, waiting), other in job.arrows[task].items():
                    skips.add(
                        other, IntervalSet([(waiting, waiting)]), why or f"{job.id}.{task}, which {how}"
                    )

    def _meet(self, job: Job, tasks: IntervalSet) -> None:
        """One of their needs is met: those that wait for nothing else are ready."""
        tasks = tasks.intersection(job.waiting)
        tasks.difference_update(self._unmet(job, tasks))
        if tasks and next_state(TaskState.WAITING, TaskEvent.MEET) is TaskState.READY:
            job.waiting.difference_update(tasks)
            job.ready.update(tasks)
            self._gate(job, tasks, self._clock.now)

    def _unmet(self, job: Job, tasks: IntervalSet) -> IntervalSet:
        """Those of the tasks that have something to wait for."""
        unmet = IntervalSet()
        for need in job.after:
            if len(unmet) == len(tasks):
                return unmet  # a job may have thousands of needs, and hears of each
            if need.left:
                unmet.update(tasks.intersection(need.left) if need.after.each else tasks)
        for told in (job.unmet, job.delayed, job.outgrown):
            if told:
                unmet.update(IntervalSet((task, task) for task in members_among(told, tasks)))
        return unmet

    # -- the next try -------------------------------------------------------------------------------------

    def _delay(self, job: Job, task: int, until: float) -> None:
        """A ready task waits for its next try."""
        job.ready.discard(task)
        job.waiting.add(task)
        job.delayed[task] = until
        heapq.heappush(self._delays, (until, job.id, task))

    def _end_delays(self, now: float) -> None:
        touched: dict[int, Job] = {}
        while self._delays and self._delays[0][0] <= now:
            until, id, task = heapq.heappop(self._delays)
            job = self.jobs.get(id)
            if job is not None and job.delayed.get(task) == until:
                del job.delayed[task]
                self._meet(job, IntervalSet([(task, task)]))
                touched[id] = job
        for job in touched.values():
            self.effects.append(Progressed(job.id, [], []))
            self.settle(job)

    # -- more memory --------------------------------------------------------------------------------------

    def _outgrow(self, job: Job, task: int, had_bytes: int, used_bytes: int) -> None:
        """A resting task needs more memory than it had. It runs again when its job asks for more, if it does not yet."""
        job.growths[task] = job.growths.get(task, 0) + 1
        if _is_more(job.needs.mem_bytes, had_bytes):
            return  # it does since
        job.outgrown[task] = (had_bytes, used_bytes)
        self._outgrowing[job.id] = job
        if task in job.ready and next_state(TaskState.READY, TaskEvent.WAIT) is TaskState.WAITING:
            job.ready.discard(task)
            job.waiting.add(task)

    def _grow(self) -> bool:
        """Jobs of which all has started that could at their size: they ask for more. Whether any does."""
        grown = False
        for job in list(self._outgrowing.values()):
            if not job.outgrown or self.jobs.get(job.id) is not job:
                del self._outgrowing[job.id]
            elif not job.ready:
                grown = True
                self.revise(job, msgspec.structs.replace(job.row.spec, mem_bytes=grown_bytes(job)))
        return grown

    def _refit(self, job: Job) -> None:
        """Those that waited for more memory than they had, and would have it now, do not wait for that any more."""
        fit = [task for task, (had, _) in job.outgrown.items() if _is_more(job.needs.mem_bytes, had)]
        for task in fit:
            del job.outgrown[task]
        self._meet(job, IntervalSet((task, task) for task in sorted(fit)))

    # -- what is changed about it --------------------------------------------------------------------------

    def _note(self, job: Job, tasks: IntervalSet, what: str, by: str, now: float) -> None:
        """For the tasks' history, if anybody did it. `by`: who, and why."""
        if by:
            self.changes.append(Noted(job.id, tuple(tasks.ranges()), now, what, by))

    def _wait_again(self, job: Job, tasks: IntervalSet, now: float) -> None:
        """Ready tasks that may have unmet needs: those wait, or are skipped."""
        broken = graph.broken(job, tasks, self.find)
        for resting in (self._unmet(job, tasks), *(behind for behind, _ in broken)):
            move(job.ready, job.waiting, resting)
        if broken:
            self._skip_all(job, broken, now)
        if job.id in self.jobs:
            self._settle_or_end(job, now)

    def revise(self, job: Job, spec: JobSpec, now: float = 0.0, by: str = "") -> None:
        """What it asks for, or which of it is held, is another by now. Its place in line may be, too."""
        held = tuple(job.held.ranges())
        self.ready.drop(job)
        if spec is not job.row.spec:
            self.effects.append(Revised(job.id))
        postponed = tuple(Postponed(fault, tuple(tasks.ranges())) for fault, tasks in job.postponed.values())
        job.row = msgspec.structs.replace(job.row, spec=spec, held=held, postponed=postponed)
        job.find_kind()
        job.most_fails = spec.most_fails(job.task_count)
        if job.outgrown:
            self._refit(job)
        self.changes.append(JobRevised(job.id, spec, held, postponed))
        self._note(job, IntervalSet(job.row.ranges), "revised", by, now)
        self.effects.append(Progressed(job.id, [], []))
        self.settle(job)

    # -- retried, and so are those behind it --------------------------------------------------------------

    def _hopeless(self, job: Job, tasks: IntervalSet) -> IntervalSet:
        """Those of its ended tasks that need something which has not ended as it should."""
        if job.row.ended_at is not None:  # its needs are not watched any more
            graph.attach(job, job.edges, _unfinished(job), self.find)
        return graph.hopeless(job, tasks, self.find)

    def _revive_behind(self, job: Job, tasks: IntervalSet, now: float) -> None:
        """Tasks run again that others needed: what was skipped because of them waits again, and so on."""
        todo = deque([(job, tasks)])
        while todo:
            job, tasks = todo.popleft()
            behind: dict[int, tuple[Job, IntervalSet]] = {}
            for need in job.watchers:
                need.reopened(tasks)
                chosen = need.job.skipped.intersection(tasks) if need.after.each else need.job.skipped
                behind.setdefault(need.job.id, (need.job, IntervalSet()))[1].update(chosen)
            for task in members_among(job.arrows, tasks):
                for (_, waiting), other in job.arrows[task].items():
                    if waiting in other.skipped and self.jobs.get(other.id) is other:
                        behind.setdefault(other.id, (other, IntervalSet()))[1].add(waiting)
            for other, chosen in behind.values():
                for still, _ in graph.broken(other, chosen, self.find):
                    chosen.difference_update(still)
                if chosen:
                    self._reopen(other, chosen)
                    self._wait_again(other, chosen, now)
                    todo.append((other, chosen))

    def _reopen(self, job: Job, tasks: IntervalSet) -> None:
        """Ended tasks are ready."""
        if not tasks:
            return
        for members in (job.finished, job.failed, job.cancelled, job.skipped):
            members.difference_update(tasks)
        job.ready.update(tasks)
        self.changes.append(Reopened(job.id, tuple(tasks.ranges())))
        if job.row.spec.outputs:
            self._change_files(MadeUndone(job.id, tuple(tasks.ranges())))
            job.left.update(tasks)
        self.effects.append(Progressed(job.id, [], []))
        if job.held.intersection(tasks):
            job.held.difference_update(tasks)
            job.take_postponed(tasks)
            self.revise(job, job.row.spec)


class _Skips:
    """Tasks that are skipped together with what needs them, gathered so that neighbours share a record."""

    def __init__(self) -> None:
        self.todo: deque[tuple[Job, IntervalSet, str]] = deque()
        """Tasks that have ended and whose dependents have not been told; and why, if they were skipped themselves."""
        self._all: dict[tuple[int, str], tuple[Job, IntervalSet]] = {}

    def add(self, job: Job, tasks: IntervalSet, why: str) -> None:
        doomed = tasks.intersection(job.waiting)
        if not doomed or next_state(TaskState.WAITING, TaskEvent.SKIP) is not TaskState.CANCELLED:
            return
        job.waiting.difference_update(doomed)
        job.cancelled.update(doomed)
        job.skipped.update(doomed)
        for told in (job.delayed, job.outgrown):
            for task in members_among(told, doomed):
                del told[task]
        self._all.setdefault((job.id, why), (job, IntervalSet()))[1].update(doomed)
        self.todo.append((job, doomed, why))

    def all(self) -> "list[tuple[Job, IntervalSet, str]]":
        return [(job, tasks, why) for (_, why), (job, tasks) in self._all.items()]


def named(tasks: IntervalSet) -> list[int]:
    """Tasks that ended without having run, for those who wait for them; of very many, the end of their job tells."""
    return list(tasks) if len(tasks) <= NAMED_MOST else []


def grown_bytes(job: Job) -> int:
    """How much memory its tasks will ask for, now that some of them had too little."""
    most = max(had_bytes for had_bytes, _ in job.outgrown.values())
    return min(MAX_MEM_BYTES, max(most + 1, math.ceil(most * job.row.spec.mem_growth)))


def _is_more(mem_bytes: int, had_bytes: int) -> bool:
    """Whether a task that asks for so much has more than before: 0 is no limit."""
    return not mem_bytes or mem_bytes > had_bytes


def _unfinished(job: Job) -> IntervalSet:
    tasks = IntervalSet(job.row.ranges)
    tasks.difference_update(job.finished)
    return tasks


def move(source: IntervalSet, target: IntervalSet, tasks: IntervalSet) -> None:
    """Those of the tasks that are in the one set go into the other."""
    chosen = source.intersection(tasks)
    source.difference_update(chosen)
    target.update(chosen)


def members_among(facts: Mapping[int, object], tasks: IntervalSet) -> list[int]:
    """Those of `tasks` that there are facts about, in order; looking through the smaller of the two."""
    if not facts:
        return []
    if len(tasks) < len(facts):
        return [task for task in tasks if task in facts]
    return sorted(task for task in facts if task in tasks)
