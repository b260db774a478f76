"""Which job is next: shares between queues, urgency, shares between users, then first come first served.

    queue (lowest pass) -> priority (0 first) -> user (lowest pass) -> the job that came first

Jobs of one user in one queue stand in a Stream; in it, those of one kind (and refused by the same workers) are one class
and stand in one Line: where its first does not fit, nobody in it does. Lines that do not suit workers of some shape are
left out of the order that these workers see. So asking "what may this worker run?" costs the number of streams and
classes, however many jobs or tasks wait; and a worker is full, mostly, long before all classes were asked.
"""

import heapq
import math
from bisect import insort
from collections.abc import Iterable, Iterator

from tercel.core.inputs import Takers
from tercel.core.kinds import Kind, Shape, Significant
from tercel.core.ledger import Job
from tercel.core.presence import Reservation
from tercel.core.shares import UNLIMITED, Account, Clock, Queue

STALE_MOST = 16
"""Entries of jobs that left a line, beside as many as there are jobs in it, before they are cleared away."""

Class = tuple[Kind, frozenset[str], int]
"""Of what kind, refused by whom, and how urgent, if there is a rank to choose by: that is between equals."""
ANY_URGENCY = -1


def rank(job: Job) -> tuple[int, int]:
    return job.row.spec.priority, job.id


class Line:
    """The waiting jobs of one class. Who leaves stays in the heap until it comes up, or until too many did."""

    __slots__ = ("_heap", "_members", "kind", "stream", "takers")

    def __init__(self, stream: "Stream", kind: Class) -> None:
        self.stream = stream
        self.kind = kind
        self._heap: list[tuple[int, int]] = []
        self._members: dict[int, Job] = {}
        self.takers = Takers()

    def __len__(self) -> int:
        return len(self._members)

    def join(self, job: Job) -> None:
        self._members[job.id] = job
        if job.inputs is not None:
            self.takers.add(job.id, job.inputs)
        heapq.heappush(self._heap, rank(job))

    def leave(self, job: Job) -> None:
        del self._members[job.id]
        if job.inputs is not None:
            self.takers.remove(job.id, job.inputs)
        if len(self._heap) > 2 * len(self._members) + STALE_MOST:
            self._heap = [rank(job) for job in self._members.values()]
            heapq.heapify(self._heap)

    def jobs(self) -> Iterable[Job]:
        """In the order in which they joined."""
        return self._members.values()

    def member(self, id: int) -> Job | None:
        return self._members.get(id)

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

    __slots__ = ("lines", "owner", "queue", "user")

    def __init__(self, queue: Queue, user: Account, owner: str = "") -> None:
        self.queue = queue
        self.user = user
        self.owner = owner
        self.lines: dict[Class, Line] = {}

    @property
    def open(self) -> bool:
        """Whether the queue lets any of it go."""
        return self.queue.room(self.user) > 0


class ReadyQueue:
    """Jobs that have a ready task and are below their own limit of running ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.significant = Significant()
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
        if before is not None and before.kind[0] is job.kind and before.kind[1] == job.refused_by.keys():
            return False
        self.drop(job)
        stream = self._streams.get(job.user)
        if stream is None:
            stream = self._streams[job.user] = Stream(job.queue, job.user, job.row.owner)
        urgency = job.row.spec.priority if job.kind.rank is not None else ANY_URGENCY
        kind = job.kind, frozenset(job.refused_by), urgency
        line = stream.lines.get(kind)
        if line is None:
            line = stream.lines[kind] = Line(stream, kind)
            self.significant.note(job.kind)
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

    def order(self, shape: Shape | None = None, reservation: Reservation | None = None) -> "Order":
        """All streams that may go, as they stand; for workers of this shape, set aside like that."""
        streams = [
            stream
            for stream in self._streams.values()
            if stream.open and (reservation is None or is_for(reservation, stream))
        ]
        return Order(streams, self._clock, shape)


def is_for(reservation: Reservation, stream: Stream) -> bool:
    return (not reservation.queue or reservation.queue == stream.queue.name) and (
        not reservation.user or reservation.user == stream.owner
    )


class Order:
    """Streams and, in each, lines by their next job; kept so while tasks are taken from them."""

    def __init__(self, streams: Iterable[Stream], clock: Clock, shape: Shape | None = None) -> None:
        self.clock = clock
        self.sorted = [stream for one in streams if (stream := SortedStream(one, shape)).has_lines]

    def __len__(self) -> int:
        return len(self.sorted)


class SortedStream:
    __slots__ = ("_entries", "queue", "user")

    def __init__(self, stream: Stream, shape: Shape | None) -> None:
        self.queue = stream.queue
        self.user = stream.user
        self._entries = sorted(
            (*rank(head), line)
            for line in stream.lines.values()
            if (shape is None or line.kind[0].suits(shape)) and (head := line.head) is not None
        )

    @property
    def has_lines(self) -> bool:
        return bool(self._entries)

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

    def line(self, at: int) -> Line:
        return self._entries[at][2]


class Walk:
    """One worker's way through an order: from the front, past what does not fit it."""

    def __init__(self, order: Order) -> None:
        self._clock = order.clock
        self._streams = order.sorted
        self._at = [0] * len(order.sorted)
        self._chosen = 0
        self.contested = len(order.sorted) > 1
        """Whether there is anybody else whose turn it could be."""

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

    @property
    def line(self) -> Line:
        """The one whose first job was told last."""
        return self._streams[self._chosen].line(self._at[self._chosen])

    def pass_over(self) -> None:
        """What comes after it in its line needs the same, so the whole line has to wait."""
        self._at[self._chosen] += 1

    def turns(self, job: Job, cost: float) -> int:
        """How many tasks in a row it has, each of this cost, before it is somebody else's turn."""
        if not self.contested:
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
