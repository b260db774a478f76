"""What a job, a queue, a lease and a token are: plain values, frozen where they travel."""

from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

import msgspec

from tercel.core.conditions import Postponed
from tercel.core.files import Input, Output
from tercel.core.grids import Grid
from tercel.core.intervals import Range

V = TypeVar("V")

DEFAULT_PRIORITY = 1000
"""0 is most urgent; the room above leaves space to be less urgent than usual, and below to be more."""
MAX_PRIORITY = 2**32 - 1
DEFAULT_OUTPUT_LIMIT_BYTES = 10 * 2**20
MAX_TASKS = 100_000_000
MAX_BACKOFF_S = 3600.0
MAX_MEM_BYTES = 2**60
MAX_RANGES = 100_000
"""Of task numbers in one job. Accepting, showing and cancelling it cost its ranges, and others wait meanwhile: half a
second for so many.
"""


class Needs(msgspec.Struct, frozen=True, array_like=True):
    """What one task occupies while it runs, in whole numbers, so that sums never drift; and what it cannot do without."""

    millicpus: int = 1000
    mem_bytes: int = 0
    python: str = ""
    """The interpreter's version (3.11) that a function must be called under."""
    resources: tuple[tuple[str, int], ...] = ()
    """What else, by name (`gpus`, `licence.matlab`), sorted, in thousandths: half a GPU is 500."""


class Limits(msgspec.Struct, frozen=True, array_like=True):
    """What one attempt may use at most; 0: as much as it likes."""

    mem_bytes: int = 0
    millicpus: int = 0
    pids: int = 0
    disk_bytes: int = 0
    """In its sandbox."""


class Keep(StrEnum):
    """What becomes of an attempt's sandbox."""

    REMOVE = "remove"
    KEEP = "keep"
    KEEP_ON_FAILURE = "keep-on-failure"


class AfterKind(StrEnum):
    """How what a task needs must have ended."""

    OK = "ok"
    """Finished. Failed or cancelled: the task is skipped."""
    ANY = "any"
    """Ended, however."""
    NOTOK = "notok"
    """At least one of them failed or was cancelled; if all finished, the task is skipped."""


