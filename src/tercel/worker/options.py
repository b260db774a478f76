"""What can be set about a worker."""

from pathlib import Path

import msgspec

HEARTBEAT_MOST_S = 3600.0
"""What a manager may ask for."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    dir: Path
    """Its directory: identity, spool, sandboxes. One worker at a time uses it."""
    cpus: float | None = None
    """Given to tasks; None: all cores but one when there are more than two."""
    mem_bytes: int | None = None
    """Given to tasks; None: what the node has."""
    keep_free: float | None = None
    """Cores that are left to people; None: one when there are more than two. See pressure for what else it means."""
    floor_cpus: float = 0.0
    """Given to tasks however busy the node is."""
    site: str = ""
    tags: tuple[str, ...] = ()
    resources: dict[str, int] = {}
    """Countable ones, in thousandths."""
    pieces: dict[str, tuple[str, ...]] = {}
    """Of indexed ones: the names of their pieces."""
    gpus: int | tuple[str, ...] | None = None
    """So many, these, or (None) all that are found."""
    time_limit_s: float | None = None
    """It leaves after so long."""
    health_check: str = ""
    """A shell command that says whether this node is fit for tasks."""
    cache_dir: Path | None = None
    """Where files that tasks read are kept for the next ones; all workers of a node may share one. None: in its own directory."""
    cache_bytes: int = 20 * 2**30
    """Of those files, at most; and of values that calls refer to, kept on disk for the next ones."""
    log: Path | None = None
    """The file that its process logs into, if it does."""
    reconnect_most_s: float = 30.0
    """The longest pause between two attempts to reach the manager."""
    leave_when_unreachable_s: float = 0.0
    """Give up after the manager has been unreachable so long; 0: never."""
