"""What must be made durable, in domain verbs. A store applies a batch of these in one transaction.

The machine emits them in an order in which they may be applied one after the other. Applying a batch twice
must give the same state as once: after a failed commit the same batch is handed over again.
"""

import msgspec

from tercel.core.conditions import ConditionRow, Postponed, SwitchRow
from tercel.core.files import FileRow, ReplicaRow
from tercel.core.intervals import Range
from tercel.core.model import Call, JobRow, JobSpec, Lease, QueueRow, Token
from tercel.core.presence import Reservation, WorkerRow
from tercel.core.reports import Blame, End, Outcome
from tercel.core.states import Stage, TaskState

Edge = tuple[int, int, int, int]
"""(task, job, first, last): the task needs tasks first..last of that job."""


class JobAdded(msgspec.Struct, frozen=True):
    job: JobRow
    lines: tuple[str, ...] = ()
    """One command line per task, in order of task number, if the job has them."""
    calls: tuple[Call, ...] = ()
    """One per task, likewise, if the job is a function's."""
    edges: tuple[Edge, ...] = ()
    """What single tasks need, by task, if the job has such."""


class JobRevised(msgspec.Struct, frozen=True):
    """Somebody changed what a job asks for, or holds or released some of it."""

    job: int
    spec: JobSpec
    held: tuple[Range, ...]
    postponed: tuple[Postponed, ...] = ()


class Leased(msgspec.Struct, frozen=True, gc=False):
    """In the place of the row with this id, if there is one: a lease becomes smaller when a task in it has failed."""

    lease: Lease


class LeaseClosed(msgspec.Struct, frozen=True, gc=False):
    id: int


class Concluded(msgspec.Struct, frozen=True, gc=False):
    """A task's one terminal record."""

    outcome: Outcome


class AttemptSpent(msgspec.Struct, frozen=True):
    """An attempt that failed and whose task is tried again: kept in the task's history."""

    outcome: Outcome


class AttemptLost(msgspec.Struct, frozen=True):
    """An attempt that ran and was given up on, by no fault of its task: kept in the task's history, not counted.

    Should it be the one that counts after all, its task's record stands for it.
    """

    outcome: Outcome
    instead_of: int = 0
    """An earlier attempt of the task, lost as well, whose record and output go: this one tells how many there were. 0: of none."""


class SpanConcluded(msgspec.Struct, frozen=True):
    """Tasks that ended without an attempt's report (cancelled): one row however many."""

    job: int
    first: int
    last: int
    state: TaskState
    at: float
    reason: str
    end: End = End.CANCELLED
    """Or SKIPPED."""


class Reopened(msgspec.Struct, frozen=True):
    """Ended tasks that are to be run again: their records move into their history."""

    job: int
    ranges: tuple[Range, ...]


class Blamed(msgspec.Struct, frozen=True):
    """Earlier attempts in the history of a job's tasks turned out to be another's fault: they count against no retries."""

    job: int
    attempts: tuple[tuple[int, int], ...]
    """(task, attempt)"""
    blame: Blame


class JobEnded(msgspec.Struct, frozen=True):
    job: int
    at: float
    finished: int
    failed: int
    cancelled: int


class JobResumed(msgspec.Struct, frozen=True):
    """A job that had ended has unfinished tasks again."""

    job: int


class QueueSet(msgspec.Struct, frozen=True):
    """In the place of the queue of this name, if there is one."""

    queue: QueueRow


class QueueRemoved(msgspec.Struct, frozen=True):
    name: str


class WorkerSet(msgspec.Struct, frozen=True):
    """In the place of what is kept of the worker of this name, if anything is; one that says nothing is not kept."""

    worker: WorkerRow


class ReservationSet(msgspec.Struct, frozen=True):
    """In the place of the one with this id, if there is one."""

    reservation: Reservation


class ReservationRemoved(msgspec.Struct, frozen=True):
    id: int


class ConditionSet(msgspec.Struct, frozen=True):
    """In the place of the one with this id, if there is one. One that is closed is kept, for people."""

    condition: ConditionRow


class TasksBlocked(msgspec.Struct, frozen=True):
    """They wait for a condition. Committed with it, and with the end of the attempts that met it."""

    job: int
    ranges: tuple[Range, ...]
    condition: int
    at: float
    stage: Stage
    """In which they met it."""


class TasksUnblocked(msgspec.Struct, frozen=True):
    """They wait for no condition any more."""

    job: int
    ranges: tuple[Range, ...]