class After(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the tasks of a job wait for: tasks of another job."""

    job: int
    """Its id. In a flow that is being submitted, -1, -2, … are the flow's own jobs, in order."""
    kind: AfterKind = AfterKind.OK
    tasks: tuple[Range, ...] = ()
    """Which of its tasks; empty: all."""
    each: bool = False
    """Task i waits for task i only, instead of every task for all."""


class OnFailure(StrEnum):
    """What a task's final failure means for others."""

    SKIP = "skip"
    """What needs it is skipped, and what needs that; all else goes on."""
    STOP = "stop"
    """The whole flow is cancelled."""
    RUN = "run"
    """What needs it runs all the same."""


class RetryRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How tasks that ended with one of these exit codes are tried again, instead of the job's general way."""

    codes: tuple[int, ...]
    retries: int
    backoff_s: float = 0.0


class BlockRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which end of a task means that something outside is broken, and how to see that it is mended: see `blocking`."""

    on: str
    """`exit:75`, `stderr:/Disk quota exceeded/`, `start`, `known` …"""
    tester: str = ""
    """`tcp:licence.lab:27000`, `command:./quota-ok.sh` …; empty with `known`, which finds it itself."""
    at: str = ""
    """Where it is tested: `manager`, `site` or `worker`. Empty: where such a tester makes sense."""
    policy: str = ""
    """`every 2m for 12h`; empty: ever more seldom, for two days."""


class Function(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A Python function, as a client pickled it. Each task of its job is one Call of it."""

    code: bytes = b""
    """Pickled by cloudpickle; empty if it is large: then `value` is the key of its pickle."""
    value: str = ""
    name: str = ""
    """For people."""
    python: str = ""
    """The version it was pickled under, as in 3.11: another one's bytecode differs."""
    path: tuple[str, ...] = ()
    """Directories that its modules are imported from, where they exist."""

    def __str__(self) -> str:
        return f"{self.name or 'function'}(…)"


class Call(msgspec.Struct, frozen=True, array_like=True):
    """The arguments of one task of a function.

    Values that do not travel with them are named by key, and stand in the pickle as persistent ids. A key is `t37.4` for
    what task 37.4 returned (which is thereby one of this task's needs) and `b` with a SHA-256 in hex for what a client
    uploaded.
    """

    arguments: bytes
    """Pickle of (args, kwargs)."""
    values: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """What the pickle calls each of them, if not by its key: a copied call takes what copied tasks return."""

    def named(self, inputs: dict[str, V]) -> dict[str, V]:
        """By key -> by what the pickle calls them."""
        if not self.names:
            return inputs
        return inputs | {name: inputs[key] for name, key in zip(self.names, self.values, strict=True)}


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a user submits. Exactly one of `argv`, `line`, `function` and (beside it) a list of lines says what is run."""

    argv: tuple[str, ...] = ()
    """A program and its arguments, started without a shell."""
    line: str = ""
    """A shell command line; started without a shell where it has no shell syntax."""
    function: Function | None = None
    """A Python function, called once per task (see Call)."""
    grid: Grid | None = None
    """The points of a sweep: one task each, numbered as they are; `array` chooses among them."""
    template: bool = False
    """Whether argv or line has holes, `{name}`, for each task's point; of jobs with a grid or with items it has."""
    name: str = ""
    array: str = ""
    """Task numbers as in sbatch: `0-99:2%10`. Empty: one task, number 0 (or one per line)."""
    cpus: float = 1.0
    mem_bytes: int = 0
    """0 asks for no particular amount. An attempt that uses more is ended."""
    gpus: float = 0.0
    """So many GPUs, each its own; or a part of one (0.5), shared with others that asked for a part."""
    resources: dict[str, float] = {}
    """Other countable things of workers, by name: {"licence.matlab": 1}."""
    pids: int = 0
    """How many processes and threads an attempt may have; 0 sets no limit."""
    disk_bytes: int = 0
    """How much an attempt may write into its sandbox; 0 sets no limit."""
    requires: tuple[str, ...] = ()
    """Tags that a worker must have, all of them."""
    where: str = ""
    """A CEL expression over the worker's attributes: only workers for which it is true may run it."""
    rank: str = ""
    """A CEL expression, a number: among the workers that may run it, those with the highest are preferred."""
    mem_growth: float = 0.0
    """A task that used more memory than it asked for runs again with so many times as much; 1 or less: it fails."""
    isolate: str = ""
    """`bwrap`: the system is read-only to it, other tasks' processes and files are out of its sight."""
    container: str = ""
    """The image that it runs in, by whichever engine the worker has."""
    sandbox: Keep = Keep.REMOVE
    cleanup: str = ""
    """A shell command line that the worker runs after each task has been reported, before it takes another."""
    cleanup_limit_s: float = 600.0
    """A cleanup that takes longer is killed."""
    warn_signal: str = ""
    """`USR1@120`: sent so many seconds before the task is ended for want of time (its own, or its worker's)."""
    time_limit_s: float = 0.0
    """Wall time of one attempt; 0 sets no limit."""
    priority: int = DEFAULT_PRIORITY
    retries: int = 0
    """How often a task that failed by its own doing is tried again."""
    backoff_s: float = 0.0
    """Pause before the first retry; twice as long before each further one, up to MAX_BACKOFF_S."""
    retry_rules: tuple[RetryRule, ...] = ()
    """For some exit codes other retries; the first rule that names the code counts."""
    block_on: tuple[BlockRule, ...] = ()
    """Ends that are not the task's fault: it waits until that is mended. The first rule that applies counts."""
    max_fails: str = ""
    """If more tasks fail than this (`10`, or `5%` of all), the rest of the job is cancelled. Empty: never."""
    queue: str = ""
    """Empty: the owner's own."""
    after: tuple[After, ...] = ()
    on_failure: OnFailure = OnFailure.SKIP
    hold: bool = False
    """Nothing of it starts until it is released."""
    inputs: tuple[Input, ...] = ()
    """Files that its tasks read: brought, checked, and put into each one's sandbox."""
    outputs: tuple[Output, ...] = ()
    """Files that its tasks leave: delivered, checked and registered before a task counts as finished."""
    cwd: str = ""
    """Directory to run in; it must exist where the task runs. Empty: the attempt's own sandbox."""
    env: dict[str, str] = {}
    """Added to the worker's environment."""
    task_id_argument: bool = False
    """Whether the task's number is appended as the last argument."""
    kill_grace_s: float = 5.0
    """Time between TERM and KILL on cancel and at the time limit."""
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES
    """How much of each of stdout and stderr is kept; of longer ones the tail."""

    @property
    def needs(self) -> Needs:
        python = self.function.python if self.function is not None else ""
        if not self.gpus and not self.resources:
            return Needs(round(self.cpus * 1000), self.mem_bytes, python)
        amounts = {"gpus": self.gpus, **self.resources} if self.gpus else self.resources
        resources = tuple(sorted((name, round(amount * 1000)) for name, amount in amounts.items() if amount))
        return Needs(round(self.cpus * 1000), self.mem_bytes, python, resources)

    @property
    def limits(self) -> Limits:
        return Limits(self.mem_bytes, round(self.cpus * 1000), self.pids, self.disk_bytes)

    def most_fails(self, tasks: int) -> int | None:
        """How many of so many tasks may fail before the rest is cancelled; None: all."""
        if not self.max_fails:
            return None
        if self.max_fails.endswith("%"):
            return int(tasks * Decimal(self.max_fails[:-1]) / 100)
        return int(self.max_fails)

    @property
    def program(self) -> "Program":
        return Program(
            argv=self.argv,
            line=self.line,
            function=self.function,
            grid=self.grid,
            template=self.template,
            cwd=self.cwd,
            env=self.env,
            task_id_argument=self.task_id_argument,
            time_limit_s=self.time_limit_s,
            kill_grace_s=self.kill_grace_s,
            output_limit_bytes=self.output_limit_bytes,
            limits=self.limits,
            isolate=self.isolate,
            container=self.container,
            sandbox=self.sandbox,
            cleanup=self.cleanup,
            cleanup_limit_s=self.cleanup_limit_s,
            warn_signal=self.warn_signal,
            inputs=self.inputs,
            outputs=self.outputs,
        )


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know to run any task of a job. Field meanings as in JobSpec."""

    argv: tuple[str, ...] = ()
    line: str = ""
    function: Function | None = None
    cwd: str = ""
    env: dict[str, str] = {}
    task_id_argument: bool = False
    time_limit_s: float = 0.0
    kill_grace_s: float = 5.0
    output_limit_bytes: int = DEFAULT_OUTPUT_LIMIT_BYTES
    grid: Grid | None = None
    template: bool = False
    limits: Limits = Limits()
    isolate: str = ""
    container: str = ""
    sandbox: Keep = Keep.REMOVE
    cleanup: str = ""
    cleanup_limit_s: float = 600.0
    warn_signal: str = ""
    patterns: tuple[tuple[str, str, str], ...] = ()
    """What to look for in outputs of failed attempts: (what its rule begins with, `out` or `err`, pattern)."""
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted job as it is kept: what never changes, and, once it ended, how."""

    id: int
    owner: str
    spec: JobSpec
    ranges: tuple[Range, ...]
    """Its task numbers."""
    max_running: int
    """At most so many of its tasks run at a time; 0: no limit."""
    submitted_at: float
    key: str = ""
    """Chosen by the submitter: the same key again means the same job, not another one."""
    has_lines: bool = False
    """Each task has a line of its own (or, in a job of a template, an item), kept apart in chunks."""
    flow: int = 0
    """The first job of the flow that it was submitted with; 0: none."""
    held: tuple[Range, ...] = ()
    """Tasks that are held, unless they have ended."""
    postponed: tuple[Postponed, ...] = ()
    """Those of them that were blocked, and on what."""
    ended_at: float | None = None
    finished: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def task_count(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


class QueueRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue's settings. Every user has one of their own name, with these defaults, without anybody making it."""

    name: str
    owner: str = ""
    weight: float = 1.0
    """Its share of a busy pool, relative to the other queues that have work."""
    max_running: int = 0
    """At most so many of its tasks are under way at a time; 0: no limit. So are the others."""
    max_queued: int = 0
    """Jobs beyond so many tasks that are ready or under way stand back until some of those have ended."""
    user_max: int = 0
    """At most so many of one user's tasks are under way at a time."""
    paused: str = ""
    """By whom and why nothing of it is started, if so."""


class Lease(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Attempts issued to one worker in one go: task `first + i` as attempt `id + i`.

    Kept until every task in it has been concluded, so that after a restart the manager knows who may still
    hold what, and whose late report to believe.
    """

    id: int
    worker: str
    job: int
    first: int
    last: int


class Role(StrEnum):
    ADMIN = "admin"
    USER = "user"
    WORKER = "worker"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An access token as it is kept: never the secret itself."""

    id: str
    role: Role
    user: str
    digest: str
    """SHA-256 of the secret, hex."""
    created_at: float
    note: str = ""
