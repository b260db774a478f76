"""Workers as the machine knows them: what they give, what they hold, and how much room that leaves."""

from tercel.core.blame import Conduct
from tercel.core.ledger import Flight
from tercel.core.model import Needs
from tercel.core.presence import Facts, Reservation, WorkerInfo, WorkerRow, WorkerState


class Worker:
    """A worker that is or was connected."""

    __slots__ = (
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
        "since",
        "tags",
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

    def board(self, flight: Flight) -> None:
        self.flights[flight.attempt] = flight
        needs = flight.lease.needs
        self.used_millicpus += needs.millicpus
        self.used_mem_bytes += needs.mem_bytes

    def release(self, flight: Flight) -> None:
        del self.flights[flight.attempt]
        needs = flight.lease.needs
        self.used_millicpus -= needs.millicpus
        self.used_mem_bytes -= needs.mem_bytes

    @property
    def python(self) -> str:
        """Its interpreter's version as functions name it: 3.11."""
        return ".".join(self.info.python.split(".")[:2])

    def could_run(self, needs: Needs) -> bool:
        return (
            needs.millicpus <= self.capacity.millicpus
            and needs.mem_bytes <= self.capacity.mem_bytes
            and (not needs.python or needs.python == self.python)
        )

    @property
    def has_room(self) -> bool:
        """Whether it could run anything more beside what it holds, however small."""
        return self.used_millicpus < self.capacity.millicpus and not (self.row.quarantined and self.flights)

    def slots(self, needs: Needs) -> int:
        """How many tasks of this need it runs side by side."""
        slots = self.capacity.millicpus // needs.millicpus
        return min(slots, self.capacity.mem_bytes // needs.mem_bytes) if needs.mem_bytes else slots

    def room(self, needs: Needs, ahead: int) -> int:
        """How many more tasks it may be given if `ahead` of them may wait there for a slot."""
        if self.row.quarantined:
            ahead = 0
        room = (self.capacity.millicpus - self.used_millicpus) // needs.millicpus + ahead
        if needs.mem_bytes:
            room = min(room, (self.capacity.mem_bytes - self.used_mem_bytes) // needs.mem_bytes + ahead)
        return min(room, 1 - len(self.flights)) if self.row.quarantined else room  # a probe is one task

    @property
    def overbooked(self) -> bool:
        """Whether tasks wait there that cannot run yet."""
        return self.used_millicpus > self.capacity.millicpus or self.used_mem_bytes > self.capacity.mem_bytes
