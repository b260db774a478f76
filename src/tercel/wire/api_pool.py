"""What travels between client and manager about workers. See api."""

import msgspec

from tercel.core.presence import WorkerState


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    node: str
    state: WorkerState
    since: float
    """When it came into this state."""
    cpus: float
    mem_bytes: int
    running: int
    queued: int
    """Offered ahead of time and not started."""
    completed: int
    """Reports taken from it since the manager started."""
    version: str
    note: str = ""
    """What is unusual about it, if anything."""
    cpus_all: float = 0.0
    """What it gives when its node has nothing else to do; `cpus` is what it gives now."""
    site: str = ""
    os: str = ""
    arch: str = ""
    gpus: int = 0
    tags: list[str] = []
    """What it says itself, and what people added and took."""
    resources: dict[str, float] = {}
    """What else it gives, by name: gpus, licences."""
    load: float = 0.0
    cpus_free: float = 0.0
    """As it measured last; so are the others."""
    mem_free_bytes: int = 0
    disk_free_bytes: int = 0
    time_left_s: float | None = None
    """Until its own end, if it has a time limit."""
    unhealthy: str = ""
    """Why it takes no tasks for now, by its own checks."""
    quarantined: str = ""
    """By whom or what, and why, if it is."""
    reservation: int | None = None
    """The one that it is under."""
    faults: dict[str, int] = {}
    """Since the manager started: how many tasks `failed` there, were `interrupted` or `refused`, how often it was `lost`."""
    why: str = ""
    """Why it takes no tasks, or not everybody's, in words."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    workers: list[WorkerView]
    online: int
    cpus: float
    """Of those online."""


class Quarantine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: str = ""


class TagChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    add: list[str] = []
    remove: list[str] = []
    """Also what the worker says itself."""


class Tags(msgspec.Struct, frozen=True, kw_only=True):
    tags: list[str]
    """All that the worker has now."""


class NewReservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Workers that are set aside for a queue, a user, or a user in a queue."""

    where: str = ""
    """Which: a CEL expression over the worker's attributes; empty: all."""
    queue: str = ""
    user: str = ""
    for_s: float
    """How long."""
    lend: bool = False
    """Others may use them while they would be idle; nothing of theirs is ended for it."""


class ReservationView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    owner: str
    """Who made it."""
    where: str
    queue: str
    user: str
    since: float
    until: float
    lend: bool
    workers: list[str]
    """Those that are connected and under it now."""
    notes: list[str] = []
    """What whoever makes it should know: that nobody knows its queue, or that workers are under an earlier one."""


class ReservationList(msgspec.Struct, frozen=True, kw_only=True):
    reservations: list[ReservationView]
