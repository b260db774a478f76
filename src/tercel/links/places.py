"""Where Tercel keeps things on this machine, by the XDG base directory specification.

    data     $XDG_DATA_HOME/tercel     what must last: a manager's store, a worker's spool
    cache    $XDG_CACHE_HOME/tercel    what can be had again: files that tasks read
    runtime  $XDG_RUNTIME_DIR/tercel   what lives as long as a login: the access file

Every directory is its owner's alone (0700). A variable that is empty or not an absolute path is ignored, as the
specification demands.
"""

import os
from pathlib import Path

from tercel.core.errors import UsageError


def data_dir() -> Path:
    return private_dir(_data_home() / "tercel")


def shared_cache_dir(dir: Path) -> Path | None:
    """The cache of all workers of this user, for one that works in `dir`; it is made by whoever uses it.

    None: it would be on another disk, from which files are copied and not linked; or it cannot be written to, as a home
    directory often cannot on a cluster's nodes.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        found = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "tercel"
        at, near = _there(found), _there(dir)
        is_fit = at.stat().st_dev == near.stat().st_dev and os.access(at, os.W_OK | os.X_OK)
    except (RuntimeError, OSError):  # there is no home, or no getting at it
        return None
    return found if is_fit else None


def _there(path: Path) -> Path:
    """As much of it as there is."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def runtime_dir() -> Path:
    """Falls back to the data directory where there is no usable runtime directory (cron, su, containers)."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base.startswith("/"):
        path = Path(base) / "tercel"
        try:
            # Its parent is the login system's to make: a missing one means that there is no session.
            path.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            pass
        else:
            if path.stat().st_uid == os.getuid():
                return path
    return data_dir()


def private_dir(path: Path) -> Path:
    """Make the directory if it is missing, for its owner alone."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the directory {path}: {error.strerror}") from None
    return path


def _data_home() -> Path:
    value = os.environ.get("XDG_DATA_HOME", "")
    if value.startswith("/"):
        return Path(value)
    try:
        return Path.home() / ".local/share"
    except RuntimeError:
        raise UsageError("there is no home directory: set XDG_DATA_HOME to a directory of yours") from None
