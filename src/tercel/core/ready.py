"""Which job is next: shares between queues, urgency, shares between users, then first come first served.

    queue (lowest pass) -> priority (0 first) -> user (lowest pass) -> the job that came first

Jobs of one user in one queue stand in a Stream; in it, those with the same needs (and refused by the same workers) are
one class and stand in one Line: where its first does not fit, nobody in it does. So asking "what may this worker run?"
costs the number of streams and classes, however many jobs or tasks wait; and a worker is full, mostly, long before all
classes were asked.
"""

import heapq
import math
from bisect import insort
from collections.abc import Iterable, Iterator

from tercel.core.ledger import Job
from tercel.core.model import Needs
from tercel.core.shares import UNLIMITED, Account, Clock, Queue

STALE_MOST = 16
"""Entries of jobs that left a line, beside as many as there are jobs in it, before they are cleared away."""

Class = tuple[Needs, frozenset[str]]


def rank(job: Job) -> tuple[int, int]:
    return job.row.spec.priority, job.id


class Line:
    """The waiting jobs of one class. Who leaves stays in the heap until it comes up, or until too many did."""

    __slots__ = ("_heap", "_members", "kind", "stream")

    def __init__(self, stream: "Stream", kind: Class) -> None:
        self.stream = stream
        self.kind = kind
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

    def jobs(self) -> Iterable[Job]:
        return self._members.values()

    @property
    def head(self) -> Job | None:
        while self._heap:
            job = self._members.get(self._heap[0][1])
            if job is not None and rank(job) == self._heap[0]:
                return job
            heapq.heappop(self._heap)
        return None


class Stream:
    """The waiting jobs of one user in one queue."""

    __slots__ = ("lines", "queue", "user")

    def __init__(self, queue: Queue, user: Account) -> None:
        self.queue = queue
        self.user = user
        self.lines: dict[Class, Line] = {}

    @property
    def open(self) -> bool:
        """Whether the queue lets any of it go."""
        return self.queue.room(self.user) > 0


class ReadyQueue:
    """Jobs that have a ready task and are below their own limit of running ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._streams: dict[Account, Stream] = {}
        """By the account of the user in the queue."""
        self._line_of: dict[int, Line] = {}

    def __len__(self) -> int:
        return len(self._line_of)

    def __contains__(self, job: int) -> bool:
        return job in self._line_of

    @property
    def has_work(self) -> bool:
        """Whether any job waits for nothing but a worker."""
        return any(stream.open for stream in self._streams.values())

    def settle(self, job: Job) -> bool:
        """Bring the queue in line with the job as it is now. True if it was not waiting in this class before."""
        if len(job.ready) == 0 or job.cap_room <= 0 or not job.admitted:
            self.drop(job)
            return False
        before = self._line_of.get(job.id)
        if before is not None and before.kind[1] == job.refused_by.keys():
            return False
        self.drop(job)
        stream = self._streams.get(job.user)
        if stream is None:
            stream = self._streams[job.user] = Stream(job.queue, job.user)
        kind = job.needs, frozenset(job.refused_by)
        line = stream.lines.get(kind)
        if line is None:
            line = stream.lines[kind] = Line(stream, kind)
        line.join(job)
        self._line_of[job.id] = line
        return True

    def drop(self, job: Job) -> None:
        line = self._line_of.pop(job.id, None)
        if line is not None:
            line.leave(job)
            if not line:
                stream = line.stream
                del stream.lines[line.kind]
                if not stream.lines:
                    del self._streams[stream.user]

    def before(self, job: Job) -> Iterator[Job]:
        """Who of the same user and queue comes first. For people."""
        stream = self._streams.get(job.user)
        for line in stream.lines.values() if stream is not None else ():
            yield from (other for other in line.jobs() if rank(other) < rank(job))

    def rivals(self, job: Job) -> int:
        """How many other users and queues have work that waits for a worker. For people."""
        return sum(1 for stream in self._streams.values() if stream.user is not job.user and stream.open)

    def order(self) -> "Order":
        """All streams that may go, as they stand."""
        return Order([stream for stream in self._streams.values() if stream.open], self._clock)


class Order:
    """Streams and, in each, lines by their next job; kept so while tasks are taken from them."""

    def __init__(self, streams: Iterable[Stream], clock: Clock) -> None:
        self.clock = clock
        self.sorted = [SortedStream(stream) for stream in streams]

    def __len__(self) -> int:
        return len(self.sorted)


class SortedStream:
    __slots__ = ("_entries", "queue", "user")

    def __init__(self, stream: Stream) -> None:
        self.queue = stream.queue
        self.user = stream.user
        self._entries = sorted(
            (*rank(head), line) for line in stream.lines.values() if (head := line.head) is not None
        )

    def job(self, at: int) -> Job | None:
        """The next job of the line in this place, None behind the last."""
        while at < len(self._entries):
            priority, id, line = self._entries[at]
            head = line.head
            if head is not None and rank(head) == (priority, id):
                return head
            del self._entries[at]  # its turn is over; whoever comes after it in its line comes later
            if head is not None:
                insort(self._entries, (*rank(head), line))
        return None


class Walk:
    """One worker's way through an order: from the front, past what does not fit it."""

    def __init__(self, order: Order) -> None:
        self._clock = order.clock
        self._streams = order.sorted
        self._at = [0] * len(order.sorted)
        self._chosen = 0

    def job(self) -> Job | None:
        """The next that was not passed over, None at the end."""
        if len(self._streams) == 1:
            stream = self._streams[0]
            return stream.job(self._at[0]) if stream.queue.room(stream.user) > 0 else None
        best: Job | None = None
        best_key: tuple[float, str, int, float, int] | None = None
        for index, stream in enumerate(self._streams):
            if stream.queue.room(stream.user) <= 0 or (job := stream.job(self._at[index])) is None:
                continue
            key = self._key(stream, job)
            if best_key is None or key < best_key:
                best, best_key, self._chosen = job, key, index
        return best

    def _key(self, stream: SortedStream, job: Job) -> tuple[float, str, int, float, int]:
        queue = stream.queue
        return (
            queue.account.passed(self._clock),
            queue.row.name,
            job.row.spec.priority,
            stream.user.passed(self._clock),
            job.id,
        )

    def pass_over(self) -> None:
        """What comes after it in its line needs the same, so the whole line has to wait."""
        self._at[self._chosen] += 1

    def turns(self, job: Job, cost: float) -> int:
        """How many tasks in a row it has, each of this cost, before it is somebody else's turn."""
        if len(self._streams) == 1:
            return UNLIMITED
        queue, user, clock = job.queue, job.user, self._clock
        price = cost * clock.worth
        turns = UNLIMITED
        for index, stream in enumerate(self._streams):
            if index == self._chosen or stream.queue.room(stream.user) <= 0:
                continue
            other = stream.job(self._at[index])
            if other is None:
                continue
            if stream.queue is not queue:
                ahead = stream.queue.account.passed(clock) - queue.account.passed(clock)
                first = queue.row.name < stream.queue.row.name
                turns = min(turns, _steps(ahead * queue.account.weight, price, first))
            elif other.row.spec.priority == job.row.spec.priority:
                ahead = stream.user.passed(clock) - user.passed(clock)
                turns = min(turns, _steps(ahead, price, job.id < other.id))
        return turns


def _steps(distance: float, price: float, wins_ties: bool) -> int:
    """How many steps of `price` from behind somebody until that one is next."""
    steps = min(distance / price, 1e9)
    return max(1, math.floor(steps) + 1 if wins_ties else math.ceil(steps))
