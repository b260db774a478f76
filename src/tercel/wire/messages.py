"""The messages between a manager and a worker.

    worker                                manager
      Hello(what I am, what I hold)  ->
                                     <-   Welcome(heartbeat, what to drop)      | Refused
      Presence(capacity, facts)      ->                                          every heartbeat
      Cached(keys)                   ->                                          when that has changed
                                     <-   Brief(job) once, then Offer(tasks) or  up to the credit and ahead
                                          Scattered(tasks)
      Fetch(key, piece)              ->                                          for calls that refer to values
                                     <-   Piece(key, data)
      Started(attempts)              ->                                          only for tasks that last
      Segment(output) .. Reports     ->
                                     <-   Ack(attempts)                          after the commit
                                     <-   Probe(tester)                          of what tasks are blocked on
      Probed(verdict)                ->
                                     <-   Look(what)                             into its directory, for people
      Seen(found)                    ->
                                     <-   TakeBack(attempts)                     for an idle worker elsewhere
      Returned(attempts)             ->                                          those not started
                                     <-   Cancel(attempts) · Tail · Drain · Forget · Ping
      TailData · Bye                 ->

A frame is a numbered list of messages (see session). A worker forgets a report only when it is acknowledged.
Unknown message types are a PeerError; fields are only ever added, at the end, with defaults. A message that came later is sent
only to workers whose Hello says that they know it.
"""

import msgspec

from tercel.core.conditions import Verdict
from tercel.core.files import Location
from tercel.core.model import Call, Needs, Program
from tercel.core.presence import Facts, WorkerInfo, WorkerState
from tercel.core.presence import Held as Held
from tercel.core.reports import Report
from tercel.wire.looking import Found, What

PROTOCOL = 5
"""Changed only when an older peer could not understand; peers of another number are refused."""

MAX_FRAME_BYTES = 16 * 2**20
SEGMENT_BYTES = 256 * 1024
"""Of uncompressed output in one segment."""
INLINE_OUTPUT_BYTES = 16 * 1024
"""Outputs up to this size travel inside the report."""
LOOK = "look"
"""In Hello.knows: Look."""
SCATTERED = "scattered"
"""In Hello.knows: Scattered."""


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Encoded as [type name, field, field, …]."""


class Hello(_Message, frozen=True):
    protocol: int
    worker: str
    """Its lasting name: the same after a restart on the same spool."""
    instance: str
    """Drawn anew at each start of the process: tells a reconnection from a restart."""
    info: WorkerInfo
    held: list[Held]
    knows: tuple[str, ...] = ()
    """What it understands beyond its protocol's first version: LOOK, SCATTERED."""


class Presence(_Message, frozen=True):
    state: WorkerState
    capacity: Needs
    """What it gives to tasks in all at this time; its credit is this less what it holds."""
    facts: Facts = Facts()


class Cached(_Message, frozen=True):
    """What data the worker has kept since it last said so, and what it has not any more."""

    kept: list[tuple[str, int]]
    """Key and size in bytes."""
    gone: list[str]


class Started(_Message, frozen=True):
    attempts: list[int]


class Reports(_Message, frozen=True):
    reports: list[Report]


class Returned(_Message, frozen=True):
    attempts: list[int]


class Segment(_Message, frozen=True):
    attempt: int
    stream: str
    number: int
    data: bytes
    """zlib."""


class TailData(_Message, frozen=True):
    """Live output of a running task for somebody who follows it."""

    attempt: int
    stream: str
    offset: int
    """How many bytes of the stream precede these."""
    data: bytes


class Fetch(_Message, frozen=True):
    """Ask for one piece of a value that a call refers to by this key; pieces are numbered from 0."""

    key: str
    number: int


class Probed(_Message, frozen=True):
    number: int
    verdict: Verdict


class Seen(_Message, frozen=True):
    number: int
    found: Found


class Stages(_Message, frozen=True):
    """Attempts whose inputs are being brought, or whose outputs are being delivered; said of those that take a moment."""

    bringing: list[int]
    delivering: list[int]


class Locate(_Message, frozen=True):
    """Ask where files of the catalogue are; answered by Located, of this number."""

    number: int
    names: list[str]


class Book(_Message, frozen=True):
    """Ask when a transfer from or to each of these endpoints may begin; answered by Booked, of this number."""

    number: int
    endpoints: list[str]


