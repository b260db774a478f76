"""What is said of attempts: how they ended, by whose fault, what they used and what they left."""

from enum import StrEnum

import msgspec

from tercel.core.files import Hitch, Made
from tercel.core.states import TaskState


class End(StrEnum):
    """How an attempt ended. The last two are the worker's doing and never count against the task."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    EXCEEDED = "exceeded"
    """It used more than it asked for and was ended; `Report.exceeded` says of what."""
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """It never ran: something that it needed did not end as it should."""
    BLOCKED = "blocked"
    """It was not run any more: what it waited for did not come back in time."""
    UNSTAGED = "unstaged"
    """What it reads could not be brought, or what it left not be delivered; `Report.hitch` says why."""
    REFUSED = "refused"
    """This worker cannot run tasks of this job (its directory is not there, say): another may."""
    INTERRUPTED = "interrupted"
    """The worker stopped it for reasons of its own, or lost it: any worker may run it again."""


class Output(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of one stream. Small: `inline`. Large: `segments` compressed pieces sent ahead."""

    total_bytes: int
    kept_bytes: int
    inline: bytes = b""
    segments: int = 0


class Report(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A worker's word on how one attempt ended."""

    job: int
    task: int
    attempt: int
    end: End
    code: int
    """Exit code, or the signal's number."""
    started_at: float
    wall_s: float
    cpu_s: float
    max_rss_bytes: int
    note: str = ""
    """For people: what happened, where the code does not say it."""
    out: Output | None = None
    err: Output | None = None
    value: Output | None = None
    """What a function returned (exit code 0) or raised, pickled."""
    exceeded: str = ""
    """`memory`, `pids` or `disk`."""
    matched: tuple[str, ...] = ()
    """What its job's rules for blocking look for in outputs (`stderr:/quota/`) and was found in this one's."""
    errno: str = ""
    """`ENOSPC`: why its worker could not even run it, where the system said so."""
    said: str = ""
    """If `known` is among `matched`: a piece of its output, which begins with what was found."""
    seen: tuple[str, ...] = ()
    """For each of `matched`: the line in which it was found, or the part around it. Of `known` it is in `said`."""
    files: tuple[Made, ...] = ()
    """What it left, and where that was delivered to."""
    hitch: Hitch | None = None
    """Why its data could not be brought or delivered."""
    gathered: tuple[tuple[str, int], ...] = ()
    """Paths and sizes of what its runner took out of its directory, to be delivered. Only between a runner and its worker."""


class Blame(StrEnum):
    """Whose fault it was that an attempt did not end as it should."""

    TASK = "task"
    """Its command failed, or used more time or memory than it may."""
    WORKER = "worker"
    """It was lost, or lost the attempt; or it fails what others run."""
    NODE = "node"
    """Something is missing there: a directory, a program, room on the disk."""
    OUTSIDE = "outside"
    """The manager or the network: nothing was wrong with either of the others."""


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The one terminal record of a task (or, in its history, of an earlier attempt)."""

    state: TaskState
    worker: str
    ended_at: float
    report: Report
    blame: Blame | None = None
    """Whose fault it was, where that is not what the report alone would say: see `blame.blame_of`."""
