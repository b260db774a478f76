"""Workers as the machine knows them: what they give, what they hold, and how much room that leaves."""

from collections.abc import Callable

from tercel.core.blame import Conduct
from tercel.core.cel import Value
from tercel.core.flights import Flight
from tercel.core.kinds import Shape, Significant
from tercel.core.ledger import Job
from tercel.core.model import Needs
from tercel.core.presence import Facts, Gpu, Reservation, WorkerInfo, WorkerRow, WorkerState
from tercel.core.resources import Stock, Taken


class Worker:
    """A worker that is or was connected."""

    __slots__ = (
        "_attributes",
        "_shape",
        "cached",
        "capacity",
        "completed",
        "conduct",
        "draining",
        "ends_at",
        "facts",
        "flights",
        "given_up",
        "id",
        "info",
        "instance",
        "lost_at",
        "note",
        "online",
        "reported_state",
        "reservation",
        "row",
        "saving_for",
        "since",
        "stock",
        "tags",
        "taken",
        "used_mem_bytes",
        "used_millicpus",
    )

    def __init__(self, id: str, now: float) -> None:
        self.id = id
        self.instance = ""
        self.info = WorkerInfo(node="", capacity=Needs(0, 0))
        self.capacity = Needs(0, 0)
        self.flights: dict[int, Flight] = {}
        self.used_millicpus = 0
        self.used_mem_bytes = 0
        self.online = False
        self.draining = False
        self.reported_state = WorkerState.AVAILABLE
        self.given_up = False
        """Offline for longer than the grace time, or for good: what it held is others' by now."""
        self.lost_at: float | None = None
        """Offline: when its tasks will be (or were) given up."""
        self.ends_at: float | None = None
        """When its own time is up, if it has a limit."""
        self.facts = Facts()
        self.row = WorkerRow(name=id)
        """What people, and its own faults, have made of it."""
        self.tags: frozenset[str] = frozenset()
        """What it says itself, and what people added and took."""
        self.reservation: Reservation | None = None
        self.cached: dict[str, int] = {}
        """Sizes in bytes of the data that it has kept, by key."""
        self.stock = Stock(self.capacity, {})
        self.taken: dict[int, Taken] = {}
        """What each flight has of it, by attempt, of those that need anything."""
        self.saving_for: Job | None = None
        """Whose large task it is being emptied for."""
        self._attributes: dict[str, Value] | None = None
        self._shape: Shape | None = None
        self.since = now
        self.completed = 0
        self.conduct = Conduct()
        self.note = ""

    @property
    def state(self) -> WorkerState:
        if not self.online:
            return WorkerState.OFFLINE
        if self.draining:
            return WorkerState.DRAINING
        if self.reported_state is WorkerState.CLEANING:
            return WorkerState.CLEANING
        return WorkerState.BUSY if self.flights else WorkerState.AVAILABLE

    @property
    def takes_more(self) -> bool:
        """Whether it may be offered anything at all."""
        if not self.online or self.draining or self.facts.unhealthy:
            return False
        return not self.row.quarantined or (self.conduct.probing and not self.flights)

    # -- what it is ---------------------------------------------------------------------------------------

    def describe(self, info: WorkerInfo, now: float) -> None:
        """It has joined, and says what it is."""
        self.info, self.capacity, self.facts = info, info.capacity, Facts()
        self.cached = {}  # it says anew what it has kept
        self.ends_at = None if info.time_left_s is None else now + max(0.0, info.time_left_s)
        self.stock = Stock(info.capacity, info.indices)
        for attempt, flight in self.flights.items():
            if flight.lease.needs.resources and not flight.light:
                self.taken[attempt] = self.stock.take(flight.lease.needs.resources)
        self.set_tags()

    def set_tags(self) -> None:
        """From what it says itself and what people made of that."""
        self.tags = frozenset(self.info.tags).union(self.row.tags).difference(self.row.lost_tags)
        self.forget_shape()

    def forget_attributes(self) -> None:
        """Something that it measures has changed."""
        self._attributes = None

    def forget_shape(self) -> None:
        self._attributes = None
        self._shape = None

    def shape(self, significant: Significant) -> Shape:
        if self._shape is None:
            significant.note_tags(self.tags)
        if self._shape is None or self._shape.generation != significant.generation:
            self._shape = significant.shape(self)
        return self._shape

    def tell(self, name: str) -> Value:
        """One attribute that does not change with every task and every second; None if it has none."""
        return TELL[name](self)

    def attributes(self, now: float) -> dict[str, Value]:
        """What expressions can ask about it. Good until the next call."""
        if self._attributes is None:
            self._attributes = attributes_of(self)
        found = self._attributes
        found["worker.tasks"] = len(self.flights)
        if self.ends_at is not None:
            found["worker.time_left"] = max(0.0, self.ends_at - now)
        return found

    @property
    def python(self) -> str:
        """Its interpreter's version as functions name it: 3.11."""
        return ".".join(self.info.python.split(".")[:2])

    def give(self, capacity: Needs) -> None:
        """So much to tasks, at this time."""
        self.capacity = capacity
        self.stock.set_total(capacity)

    # -- what it holds ------------------------------------------------------------------------------------

    def board(self, flight: Flight) -> None:
        self.flights[flight.attempt] = flight
        needs = flight.lease.needs
        self.used_millicpus += needs.millicpus
        self.used_mem_bytes += needs.mem_bytes
        if needs.resources:
            self.taken[flight.attempt] = self.stock.take(needs.resources)

    def release(self, flight: Flight) -> None:
        self.lighten(flight)
        flight.light = False
        del self.flights[flight.attempt]

    def lighten(self, flight: Flight) -> None:
        """It has run, and makes room for others; it is still here, for its files are under way."""
        if flight.light:
            return
        flight.light = True
        needs = flight.lease.needs
        self.used_millicpus -= needs.millicpus
        self.used_mem_bytes -= needs.mem_bytes
        if needs.resources:
            self.stock.give_back(self.taken.pop(flight.attempt))

    def hold(self, needs: Needs) -> Taken:
        """Set room aside for a task that is yet to be chosen."""
        self.used_millicpus += needs.millicpus
        self.used_mem_bytes += needs.mem_bytes
        return self.stock.take(needs.resources)

    def let_go(self, needs: Needs, taken: Taken) -> None:
        self.used_millicpus -= needs.millicpus
        self.used_mem_bytes -= needs.mem_bytes
        self.stock.give_back(taken)

    @property
    def has_room(self) -> bool:
        """Whether it could run anything more beside what it holds, however small."""
        return self.used_millicpus < self.capacity.millicpus and not (
            self.row.quarantined and self.used_millicpus
        )

    def slots(self, needs: Needs) -> int:
        """How many tasks of this need it runs side by side."""
        slots = self.capacity.millicpus // needs.millicpus
        if needs.mem_bytes:
            slots = min(slots, self.capacity.mem_bytes // needs.mem_bytes)
        return min(slots, self.stock.slots(needs.resources)) if needs.resources else slots

    def room(self, needs: Needs, ahead: int) -> int:
        """How many more tasks it may be given if `ahead` of them may wait there for a slot."""
        if needs.millicpus > self.capacity.millicpus or needs.mem_bytes > self.capacity.mem_bytes:
            return 0  # it gives less than it has, and would return what is offered ahead
        if self.row.quarantined:
            ahead = 0
        room = (self.capacity.millicpus - self.used_millicpus) // needs.millicpus + ahead
        if needs.mem_bytes:
            room = min(room, (self.capacity.mem_bytes - self.used_mem_bytes) // needs.mem_bytes + ahead)
        if needs.resources:
            room = min(room, self.stock.room(needs.resources))
        if self.row.quarantined:  # a probe is one task
            return min(room, 0 if self.used_millicpus else 1)
        return room

    @property
    def overbooked(self) -> bool:
        """Whether tasks wait there that cannot run yet."""
        return self.used_millicpus > self.capacity.millicpus or self.used_mem_bytes > self.capacity.mem_bytes


def attributes_of(worker: Worker) -> dict[str, Value]:
    """All but what changes with every task and every second."""
    return {name: value for name, tell in TELL.items() if (value := tell(worker)) is not None}


def _largest_gpu(worker: Worker) -> Gpu | None:
    return max(worker.info.gpus, key=lambda gpu: gpu.mem_bytes, default=None)


def _resources(worker: Worker) -> Value:
    return {name: amount / 1000 for name, amount in worker.info.capacity.resources}


TELL: dict[str, Callable[[Worker], Value]] = {
    "worker.name": lambda worker: worker.id,
    "worker.node": lambda worker: worker.info.node,
    "worker.site": lambda worker: worker.info.site,
    "worker.os": lambda worker: worker.info.os,
    "worker.arch": lambda worker: worker.info.arch,
    "worker.kernel": lambda worker: worker.info.kernel,
    "worker.python": lambda worker: worker.info.python,
    "worker.version": lambda worker: worker.info.version,
    "worker.containers": lambda worker: worker.info.containers,
    "worker.disk": lambda worker: worker.info.disk_bytes,
    "worker.speed": lambda worker: worker.info.speed,
    "worker.gpus": lambda worker: len(worker.info.gpus),
    "worker.gpu.mem": lambda worker: gpu.mem_bytes or None if (gpu := _largest_gpu(worker)) else None,
    "worker.gpu.model": lambda worker: gpu.model or None if (gpu := _largest_gpu(worker)) else None,
    "worker.tags": lambda worker: tuple(sorted(worker.tags)),
    "worker.cpus": lambda worker: worker.info.capacity.millicpus / 1000,
    "worker.mem": lambda worker: worker.info.capacity.mem_bytes,
    "worker.resource": _resources,
    "worker.cpus_free": lambda worker: worker.facts.millicpus_free / 1000,
    "worker.mem_free": lambda worker: worker.facts.mem_free_bytes,
    "worker.disk_free": lambda worker: worker.facts.disk_free_bytes,
    "worker.load": lambda worker: worker.facts.load,
    "worker.cached_bytes": lambda _: 0,
}
"""How to know an attribute; None: it has none."""
