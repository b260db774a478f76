"""One lane's control groups: the kernel holds its attempts to memory, cpu and processes.

The lane's process (spawner or interpreter) enters them itself, once, and all that it starts is in them too, at no cost
per attempt. (Entering waits for the kernel: 20 ms have been measured. So nothing is moved for each attempt.) Whoever is
inside cannot remove them; the pool does, when the process is gone.

A *place* is a controller's directory. Under v1 each controller has a tree of its own, under v2 all share one.
"""

# ruff: noqa: PTH103, PTH106, PTH112, PTH123
# (A spawner imports this, and pathlib would double its start-up time.)

import errno
import os
import signal
import time

from tercel.runners import trees
from tercel.runners.measuring import Tree

MEMORY, CPU, PIDS = "memory", "cpu", "pids"
PERIOD_US = 100_000
_REMOVE_S = 2.0
_ROUNDS_MOST = 8
_READ_BYTES = 8192
_OOM_FILES = {1: "memory.oom_control", 2: "memory.events"}
_HELD_FILES = {1: (b"total_rss", b"total_shmem"), 2: (b"anon", b"shmem")}

Places = dict[str, tuple[int, str]]
"""By controller: the version, and the lane's directory (which may not be there yet)."""


def as_text(places: Places) -> str:
    """For a command line."""
    return "\n".join(f"{controller} {version} {path}" for controller, (version, path) in places.items())


def from_text(text: str) -> Places:
    places: Places = {}
    for line in text.splitlines():
        controller, version, path = line.split(" ", 2)
        places[controller] = int(version), path
    return places


class Group:
    """Either its process's view or that of the pool, which only reads."""

    def __init__(self, places: Places) -> None:
        self._places = dict(places)
        self._files: dict[str, int] = {}

    def __contains__(self, controller: str) -> bool:
        return controller in self._places

    def enter(self) -> None:
        """Make the groups and move this process there. Places where that cannot be done are no longer its own."""
        for controller, (_, path) in list(self._places.items()):
            try:
                self._make(controller)
                _write(path, "cgroup.procs", str(os.getpid()))
            except OSError:
                del self._places[controller]

    def gather(self) -> bool:
        """Enter the group that counts processes, and no other, if that is free: whoever finds it finds all that is started.

        Only under v1: there a thread may move itself (and this process has but one) without waiting for anybody, in 0.1 ms.
        """
        version, path = self._places.get(PIDS, (2, ""))
        if version != 1:
            return False
        try:
            self._make(PIDS)
            _write(path, "tasks", "0")
        except OSError:
            return False
        return True

    def _make(self, controller: str) -> None:
        version, path = self._places[controller]
        if os.path.isdir(path):
            return
        os.makedirs(path, exist_ok=True)
        if controller == CPU:
            # The worker's lanes together compete with others like so many processes as there are cores, not like one.
            _weigh(version, path.rpartition("/")[0], 1000 * (os.cpu_count() or 1))

    def leave(self) -> None:
        """Go back to where this process came from, and remove what that leaves empty, also one above.

        Only under v1: under v2 nobody may be in a group that others are below of. So there, and wherever else it
        fails, the worker removes them, or the next one in its directory.
        """
        for version, path in self._places.values():
            if version == 1 and os.getpid() in members(path):
                above = path.rpartition("/")[0]
                try:
                    _write(above.rpartition("/")[0], "tasks", "0")
                except OSError:
                    continue
                _rmdir(path)
                _rmdir(above)

    def adopt(self, controller: str, tree: Tree) -> None:
        """Move those here that are not yet. What they start meanwhile is found in another round. Raises OSError."""
        _, path = self._places[controller]
        self._make(controller)
        for _ in range(_ROUNDS_MOST):
            strangers = set(tree()).difference(members(path))
            if not strangers:
                return
            for pid in strangers:
                try:
                    _write(path, "cgroup.procs", str(pid))
                except ProcessLookupError:
                    pass

    def holds(self, pid: int, controller: str) -> bool:
        """Whether that process has entered."""
        if controller not in self._places:
            return False
        _, path = self._places[controller]
        return pid in members(path)

    def outside(self, controller: str, pids: list[int]) -> list[int]:
        """Those of these processes that are neither here nor in a group below."""
        _, path = self._places[controller]
        missing = set(pids).difference(members(path))
        if missing:
            missing.difference_update(*map(members, _tree(path)))
        return [pid for pid in missing if trees.is_alive(pid)]  # a dead one is in no group

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()

    # -- limits: 0 is none; raise OSError -------------------------------------------------------------------

    def limit_memory(self, mem_bytes: int) -> None:
        version, path = self._places[MEMORY]
        if version == 2:
            _write(path, "memory.max", str(mem_bytes or "max"))
            _write_if_there(path, "memory.swap.max", "0" if mem_bytes else "max")
            return
        # Memory and swap together may never be limited to less than memory alone, on the way either.
        _write_if_there(path, "memory.memsw.limit_in_bytes", "-1")
        _write(path, "memory.limit_in_bytes", str(mem_bytes or -1))
        if mem_bytes:
            _write_if_there(path, "memory.memsw.limit_in_bytes", str(mem_bytes))

    def limit_cpu(self, millicpus: int) -> None:
        version, path = self._places[CPU]
        quota_us = millicpus * PERIOD_US // 1000
        _weigh(version, path, millicpus or 1000)
        if version == 2:
            _write(path, "cpu.max", f"{quota_us or 'max'} {PERIOD_US}")
            return
        _write(path, "cpu.cfs_period_us", str(PERIOD_US))
        _write(path, "cpu.cfs_quota_us", str(quota_us or -1))

    def limit_pids(self, pids: int) -> None:
        _write(self._places[PIDS][1], "pids.max", str(pids or "max"))

    # -- what has happened ----------------------------------------------------------------------------------

    def oom_kills(self) -> int:
        """How many processes the kernel has ended for want of memory. 0 as well if there is no such group."""
        version, path = self._places.get(MEMORY, (1, ""))
        return _number(self._read(path, _OOM_FILES[version]), b"oom_kill")

    def denied_forks(self) -> int:
        _, path = self._places.get(PIDS, (1, ""))
        return _number(self._read(path, "pids.events"), b"max")

    def memory_bytes(self) -> int:
        """What it holds that is not merely a copy of something on disk."""
        version, path = self._places.get(MEMORY, (1, ""))
        stat = self._read(path, "memory.stat")
        return sum(_number(stat, key) for key in _HELD_FILES[version])

    def _read(self, path: str, name: str) -> bytes:
        try:
            fd = self._files.get(name)
            if fd is None:
                fd = self._files[name] = os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(fd, _READ_BYTES, 0)
        except OSError:
            return b""


