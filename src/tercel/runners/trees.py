"""Finding and ending process trees.

A spawner is a subreaper: a process whose parent dies becomes the spawner's child instead of init's, whatever
session it has moved to. So all that an attempt leaves behind can be found from the spawner, and nothing is left
exactly when the spawner has no child any more.
"""

# ruff: noqa: PTH110, PTH123, PTH208
# (/proc, and pathlib would double a spawner's start-up time.)

import ctypes
import os
import signal
import time
from collections.abc import Callable, Set

from tercel.runners.posix_spawn import sigset

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STOP_FIRST_S = 1.0


def become_subreaper() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent() -> None:
    """KILL for this process when the thread that started it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def child_signals() -> int:
    """A descriptor that becomes readable when a child has ended: a signalfd for SIGCHLD, which it blocks.

    One descriptor for a spawner's life is cheaper than a pidfd per attempt, tells of orphans as well, and exists
    on kernels that have no pidfds.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGCHLD])
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.signalfd(-1, sigset([signal.SIGCHLD]), os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return fd


def own_children() -> int:
    """A descriptor of the list of this process's children, or -1 where the kernel does not offer it.

    Read from 0, it is empty exactly when there is none, which wait4 tells only at the price of an exception.
    """
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def descendants(pid: int) -> list[int]:
    """Parents before children. A snapshot: what forks meanwhile may be missing."""
    children = _children if os.path.exists(f"/proc/{pid}/task/{pid}/children") else _children_by_scan()
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children(todo.pop())
        found += below
        todo += below
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass  # it has ended; its children are the subreaper's now
    return found


def _children_by_scan() -> Callable[[int], list[int]]:
    """For kernels without the children file: one look at every process."""
    below: dict[int, list[int]] = {}
    for pid in _all_pids():
        if (stat := _stat(pid)) is not None:
            below.setdefault(stat[1], []).append(pid)
    return lambda pid: below.get(pid, [])


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # gone, or it runs as somebody else


def terminate_descendants() -> None:
    """Ask all of them to end. Stopped ones are woken, or they could not."""
    pids = descendants(os.getpid())
    signal_all(pids, signal.SIGTERM)
    signal_all(pids, signal.SIGCONT)


def warn(pids: list[int], number: int) -> bool:
    """Send a signal to those that handle it or have blocked it, and to no other: it would end them.

    Returns whether there was any.
    """
    willing = [pid for pid in pids if _minds(pid, number)]
    signal_all(willing, number)
    return bool(willing)


def _minds(pid: int, number: int) -> bool:
    try:
        lines = _read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return False  # it has ended
    masks = [line.split()[1] for line in lines if line.startswith((b"SigCgt:", b"SigBlk:"))]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def kill_descendants(reap: Callable[[], bool], stuck: set[int], patience_s: float) -> int:
    """KILL all of them and reap until none is left. Returns how many there were.

    `reap` takes in what has ended and says whether any child is left. Processes that fork are first stopped, all
    of them, so that they cannot outrun the killing. Those that will not die (they hang in the kernel, or belong
    to another user) are added to `stuck` after a while, and are not waited for again.
    """
    begun = time.monotonic()
    seen: set[int] = set()
    while reap():
        alive = [pid for pid in descendants(os.getpid()) if pid not in stuck]
        if not alive:
            break
        new = [pid for pid in alive if pid not in seen]
        seen.update(new)
        waited_s = time.monotonic() - begun
        if new and waited_s < _STOP_FIRST_S:
            signal_all(new, signal.SIGSTOP)
            continue
        signal_all(alive, signal.SIGKILL)
        if waited_s > patience_s:
            stuck.update(alive)
            break
        time.sleep(0.0005)
    else:
        stuck.clear()
    return len(seen)


def kill_strays(marker: bytes, sessions: Set[int], patience_s: float) -> int:
    """KILL processes that have lost their spawner, until none is found. Returns how many there were.

    They are told by `marker`, which begins a variable of their environment, or by their session. This process and
    those above it are never meant: a worker may have been started from within a task.
    """
    spared = ancestry()
    seen: set[int] = set()
    give_up_at = time.monotonic() + patience_s
    while True:
        strays = [pid for pid in _all_pids() if pid not in spared and _is_stray(pid, marker, sessions)]
        if not strays:
            return len(seen)
        seen.update(strays)
        signal_all(strays, signal.SIGKILL)
        if time.monotonic() > give_up_at:
            return len(seen)
        time.sleep(0.002)


def _is_stray(pid: int, marker: bytes, sessions: Set[int]) -> bool:
    stat = _stat(pid)
    if stat is None or stat[0] == "Z":
        return False
    if stat[2] in sessions:
        return True
    try:
        environ = b"\0" + _read(f"/proc/{pid}/environ")
    except OSError:
        return False  # it has ended, or is another user's
    return b"\0" + marker in environ


def ancestry() -> set[int]:
    pids = {0}
    pid = os.getpid()
    while pid not in pids:
        pids.add(pid)
        stat = _stat(pid)
        pid = stat[1] if stat is not None else 0
    return pids


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and session; None if there is no such process."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[3])


def is_alive(pid: int) -> bool:
    """Not ended, nor merely waiting for somebody to take note of its end."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def name_of(pid: int) -> bytes:
    """Of its program, as the kernel has it; empty if there is no such process."""
    try:
        return _read(f"/proc/{pid}/comm").rstrip()
    except OSError:
        return b""


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
