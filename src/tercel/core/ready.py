"""Which job is next: urgent before less urgent, then first come first served, looked up by class of need.

Jobs with the same needs (and refused by the same workers) are one class, so asking "what may this worker run?"
costs the number of classes, however many jobs or tasks wait.
"""

import heapq

from tercel.core.ledger import Job
from tercel.core.model import Needs

ClassKey = tuple[Needs, frozenset[str]]
"""Needs, and the workers that cannot run it."""


def class_of(job: Job) -> ClassKey:
    return job.needs, frozenset(job.refused_by)


class ReadyQueue:
    """Jobs that have a ready task and are below their own limit of running ones."""

    def __init__(self) -> None:
        self._lines: dict[ClassKey, _Line] = {}
        self._waiting: dict[int, tuple[Job, ClassKey]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, job: int) -> bool:
        return job in self._waiting

    def settle(self, job: Job) -> bool:
        """Bring the queue in line with the job as it is now. True if it was not waiting in this class before."""
        before = self._waiting.get(job.id)
        if len(job.ready) == 0 or job.cap_room <= 0:
            if before is not None:
                del self._waiting[job.id]
            return False
        key = class_of(job)
        if before is not None and before[1] == key:
            return False
        self._waiting[job.id] = (job, key)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        line.push(job.row.spec.priority, job.id)
        return True

    def drop(self, job: Job) -> None:
        self._waiting.pop(job.id, None)

    def classes(self) -> list[ClassKey]:
        return [key for key in list(self._lines) if self.head(key) is not None]

    def head(self, key: ClassKey) -> Job | None:
        """The next job of a class. Entries of jobs that went elsewhere are dropped when they come up."""
        line = self._lines.get(key)
        while line is not None and line.heap:
            entry = self._waiting.get(line.heap[0][1])
            if entry is not None and entry[1] == key:
                return entry[0]
            line.pop()
        self._lines.pop(key, None)
        return None

    def best(self, keys: list[ClassKey]) -> Job | None:
        """The next job among several classes."""
        heads = [job for key in keys if (job := self.head(key)) is not None]
        return min(heads, key=lambda job: (job.row.spec.priority, job.id), default=None)


class _Line:
    """A heap of (priority, job id). A job that leaves and comes back finds its old entry still there."""

    __slots__ = ("_ids", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int]] = []
        self._ids: set[int] = set()

    def push(self, priority: int, job: int) -> None:
        if job not in self._ids:
            self._ids.add(job)
            heapq.heappush(self.heap, (priority, job))

    def pop(self) -> None:
        self._ids.discard(heapq.heappop(self.heap)[1])