def _weigh(version: int, path: str, millicpus: int) -> None:
    """Its part where others want the same cores: that of an ordinary process for each."""
    if version == 2:
        _write_if_there(path, "cpu.weight", str(max(1, min(10_000, millicpus // 10))))
    else:
        _write_if_there(path, "cpu.shares", str(max(2, min(262_144, millicpus * 1024 // 1000))))


def _number(text: bytes, key: bytes) -> int:
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name == key:
            return int(value)
    return 0


def _write(path: str, name: str, value: str) -> None:
    fd = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _write_if_there(path: str, name: str, value: str) -> None:
    """Kernels that do not count swap have no such file."""
    try:
        _write(path, name, value)
    except FileNotFoundError:
        pass


# -- groups of processes that are gone ----------------------------------------------------------------------


def members(path: str) -> list[int]:
    """The processes in a group; none if it is not there."""
    try:
        with open(f"{path}/cgroup.procs", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def remove(path: str, spared: frozenset[int] = frozenset()) -> bool:
    """End what is in a group and below it, and remove all of that. Whether it is gone; nobody waits long for it."""
    give_up_at = time.monotonic() + _REMOVE_S
    while True:
        below = _tree(path)
        for group in below:
            for pid in members(group):
                if pid not in spared:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except (ProcessLookupError, PermissionError):
                        pass
        if not [group for group in reversed(below) if not _rmdir(group)]:
            return True
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.005)


def _tree(path: str) -> list[str]:
    """It and the groups below it, parents first."""
    found, todo = [], [path]
    while todo:
        here = todo.pop()
        try:
            entries = [entry.path for entry in os.scandir(here) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        found.append(here)
        todo += entries
    return found


def _rmdir(path: str) -> bool:
    try:
        os.rmdir(path)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True