class Marked(_Message, frozen=True):
    """A replica had other bytes than it should, or none."""

    name: str
    url: str
    why: str


class Removed(_Message, frozen=True):
    """What an Undo named is gone."""

    job: int
    task: int


class Bye(_Message, frozen=True):
    """The worker leaves and holds nothing it could still report; the reason is for people."""

    reason: str


class Welcome(_Message, frozen=True):
    epoch: int
    heartbeat_s: float
    drop: list[int]
    """Attempts that are no longer wanted: end them, report nothing."""
    now: float = 0.0
    """The manager's clock, so that a worker can tell how far its own is off."""
    throttled: bool = False
    """Whether it wants to be asked (Book) before a file is moved."""


class Refused(_Message, frozen=True):
    """The manager will not have this worker; trying again without a change is pointless."""

    reason: str


class Brief(_Message, frozen=True):
    """What tasks of a job have in common; sent once per link before the job's first offer."""

    job: int
    program: Program
    needs: Needs


class Offer(_Message, frozen=True):
    """Tasks first..last, as attempts first_attempt, first_attempt + 1, …"""

    job: int
    first: int
    last: int
    first_attempt: int
    lines: list[str] | None = None
    """One command line per task, if the job has them."""
    calls: list[Call] | None = None
    """One per task, if the job is a function's."""


class Scattered(_Message, frozen=True):
    """Like Offer, of tasks that are no neighbours: those of a graph become ready here and there."""

    job: int
    tasks: list[int]
    first_attempt: int
    lines: list[str] | None = None
    calls: list[Call] | None = None


class TakeBack(_Message, frozen=True):
    attempts: list[int]


class Ack(_Message, frozen=True):
    attempts: list[int]


class Probe(_Message, frozen=True):
    """Ask a tester, on this node, and answer with Probed."""

    number: int
    tester: str
    limit_s: float
    cwd: str = ""
    env: dict[str, str] = {}


class Look(_Message, frozen=True):
    """Somebody wants to know what is in the worker's directory; it answers with Seen, of this number."""

    number: int
    what: What


class Cancel(_Message, frozen=True):
    attempts: list[int]


class Tail(_Message, frozen=True):
    attempt: int
    on: bool


class Forget(_Message, frozen=True):
    """The job ended: its brief is of no more use."""

    job: int


class Drain(_Message, frozen=True):
    """Finish what runs, return what does not, take nothing more, leave."""


class Piece(_Message, frozen=True):
    """The answer to Fetch. A value has at least one piece, which may be empty; all joined are the value."""

    key: str
    number: int
    data: bytes
    """zlib."""
    last: bool
    gone: str = ""
    """Why there is no such value, if there is none."""


class Located(_Message, frozen=True):
    number: int
    files: list[Location]


class Booked(_Message, frozen=True):
    """In so many seconds all of them have a place for it; each is taken."""

    number: int
    wait_s: float


class Park(_Message, frozen=True):
    """The answer to a report whose files cannot be registered for now: keep it, and report again when told to Resume."""

    attempts: list[int]


class Resume(_Message, frozen=True):
    """What kept these attempts from being delivered or registered has passed: go on."""

    attempts: list[int]


class Undo(_Message, frozen=True):
    """Before the task that is offered next is begun: remove what earlier attempts had delivered. Answered by Removed, if it was anything."""

    job: int
    task: int
    urls: list[str]
    lost: list[int] = []
    """Attempts of it that were lost: should one of them have begun to deliver, what is half there goes before this one delivers."""


class Ping(_Message, frozen=True):
    pass


FromWorker = (
    Hello
    | Presence
    | Cached
    | Started
    | Reports
    | Returned
    | Segment
    | TailData
    | Fetch
    | Probed
    | Seen
    | Stages
    | Locate
    | Book
    | Marked
    | Removed
    | Bye
)
FromManager = (
    Welcome
    | Refused
    | Brief
    | Offer
    | Scattered
    | TakeBack
    | Ack
    | Cancel
    | Tail
    | Forget
    | Drain
    | Piece
    | Probe
    | Look
    | Located
    | Booked
    | Park
    | Resume
    | Undo
    | Ping
)


class WorkerFrame(msgspec.Struct, frozen=True, array_like=True):
    number: int
    messages: list[FromWorker]


class ManagerFrame(msgspec.Struct, frozen=True, array_like=True):
    number: int
    messages: list[FromManager]
