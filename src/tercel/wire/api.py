"""What travels between client and manager: JSON over HTTP, described by a generated OpenAPI document.

Paths (all under /v1, all but /v1/health and /v1/openapi.json need `Authorization: Bearer <token>`; a parameter or field
that is not known is refused):

    POST /jobs              Submission -> Submitted        201; 200 if this key was submitted before; JSON or msgpack
    POST /flows             Flow -> FlowSubmitted          as POST /jobs, for several jobs that may wait for one another
    GET  /jobs              -> JobList                     ?before=ID&limit=N&all=true (ended ones too); newest first
    GET  /jobs/ID           -> JobView
    GET  /jobs/ID/submission  -> Submission                as it was handed in, and revised since
    GET  /jobs/ID/tasks     -> TaskList                    ?tasks=0-9,12&state=failed&after=N&limit=N&outputs=true
    GET  /jobs/ID/tasks/N   -> TaskView                    every attempt, outputs' sizes
    GET  /jobs/ID/tasks/N/logs   -> bytes                  ?stream=out|err&follow=true (chunked until the task has ended)
    GET  /jobs/ID/values    -> msgpack list of ValueRow    ?tasks=0-999: how those of them that ended did, by number;
                               of large pages a part: ask again for the others
    PUT  /values/KEY        bytes -> Stored                KEY is b and the content's SHA-256 in hex; 4 GiB at most
    GET  /values/KEY        -> bytes                       of such a one, or of what a task returned: t37.4
    POST /cancel            Selection -> Counted           tasks that ended by this
    POST /retry             Retry -> Counted               tasks that will run again
    POST /hold              Selection -> Counted           tasks that are held by this
    POST /release           Selection -> Counted           tasks that were held
    POST /revise            Revision -> Counted            jobs whose priority or needs are others now
    GET  /jobs/ID/history, /jobs/ID/tasks/N/history   -> History   ?skip=N&limit=N; oldest first
    POST /rollback          Rollback -> RolledBack         ended tasks go back to a checkpoint, all or none; dry_run tells which
    POST /clean             Clean -> Cleaned               removes jobs that ended long ago; for admins
    GET  /conditions        -> ConditionList               ?before=ID&limit=N&all=true (closed ones too); newest first
    GET  /conditions/ID     -> ConditionView
    POST /conditions/ID/test     -> Counted                1 if it is tested now
    POST /conditions/ID/release  ConditionRelease -> Counted   tasks that were let go
    POST /conditions/ID/fail     ConditionFailure -> Counted   tasks that failed by this
    POST /conditions/ID/pause    -> Counted                1 if it was not paused
    POST /conditions/ID/resume   -> Counted                1 if it was
    GET  /queues            -> QueueList
    PUT  /queues/NAME       QueueSettings -> QueueView     makes it if there is none
    DELETE /queues/NAME     -> Counted                     if nothing unfinished is in it
    GET  /explain           -> Explanation                 ?task=37.5 or ?task=37
    GET  /status            -> Status
    GET  /pool              -> Pool
    POST /workers/ID/drain  -> Counted
    POST /workers/ID/quarantine  Quarantine -> Counted    it takes no tasks until it is released
    POST /workers/ID/release     -> Counted                1 if it was in quarantine
    POST /workers/ID/tags        TagChange -> Tags         beside what it says itself
    GET  /workers/ID/directory   -> DirectoryView          what is in it, and what is worth a look
    GET  /workers/ID/log         -> FileTail               the end of its log file
    GET  /workers/ID/jobs/ID/tasks/N/files  -> SandboxView    ?attempt=N: of a sandbox that was kept, or is in use
    GET  /workers/ID/jobs/ID/tasks/N/file   -> FileTail       ?path=out.txt&attempt=N: the end of a file in it
    GET  /reservations      -> ReservationList
    POST /reservations      NewReservation -> ReservationView
    DELETE /reservations/ID -> Counted                     they end by themselves, too
    GET  /events            -> server-sent events (JSON of Event)   ?job=37[&job=38][&tasks=true: with ended and spoke]
                               a comment line at least every 15 s; closes when all those jobs are done
    GET  /tokens, POST /tokens (NewToken -> IssuedToken), DELETE /tokens/ID
    GET  /health            -> Health                      no token needed
    GET  /openapi.json
    GET  /link              WebSocket, for workers

Errors are problem details (RFC 9457): Problem, with the status as HTTP code.
"""

from typing import Any

import msgspec

