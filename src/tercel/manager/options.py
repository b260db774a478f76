"""What can be set about a manager."""

from pathlib import Path

import msgspec

from tercel.core.throttles import Rates


class ManagerOptions(msgspec.Struct, frozen=True, kw_only=True):
    data: Path
    """Its directory: the store, and the lock that keeps a second manager out."""
    host: str = "127.0.0.1"
    port: int = 7717
    """0 takes any free one."""
    heartbeat_s: float = 10.0
    """Workers are heard at least this often; three missed beats close a link."""
    grace_s: float = 60.0
    """How long a worker may be away before its tasks are given to others."""
    embedded: bool = False
    """Inside a `tercel run`, and gone with it."""
    private: bool = False
    """For the process that started it alone: its access file is in its own directory, where no client looks."""
    rates: Rates = Rates()
    """Throttles."""
    snapshot_every_s: float = 0.0
    """How often unfinished jobs are put into a snapshot; 0: never."""
    snapshots_kept: int = 10
    """Of those that it takes by itself, the last so many of each kind (by schedule, and before something is done) ..."""
    snapshots_bytes: int = 4 * 2**30
    """... if all of them are not larger together."""
    history_s: float = 0.0
    """Notes, closed conditions and the middle of long histories go when they are so old; 0: when somebody cleans."""