class Noted(msgspec.Struct, frozen=True):
    """Something befell tasks of a job that no attempt's record tells: for their history."""

    job: int
    ranges: tuple[Range, ...]
    at: float
    what: str
    """One word: `blocked`, `released`, `held` …"""
    note: str = ""
    """Who, and why."""


class SwitchSet(msgspec.Struct, frozen=True):
    """In the place of the one of this name, if there is one; one that is on is not kept."""

    switch: SwitchRow


class OutputKept(msgspec.Struct, frozen=True):
    """A compressed piece (zlib) of an attempt's output. Committed before the report that refers to it."""

    attempt: int
    stream: str
    """`out`, `err` or `value`."""
    number: int
    data: bytes


class OutputsDropped(msgspec.Struct, frozen=True):
    """Attempts that never concluded: what they had sent ahead of their output is of no use any more.

    Of one that has a record after all, the pieces that its record tells of stay.
    """

    attempts: tuple[int, ...]


class ValueKept(msgspec.Struct, frozen=True):
    """A compressed piece (zlib) of a value that a client uploaded. The value is there when its last piece is."""

    key: str
    number: int
    data: bytes
    last: bool


class FileRegistered(msgspec.Struct, frozen=True):
    """A file, and where its bytes are. Committed with the outcome of the task that made it.

    Of one that is there with the same digest only the replicas are added; with another digest nothing is changed: whoever
    registers has looked.
    """

    file: FileRow
    urls: tuple[str, ...]


class FileRemoved(msgspec.Struct, frozen=True):
    """From the catalogue, with all its replicas."""

    name: str


class ReplicaSet(msgspec.Struct, frozen=True):
    """In the place of what was known of this replica. Of a file that is not there, nothing."""

    replica: ReplicaRow


class ReplicaRemoved(msgspec.Struct, frozen=True):
    """A file without any is still known by name, size and digest."""

    name: str
    url: str


class MadeUndone(msgspec.Struct, frozen=True):
    """What these tasks made is no longer in the catalogue. Where they delivered it to is noted: it is removed there before they are run again."""

    job: int
    ranges: tuple[Range, ...]


class LeftRemoved(msgspec.Struct, frozen=True):
    """Nothing of what was noted of this task by MadeUndone is left where it had been delivered to."""

    job: int
    task: int


class TokenAdded(msgspec.Struct, frozen=True):
    token: Token


class TokenRevoked(msgspec.Struct, frozen=True):
    id: str


Change = (
    JobAdded
    | JobRevised
    | Leased
    | LeaseClosed
    | Concluded
    | AttemptSpent
    | AttemptLost
    | SpanConcluded
    | Reopened
    | Blamed
    | JobEnded
    | JobResumed
    | QueueSet
    | QueueRemoved
    | WorkerSet
    | ReservationSet
    | ReservationRemoved
    | ConditionSet
    | TasksBlocked
    | TasksUnblocked
    | Noted
    | SwitchSet
    | OutputKept
    | OutputsDropped
    | ValueKept
    | FileRegistered
    | FileRemoved
    | ReplicaSet
    | ReplicaRemoved
    | MadeUndone
    | LeftRemoved
    | TokenAdded
    | TokenRevoked
)


class LiveJob(msgspec.Struct, frozen=True):
    """A job with unfinished tasks, as a store hands it back after a restart."""

    job: JobRow
    finished: list[Range] = []
    failed: list[Range] = []
    cancelled: list[Range] = []
    failures: dict[int, int] = {}
    """How many of its retries each unfinished task has spent, for those that spent any."""
    skipped: list[Range] = []
    """Those of the cancelled that were skipped."""
    edges: list[Edge] = []
    blocked: list[tuple[int, Stage, list[Range]]] = []
    """By condition, and by the stage in which they met it, which tasks wait for it."""
    left: dict[int, list[str]] = {}
    """By unfinished task: URLs of what earlier attempts had delivered, to be removed before it is run again (see MadeUndone)."""


class Loaded(msgspec.Struct, frozen=True):
    """Everything a manager needs to go on. Its size follows what is unfinished, not what ever was."""

    epoch: int
    """Grows by one at every opening: attempt ids are made from it and so never repeat."""
    next_job: int
    jobs: list[LiveJob]
    leases: list[Lease]
    tokens: list[Token]
    past: list[LiveJob] = []
    """Jobs that have ended and are needed by unfinished ones."""
    queues: list[QueueRow] = []
    workers: list[WorkerRow] = []
    reservations: list[Reservation] = []
    conditions: list[ConditionRow] = []
    """Those that are not closed."""
    next_condition: int = 1
    switches: list[SwitchRow] = []
    """Those that are off."""