from tercel.core.changes import Edge
from tercel.core.files import Input, Output
from tercel.core.intervals import Range
from tercel.core.model import After, BlockRule, Call, JobSpec, Keep, Role
from tercel.core.states import Stage, TaskState
from tercel.wire.api_admin import IssuedToken as IssuedToken
from tercel.wire.api_admin import NewToken as NewToken
from tercel.wire.api_admin import QueueList as QueueList
from tercel.wire.api_admin import QueueSettings as QueueSettings
from tercel.wire.api_admin import QueueView as QueueView
from tercel.wire.api_admin import TokenList as TokenList
from tercel.wire.api_admin import TokenView as TokenView
from tercel.wire.api_forks import Fork as Fork
from tercel.wire.api_forks import ForkChange as ForkChange
from tercel.wire.api_forks import Forked as Forked
from tercel.wire.api_forks import ForkedJob as ForkedJob
from tercel.wire.api_history import Clean as Clean
from tercel.wire.api_history import Cleaned as Cleaned
from tercel.wire.api_history import History as History
from tercel.wire.api_history import HistoryEvent as HistoryEvent
from tercel.wire.api_history import Rollback as Rollback
from tercel.wire.api_history import RollbackPart as RollbackPart
from tercel.wire.api_history import RolledBack as RolledBack
from tercel.wire.api_pool import NewReservation as NewReservation
from tercel.wire.api_pool import Pool as Pool
from tercel.wire.api_pool import Quarantine as Quarantine
from tercel.wire.api_pool import ReservationList as ReservationList
from tercel.wire.api_pool import ReservationView as ReservationView
from tercel.wire.api_pool import TagChange as TagChange
from tercel.wire.api_pool import Tags as Tags
from tercel.wire.api_pool import WorkerView as WorkerView
from tercel.wire.api_recovery import ConditionFailure as ConditionFailure
from tercel.wire.api_recovery import ConditionJob as ConditionJob
from tercel.wire.api_recovery import ConditionList as ConditionList
from tercel.wire.api_recovery import ConditionRelease as ConditionRelease
from tercel.wire.api_recovery import ConditionView as ConditionView
from tercel.wire.api_recovery import SwitchChange as SwitchChange
from tercel.wire.api_recovery import SwitchList as SwitchList
from tercel.wire.api_recovery import SwitchView as SwitchView

SCHEMA = 1
"""Version of every JSON document below and of what the CLI prints with --json. Fields are only ever added."""


