"""What travels between client and manager about what befell tasks, about undoing it, and about removing it. See api."""

import msgspec

from tercel.core.states import Checkpoint, TaskState


class HistoryEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that befell a task, or tasks of a job."""

    at: float
    what: str
    """One or two words: accepted, held, started, failed, blocked, rolled back, …"""
    text: str = ""
    """By whom, and why."""
    attempt: int | None = None
    worker: str = ""
    code: int | None = None
    """The exit code, or the signal's number."""
    wall_s: float | None = None
    blame: str = ""
    """Whose fault it was: `task`, `worker`, `node` or `outside`."""
    until: float | None = None
    """Of a job: when the last of such followed upon the first."""
    tasks: str = ""
    """Of a job: which of its tasks, 0-9,12; of very many ranges the first ones."""
    count: int = 0
    """Of a job: how many tasks that are."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """37.4, or 37."""
    events: list[HistoryEvent]
    """Oldest first."""
    more: bool
    """More follow: ask again with `skip` = `next`."""
    next: int
    now: str = ""
    """How it stands, in words."""


class Rollback(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Back to an earlier checkpoint: see POST /rollback."""

    select: list[str]
    reason: str = ""
    states: list[TaskState] = []
    """Only tasks that ended so. None: of whole jobs those that failed; of named tasks, or with `since`, all that ended."""
    since: float | None = None
    """Only tasks that ended then or later."""
    to: Checkpoint = Checkpoint.ACCEPTED
    only: bool = False
    """Leave alone what finished using their results."""
    force: bool = False
    """Cancel what is under way and in the way."""
    dry_run: bool = False


class RollbackPart(msgspec.Struct, frozen=True, kw_only=True):
    """What is undone of one job."""

    job: int
    name: str
    tasks: str
    """0-9,12; of very many ranges the first ones."""
    failed: int
    cancelled: int
    finished: int
    """How many of the chosen tasks ended so."""
    used: int
    """How many finished using results that are undone."""
    skipped: int
    """How many were skipped, and wait again."""
    outputs: int
    """Pieces of output that attempts left half done, and that are dropped."""
    files: int = 0
    """Files that they made: taken out of the catalogue, and removed where they were delivered to before the tasks run again ..."""
    names: list[str] = []
    """... and the first of them."""


class RolledBack(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    """Tasks, in all."""
    to: Checkpoint
    """The last healthy checkpoint, not after the one asked for."""
    parts: list[RollbackPart]
    under_way: list[str]
    """Tasks that had (or would have) to be cancelled for it: 37.0-9."""
    hopeless: int
    """Chosen tasks that need something else which has not ended as it should: they stay as they are."""
    dry_run: bool
    note: str = ""


class Clean(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    older_s: float
    """How long ago jobs must have ended, conditions been closed, and things been noted."""
    dry_run: bool = False
    snapshot: bool = True
    """Take one of what is removed before."""


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    jobs: int
    tasks: int
    output_bytes: int
    """About: of the outputs of their tasks."""
    conditions: int = 0
    notes: int = 0
    attempts: int = 0
    """Earlier ones, of tasks that were tried very often."""
    dry_run: bool = False
    note: str = ""
