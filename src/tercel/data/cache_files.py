"""What a cache's directory looks like, how its files are told from changed ones, and its locks.

    dir/lock                          locked (flock) for moments: something is added, or room is made
    dir/index                         what is here: see cache_index
    dir/objects/ab/<digest>           a file, whole and checked; 0555
    dir/pins/<holder>/<pin>+<digest>  a hard link to it: it is in use
    dir/pins/<holder>/.lock           locked while that holder lives
    dir/claims/<key>[.part]           what is being fetched, or was when somebody was killed
    dir/claims/<key>.lock             locked while somebody fetches it; holds the room that is reserved for it
    dir/trash/<digest>                what is on its way out

The kernel unlocks what a process held when it ends, however it ends. All of it belongs to one user.
"""

# ruff: noqa: PTH108, PTH116, PTH208
import errno
import fcntl
import hashlib
import os
import re
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from tercel.core.errors import UsageError
from tercel.core.files import is_digest

HOLDER_LOCK = ".lock"
PIN_OF = "+"
"""Between a pin's name and what it pins. A directory for each pin would cost more than all the rest."""
LOCK_WAIT_S = 2.0
"""How long a lock that is held for moments is waited for: its holder may be stopped, or the disk stuck."""
_LOCK_AGAIN_S = 0.001
_NAME = re.compile(r"(?!\.)[\w.-]{1,128}")
_PARTS = ("objects", "pins", "claims", "trash")
MODE = 0o555
"""Of files: a program is one that can be run, and nothing else about a file says whether it is one."""
_OBJECT = stat.S_IFREG | MODE
_MARKS_FROM_S = 10**9
"""September 2001: before anything that a task makes, so that `make` takes no input for newer than what is made from it."""


def checked_digest(digest: str) -> str:
    if not is_digest(digest):
        raise UsageError(f"{digest!r} is no digest, such as blake3:… with 64 hex digits", "digest")
    return digest


def checked_name(name: str, field: str) -> str:
    """Of a holder or a pin: it becomes the name of a directory."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for the cache: letters, digits, - _ and . inside", field)
    return name


def claim_name(key: str) -> str:
    """A URL is not written down: it may have a secret in it."""
    if is_digest(key):
        return key
    if key.startswith("url:"):
        return f"url-{hashlib.sha256(key.encode()).hexdigest()}"
    raise UsageError(f"{key!r} is neither a digest nor url:…", "key")


def object_path(objects: str, digest: str) -> str:
    at = digest.index(":") + 1
    return f"{objects}/{digest[at : at + 2]}/{digest}"


# -- marks --------------------------------------------------------------------------------------------------


def mark_ns(digest: str, size_bytes: int) -> int:
    """The time of change that a file in the cache is given. Whoever writes to it, or cuts it, gives it another.

    So a file tells by itself whether it is still what was checked. In whole seconds: every file system keeps those.
    """
    return (_MARKS_FROM_S + zlib.crc32(f"{digest} {size_bytes}".encode()) % 2**28) * 10**9


def is_intact(digest: str, status: os.stat_result) -> bool:
    """Not written to since it was checked, and nobody made it writable in order to."""
    return status.st_mode == _OBJECT and status.st_mtime_ns == mark_ns(digest, status.st_size)


# -- locks --------------------------------------------------------------------------------------------------


def locked(path: str, wait_s: float = 0.0) -> int | None:
    """A descriptor of this file, made if need be, that holds its lock; None: another one holds it.

    Who has the lock may remove the file; a lock on what was removed is worth nothing, so that is looked at.
    """
    until = time.monotonic() + wait_s
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False)):
                return fd
            os.close(fd)
            continue
        except BlockingIOError:
            os.close(fd)
        except FileNotFoundError:
            os.close(fd)
            continue
        except OSError:
            os.close(fd)
            raise
        if time.monotonic() >= until:
            return None
        time.sleep(_LOCK_AGAIN_S)


def lock_for_a_moment(fd: int) -> bool:
    """Whether it could be had in time."""
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
        time.sleep(_LOCK_AGAIN_S)


# -- the directory ------------------------------------------------------------------------------------------


def make_ready(dir: Path) -> None:
    """All parts of it. Raises OSError if it cannot be used."""
    dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _own(dir)
    for part in _PARTS:
        make_own(dir / part)
    for shard in (dir / "objects").iterdir():
        _own(shard)
    _try_links(dir)


def make_own(path: Path) -> None:
    """A directory in it. Raises OSError if something else is in its place."""
    path.mkdir(exist_ok=True, mode=0o700)
    _own(path)


def _own(path: Path) -> None:
    """A directory that is no link, this user's, and closed to others."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ENOTDIR, "not a directory, or a link to one: a cache has none inside", str(path))
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it is another user's: give this one a cache of its own", str(path))
    if stat.S_IMODE(status.st_mode) != 0o700:
        path.chmod(0o700)


def _try_links(dir: Path) -> None:
    lock, probe = dir / "lock", dir / "trash" / f"probe-{os.getpid()}"
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        probe.unlink(missing_ok=True)
        os.link(lock, probe)
        probe.unlink(missing_ok=True)  # who makes room clears up there
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass  # somebody has it: so locks work
    except OSError as error:
        why = "its file system has no hard links or no locks: put the cache on a local disk"
        raise OSError(error.errno, f"{why} ({os.strerror(error.errno or 0)})", str(dir)) from error
    finally:
        os.close(fd)


def objects_in(objects: str) -> Iterator[tuple[str, os.stat_result]]:
    """All files by their digests, whether changed or not."""
    for shard in os.listdir(objects):
        with os.scandir(f"{objects}/{shard}") as entries:
            for entry in entries:
                if is_digest(entry.name) and object_path(objects, entry.name) == entry.path:
                    try:
                        yield entry.name, entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # removed meanwhile


def remove_pins(holder: str) -> None:
    """Of the holder that has this directory."""
    for name in os.listdir(holder):
        if name != HOLDER_LOCK:
            os.unlink(f"{holder}/{name}")


def remove_holder(holder: str) -> None:
    """By who has its lock, which goes last."""
    remove_pins(holder)
    os.unlink(f"{holder}/{HOLDER_LOCK}")
    Path(holder).rmdir()