class Submission(JobSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    lines: list[str] | None = None
    """One shell command line per task."""
    items: list[str] | None = None
    """One JSON object per task, as text, for the holes of argv or line: {"name": "a", "size": 3}."""
    calls: list[Call] | None = None
    """The arguments of each task, for a job with a function."""
    edges: list[Edge] | None = None
    """[task, job, first, last]: this task waits for tasks first to last of that job; 0 is the job itself."""
    key: str = ""
    """Any text of the client's: sending the same key again gives the same job instead of a second one."""


class Flow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Jobs that are accepted together or not at all. -1 in `after` is the first of them, -2 the second, …"""

    jobs: list[Submission]
    key: str = ""
    """As of a submission."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks are in each state; they add up to `tasks` of the job."""

    waiting: int = 0
    paused: int = 0
    blocked: int = 0
    """Until something outside is mended: see GET /conditions."""
    ready: int = 0
    offered: int = 0
    staging_in: int = 0
    """Their worker brings the files that they read."""
    running: int = 0
    staging_out: int = 0
    """They have run, and their worker delivers the files that they left."""
    finished: int = 0
    failed: int = 0
    cancelled: int = 0


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    tasks: int
    name: str
    repeated: bool = False
    """True if a job with this key was there already."""


class FlowSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[Submitted]
    """In the order they were given."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    owner: str
    command: str
    """For people: the command as one line (for a job of lines, its first; for one of a template, that)."""
    tasks: int
    array: str
    counts: Counts
    submitted_at: float
    ended_at: float | None
    priority: int
    cpus: float
    mem_bytes: int
    time_limit_s: float
    retries: int
    cwd: str
    queue: str = ""
    flow: int = 0
    """The first job of the flow that it belongs to; 0: none."""
    after: list[After] = []
    max_fails: str = ""
    template: bool = False
    """The command has holes, filled for each task from its point."""
    grid: str = ""
    """For people: the names of a sweep and how many values each has."""
    points: int = 0
    """How many points the sweep has; its tasks may be some of them."""
    gpus: float = 0.0
    resources: dict[str, float] = {}
    requires: list[str] = []
    where: str = ""
    rank: str = ""
    mem_growth: float = 0.0
    pids: int = 0
    disk_bytes: int = 0
    isolate: str = ""
    container: str = ""
    sandbox: Keep = Keep.REMOVE
    cleanup: str = ""
    cleanup_limit_s: float = 600.0
    warn_signal: str = ""
    block_on: list[BlockRule] = []
    """Not in lists of jobs, as inputs and outputs are not."""
    inputs: list[Input] = []
    outputs: list[Output] = []
    forked: str = ""
    """Of a copy: from which job, as of when, with what changed. Not in lists."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[JobView]
    more: bool
    """Older ones follow: ask again with `before` = the last id."""


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int
    state: TaskState
    worker: str
    end: str
    code: int
    note: str
    started_at: float
    ended_at: float
    wall_s: float
    cpu_s: float
    max_rss_bytes: int
    out_bytes: int
    err_bytes: int
    blame: str = ""
    """Whose fault it was: `task`, `worker`, `node` or `outside`; empty: nothing was wrong, or somebody asked for it."""
    out_cut: bool
    """Only the tail of stdout was kept."""
    err_cut: bool
    exceeded: str = ""
    """What it used more of than it asked for, and was ended for: `memory`, `pids` or `disk`."""


class TaskView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    """As people write it: 37.99."""
    job: int
    task: int
    state: TaskState
    worker: str = ""
    """Where it is now or ended."""
    exit_code: int | None = None
    """Of the last attempt, if it exited."""
    why: str = ""
    """How it ended, or why it is not running, in words."""
    condition: int | None = None
    """What it is blocked on, if it is: 3 for C3."""
    stage: Stage | None = None
    """Blocked: in which stage it met that, which says in what state it goes on."""
    resumes_in: TaskState | None = None
    """Blocked or paused: the state in which it goes on."""
    hint: str = ""
    """What could be done about how it ended."""
    attempts: list[AttemptView] = []
    """Ended ones, oldest first; the last is the task's outcome if its state is terminal. In a list only that one."""
    left_out: int = 0
    """How many more there were, in the middle of very many: they were removed by their age."""
    stdout: str | None = None
    """With outputs=true: what is kept (of more than 16 MiB its tail; logs give all), undecodable bytes replaced."""
    stderr: str | None = None
    point: dict[str, Any] | None = None
    """Of a job of a template: the values of its holes. Those of a sweep are texts, those of items any JSON."""


class TaskList(msgspec.Struct, frozen=True, kw_only=True):
    tasks: list[TaskView]
    more: bool
    """More follow: ask again with `after` = the last task's number. With outputs, large ones end a page early."""


ValueRow = tuple[int, str, str, int, str, bytes | None, int]
"""How one task of a function ended: task, state, end, code, note, value, size of the value.

The value is what the function returned (finished) or raised (failed), pickled; None if there is none (size 0) or if it is
large: then GET /values/t37.4 gives it.
"""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A value, or a content, that is there now."""

    key: str
    repeated: bool = False
    """True if it was there already."""


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    select: list[str]
    """37, 37.99, 37.0-9, all, last."""
    reason: str = ""
    unstarted: bool = False
    """To cancel: only tasks that have not begun, as far as the manager knows."""


class Retry(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    all: bool = False
    """Everything that has ended, finished tasks too; else of a whole job what failed, of named tasks what did not finish."""
    mem_bytes: int | None = None
    """From now on the job's tasks ask for so much."""
    time_limit_s: float | None = None


class Revision(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to change about whole jobs; None stays as it is."""

    priority: int | None = None
    cpus: float | None = None
    mem_bytes: int | None = None
    time_limit_s: float | None = None
    gpus: float | None = None
    resources: dict[str, float] | None = None
    requires: list[str] | None = None
    where: str | None = None
    rank: str | None = None
    block_on: list[BlockRule] | None = None


class Counted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    count: int
    note: str = ""
    """What whoever asked should know beside: which snapshot was taken before."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a number of tasks of a job are where they are."""

    state: TaskState
    count: int
    text: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    summary: str
    """One sentence."""
    reasons: list[Reason]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    epoch: int
    started_at: float
    user: str
    role: Role
    jobs: int
    """Unfinished ones."""
    counts: Counts
    """Of unfinished jobs' tasks."""
    workers: int
    cpus: float
    trouble: str = ""
    """What keeps the manager from working as it should, e.g. a full disk."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed in a job since the last event of this stream. The first one tells how things stand."""

    job: int
    counts: Counts
    ended: list[Range] = []
    """Tasks that ended since (in the first event: so far), if the stream was asked for them with tasks=true.

    Those that were cancelled without having run are told with the job's end at the latest; none is left out, but one that
    ends while the first event is made may be told twice.
    """
    spoke: list[Range] = []
    """Those of them that left any output (in the first event: that may have)."""
    done: bool = False
    """All tasks have ended; no more events of this job follow."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    version: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457 problem details."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    field: str = ""
    """Which part of the request is wrong, if one is."""
