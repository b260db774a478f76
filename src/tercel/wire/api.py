"""What travels between client and manager: JSON over HTTP, described by a generated OpenAPI document.

Paths (all under /v1, all but /v1/health and /v1/openapi.json need `Authorization: Bearer <token>`; a parameter or field
that is not known is refused):

    POST /jobs              Submission -> Submitted        201; 200 if this key was submitted before
    GET  /jobs              -> JobList                     ?before=ID&limit=N&all=true (ended ones too); newest first
    GET  /jobs/ID           -> JobView
    GET  /jobs/ID/tasks     -> TaskList                    ?tasks=0-9,12&state=failed&after=N&limit=N&outputs=true
    GET  /jobs/ID/tasks/N   -> TaskView                    every attempt, outputs' sizes
    GET  /jobs/ID/tasks/N/logs   -> bytes                  ?stream=out|err&follow=true (chunked until the task has ended)
    POST /cancel            Selection -> Counted           tasks that ended by this
    POST /retry             Selection -> Counted           tasks that will run again
    GET  /explain           -> Explanation                 ?task=37.5 or ?task=37
    GET  /status            -> Status
    GET  /pool              -> Pool
    POST /workers/ID/drain  -> Counted
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

from tercel.core.intervals import Range
from tercel.core.model import JobSpec, Role, WorkerState
from tercel.core.states import TaskState

SCHEMA = 1
"""Version of every JSON document below and of what the CLI prints with --json. Fields are only ever added."""


class Submission(JobSpec, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    lines: list[str] | None = None
    """One shell command line per task."""
    items: list[str] | None = None
    """One JSON object per task, as text, for the holes of argv or line: {"name": "a", "size": 3}."""
    key: str = ""
    """Any text of the client's: sending the same key again gives the same job instead of a second one."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks are in each state; they add up to `tasks` of the job."""

    ready: int = 0
    offered: int = 0
    running: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    tasks: int
    name: str
    repeated: bool = False
    """True if a job with this key was there already."""


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
    template: bool = False
    """The command has holes, filled for each task from its point."""
    grid: str = ""
    """For people: the names of a sweep and how many values each has."""
    points: int = 0
    """How many points the sweep has; its tasks may be some of them."""


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
    out_cut: bool
    """Only the tail of stdout was kept."""
    err_cut: bool


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
    attempts: list[AttemptView] = []
    """Ended ones, oldest first; the last is the task's outcome if its state is terminal."""
    stdout: str | None = None
    """With outputs=true: what is kept (of more than 16 MiB its tail; logs give all), undecodable bytes replaced."""
    stderr: str | None = None
    point: dict[str, Any] | None = None
    """Of a job of a template: the values of its holes. Those of a sweep are texts, those of items any JSON."""


class TaskList(msgspec.Struct, frozen=True, kw_only=True):
    tasks: list[TaskView]
    more: bool
    """More follow: ask again with `after` = the last task's number. With outputs, large ones end a page early."""


class Selection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    select: list[str]
    """37, 37.99, 37.0-9, all, last."""
    reason: str = ""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    count: int


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


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    workers: list[WorkerView]
    online: int
    cpus: float
    """Of those online."""


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


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    role: Role
    user: str
    note: str = ""


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    role: Role
    user: str
    created_at: float
    note: str


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    role: Role
    user: str
    secret: str
    """Shown once, never kept."""


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[TokenView]


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
