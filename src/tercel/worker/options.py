"""What can be set about a worker."""

from pathlib import Path

import msgspec


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    dir: Path
    """Its directory: identity, spool, sandboxes. One worker at a time uses it."""
    cpus: float | None = None
    """Given to tasks; None: all cores but one when there are more than two."""
    mem_bytes: int | None = None
    """Given to tasks; None: what the node has."""
    site: str = ""
    reconnect_most_s: float = 30.0
    """The longest pause between two attempts to reach the manager."""
    leave_when_unreachable_s: float = 0.0
    """Give up after the manager has been unreachable so long; 0: never."""
