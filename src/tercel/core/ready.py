"""Which job is next: urgent before less urgent, then first come first served, looked up by class of need.

Jobs with the same needs (and refused by the same workers) are one class and stand in one line: where its first does
not fit, nobody in it does. So asking "what may this worker run?" costs the number of classes, however many jobs or
tasks wait; and a worker is full, mostly, long before all classes were asked.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Iterable

from tercel.core.ledger import Job
from tercel.core.model import Needs

STALE_MOST = 16
"""Entries of jobs that left a line, beside as many as there are jobs in it, before they are cleared away."""


def rank(job: Job) -> tuple[int, int]:
    return job.row.spec.priority, job.id


class Line:
    """The waiting jobs of one class. Who leaves stays in the heap until it comes up, or until too many did."""

    __slots__ = ("_heap", "_members", "refused_by")

    def __init__(self, refused_by: frozenset[str]) -> None:
        self.refused_by = refused_by
        self._heap: list[tuple[int, int]] = []
        self._members: dict[int, Job] = {}

    def __len__(self) -> int:
        return len(self._members)

    def join(self, job: Job) -> None:
        self._members[job.id] = job
        heapq.heappush(self._heap, rank(job))

    def leave(self, job: Job) -> None:
        del self._members[job.id]
        if len(self._heap) > 2 * len(self._members) + STALE_MOST:
            self._heap = [rank(job) for job in self._members.values()]
            heapq.heapify(self._heap)

    @property
    def head(self) -> Job | None:
        while self._heap:
            job = self._members.get(self._heap[0][1])
            if job is not None:
                return job
            heapq.heappop(self._heap)
        return None


class ReadyQueue:
    """Jobs that have a ready task and are below their own limit of running ones."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Needs, frozenset[str]], Line] = {}
        self._line_of: dict[int, Line] = {}

    def __len__(self) -> int:
        return len(self._line_of)

    def __contains__(self, job: int) -> bool:
        return job in self._line_of

    def settle(self, job: Job) -> bool:
        """Bring the queue in line with the job as it is now. True if it was not waiting in this class before."""
        if len(job.ready) == 0 or job.cap_room <= 0:
            self.drop(job)
            return False
        before = self._line_of.get(job.id)
        if before is not None and before.refused_by == job.refused_by.keys():
            return False
        self.drop(job)
        key = job.needs, frozenset(job.refused_by)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(key[1])
        line.join(job)
        self._line_of[job.id] = line
        return True

    def drop(self, job: Job) -> None:
        line = self._line_of.pop(job.id, None)
        if line is not None:
            line.leave(job)
            if not line:
                del self._lines[job.needs, line.refused_by]

    def order(self, wanted: Callable[[Job], bool] = lambda _: True) -> "Order":
        """All lines whose next job is wanted, as they stand."""
        return Order(self._lines.values(), wanted)


class Order:
    """Lines by their next job, kept so while tasks are taken from them: for those who walk it from the front."""

    def __init__(self, lines: Iterable[Line], wanted: Callable[[Job], bool]) -> None:
        self._wanted = wanted
        self._entries = sorted(
            (*rank(head), line) for line in lines if (head := line.head) is not None and wanted(head)
        )

    def __len__(self) -> int:
        return len(self._entries)

    def job(self, at: int) -> Job | None:
        """The next job of the line in this place, None behind the last."""
        while at < len(self._entries):
            priority, id, line = self._entries[at]
            head = line.head
            if head is not None and rank(head) == (priority, id):
                return head
            del self._entries[at]  # its turn is over; whoever comes after it in its line comes later
            if head is not None and self._wanted(head):
                insort(self._entries, (*rank(head), line))
        return None
