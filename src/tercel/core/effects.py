"""What the machine asks its service to do, once the changes that came before are durable."""

import msgspec

from tercel.core.conditions import ConditionRow
from tercel.core.model import Lease


class Welcomed(msgspec.Struct, frozen=True):
    """Answer a worker's Hello.

    Effects come in order. What is due to a worker before its Welcomed belongs to an older link of it and is void:
    the Hello has settled it. `hello` is what `on_hello` returned, since two may wait for one commit.
    """

    worker: str
    drop: list[int]
    hello: int


class Offered(msgspec.Struct, frozen=True):
    """Give a worker the tasks of these leases, which follow one another and are of one job."""

    leases: list[Lease]


class Acknowledged(msgspec.Struct, frozen=True):
    """The worker may forget these reports."""

    worker: str
    attempts: list[int]


class Parked(msgspec.Struct, frozen=True):
    """What these attempts left cannot be registered for now: the worker keeps their reports, until it is told to go on."""

    worker: str
    attempts: list[int]


class Resumed(msgspec.Struct, frozen=True):
    """The worker goes on with delivering, or registering, what these attempts left."""

    worker: str
    attempts: list[int]


class Recalled(msgspec.Struct, frozen=True):
    """Ask a worker for tasks it has not started."""

    worker: str
    attempts: list[int]


class Ended(msgspec.Struct, frozen=True):
    """Ask a worker to end attempts that are not wanted any more."""

    worker: str
    attempts: list[int]


class Drained(msgspec.Struct, frozen=True):
    """Ask a worker to finish and leave."""

    worker: str


class Revised(msgspec.Struct, frozen=True):
    """What a job asks for is another: workers are told anew before they are given more of it."""

    job: int


class Probe(msgspec.Struct, frozen=True):
    """Ask a condition's tester; the answer is `on_tested` with this number."""

    number: int
    condition: ConditionRow
    worker: str
    """Who asks; empty: the manager itself."""
    limit_s: float
    """How long that may take."""


class Progressed(msgspec.Struct, frozen=True):
    """Tasks of a job changed state; those that ended are named, and those of them that left output."""

    job: int
    ended: list[int]
    spoke: list[int]


class JobDone(msgspec.Struct, frozen=True):
    """All tasks of a job have ended; the machine has forgotten it. How many ended how, and who may forget it."""

    job: int
    finished: int
    failed: int
    cancelled: int


Effect = (
    Welcomed
    | Offered
    | Acknowledged
    | Parked
    | Resumed
    | Recalled
    | Ended
    | Drained
    | Revised
    | Probe
    | Progressed
    | JobDone
)
