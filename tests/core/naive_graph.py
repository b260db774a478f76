"""Who may run, who waits and who is skipped, as naively as can be: looked at anew, task by task, after every event."""

from collections.abc import Iterator

from tercel.core.changes import Edge
from tercel.core.intervals import IntervalSet
from tercel.core.model import AfterKind, JobRow, OnFailure

Task = tuple[int, int]
BAD = ("failed", "cancelled", "skipped")
ENDED = ("finished", *BAD)


class NaiveGraph:
    def __init__(self) -> None:
        self.rows: dict[int, JobRow] = {}
        self.edges: dict[int, tuple[Edge, ...]] = {}
        self.state: dict[Task, str] = {}
        """rest, flying, finished, failed, cancelled or skipped."""
        self.held: set[Task] = set()

    # -- what happens -------------------------------------------------------------------------------------

    def add(self, row: JobRow, edges: tuple[Edge, ...]) -> None:
        self.rows[row.id], self.edges[row.id] = row, edges
        self.state |= dict.fromkeys(self.tasks_of(row.id), "rest")
        self.settle()

    def end(self, task: Task, how: str) -> None:
        self.state[task] = how
        self.settle()
        row = self.rows[task[0]]
        if how == "failed":
            most = row.spec.most_fails(row.task_count)
            failures = [t for t in self.tasks_of(row.id) if self.state[t] == "failed"]
            if most is not None and len(failures) > most:
                self.cancel(self.tasks_of(row.id))
            if row.spec.on_failure is OnFailure.STOP:
                flow = [other.id for other in self.rows.values() if other.flow == row.flow != 0]
                for id in flow or [row.id]:
                    self.cancel(self.tasks_of(id))

    def cancel(self, tasks: list[Task]) -> None:
        for task in tasks:
            if self.state[task] in ("rest", "flying"):
                self.state[task] = "cancelled"
        self.settle()

    def hold(self, tasks: list[Task]) -> None:
        self.held |= {task for task in tasks if self.state[task] in ("rest", "flying")}

    def release(self, tasks: list[Task]) -> None:
        self.held -= set(tasks)
        self.settle()

    def retry(self, tasks: list[Task]) -> None:
        """Those of one job that can run if all of them are retried together; and whoever was skipped for them."""
        again = {task for task in tasks if self.state[task] in BAD}
        while hopeless := {task for task in again if self.verdict(task, again) == "skip"}:
            again -= hopeless
        while again:
            for task in again:
                self.state[task] = "rest"
            self.held -= again
            again = {t for t, s in self.state.items() if s == "skipped" and self.verdict(t) != "skip"}
        self.settle()

    def rollback(self, tasks: list[Task], only: bool = False) -> None:
        """Those that have ended and could run, what finished using any, and what was skipped for want of any."""
        again: set[Task] = set()
        while True:
            more = {
                task for task in self.state if task not in again and self._undone(task, tasks, again, only)
            }
            if not more:
                break
            again |= more
        used = {task for task in self.state if not only and self._uses(task, again)}
        if any(self.state[task] == "flying" for task in used.union(tasks)):
            return  # in the way
        self.state |= dict.fromkeys(again, "rest")
        self.held -= again
        self.settle()

    def _undone(self, task: Task, chosen: list[Task], again: set[Task], only: bool) -> bool:
        state = self.state[task]
        if state == "finished" and not only and self._uses(task, again):
            return True
        if state not in ENDED or self.verdict(task, again) == "skip":
            return False
        return task in chosen or (state == "skipped" and self._uses(task, again))

    def _uses(self, task: Task, again: set[Task]) -> bool:
        return any(one in again for _, group in self._needs(task) for one in group)

    # -- what follows from it -----------------------------------------------------------------------------

    def settle(self) -> None:
        while True:
            free = [task for task, state in self.state.items() if state == "rest" and task not in self.held]
            told = {task: self.verdict(task) for task in free}
            self.state |= {task: "flying" for task, verdict in told.items() if verdict == "run"}
            skipped = {task: "skipped" for task, verdict in told.items() if verdict == "skip"}
            self.state |= skipped
            if not skipped:
                return

    def verdict(self, task: Task, retried: frozenset[Task] | set[Task] = frozenset()) -> str:
        """Those that are `retried` may still end as they should."""
        told = {self._met(kind, group, retried) for kind, group in self._needs(task)}
        return "skip" if "skip" in told else "wait" if "wait" in told else "run"

    def _met(self, kind: AfterKind, group: list[Task], retried: frozenset[Task] | set[Task]) -> str:
        states = ["rest" if task in retried else self.state[task] for task in group]
        ended = all(state in ENDED for state in states)
        failed = any(state in BAD for state in states)
        if kind is AfterKind.OK and failed:
            return "skip"
        if kind is AfterKind.NOTOK and ended and states and not failed:
            return "skip"
        return "met" if ended else "wait"

    def _needs(self, task: Task) -> Iterator[tuple[AfterKind, list[Task]]]:
        id, number = task
        for after in self.rows[id].spec.after:
            chosen = IntervalSet(after.tasks or self.rows[after.job].ranges)
            group = [t for t in self.tasks_of(after.job) if t[1] in chosen]
            if after.each:
                group = [t for t in group if t[1] == number]
            yield self._kind(after.job, after.kind), group
        for waiting, job, first, last in self.edges[id]:
            if waiting == number:
                group = [t for t in self.tasks_of(job) if first <= t[1] <= last]
                yield self._kind(job, AfterKind.OK), group

    def _kind(self, needed: int, kind: AfterKind) -> AfterKind:
        anyway = kind is AfterKind.OK and self.rows[needed].spec.on_failure is OnFailure.RUN
        return AfterKind.ANY if anyway else kind

    def tasks_of(self, job: int) -> list[Task]:
        return [(job, number) for number in IntervalSet(self.rows[job].ranges)]

    def told(self, task: Task) -> str:
        """As the machine says it."""
        state = self.state[task]
        if state == "rest":
            return "paused" if task in self.held else "waiting"
        return {"flying": "offered", "skipped": "cancelled"}.get(state, state)
