"""Measuring what the node does: cores in use, by whom, memory, disk, load. The one module that uses psutil.

Our own are this process and all below it: spawners, and what tasks have started. What has ended is in the times of who
waited for it, so the sum over those that live never goes back while its tree is whole.
"""

import math
import os
import shutil
import time
from pathlib import Path

import psutil

from tercel.runners import trees
from tercel.worker import cgroups, node
from tercel.worker.pressure import Reading

SHORTEST_S = 1.0
"""Between two measurements of processor time: ticks are 10 ms."""


class Meter:
    """Measures for the worker whose directory this is, and whose process it runs in."""

    def __init__(self, dir: Path) -> None:
        self._dir = dir
        self._cores = node.affinity()
        self._mem_bytes = node.usable_mem_bytes()
        self._before: tuple[float, float, float] | None = None
        """When it measured last, how much was used by then in all, and by us."""

    def read(self) -> Reading:
        """Looks at every process below this one: some milliseconds where there are many. Raises OSError."""
        own_s, own_mem_bytes = _own_use()
        busy, own = self._cpu(own_s)
        memory = psutil.virtual_memory()
        free_bytes = min([int(memory.available), self._mem_bytes, *cgroups.mem_left(Path("/"))])
        disk_bytes, disk_free_bytes = _disk(self._dir)
        load = psutil.getloadavg()[0]
        return Reading(
            cores=len(self._cores),
            busy=busy,
            own=own,
            mem_bytes=self._mem_bytes,
            mem_free_bytes=free_bytes,
            own_mem_bytes=own_mem_bytes,
            disk_bytes=disk_bytes,
            disk_free_bytes=disk_free_bytes,
            load=load if math.isfinite(load) else 0.0,
        )

    def _cpu(self, own_s: float) -> tuple[float | None, float]:
        """(cores in use, cores in use by us) since the last time that was long enough ago."""
        now = time.monotonic()
        if self._before is not None and now - self._before[0] < SHORTEST_S:
            return None, 0.0
        before, self._before = self._before, (now, _busy_s(self._cores), own_s)
        if before is None:
            return None, 0.0
        passed_s, busy_s, used_s = (new - old for new, old in zip(self._before, before, strict=True))
        return min(len(self._cores), max(0.0, busy_s) / passed_s), max(0.0, used_s) / passed_s


def _busy_s(cores: frozenset[int]) -> float:
    """Processor time of these cores that somebody used, since the node started."""
    times = psutil.cpu_times(percpu=True)
    chosen = [times[core] for core in cores if core < len(times)] or times
    return sum(float(sum(t)) - _unused(t) for t in chosen)


def _unused(times: object) -> float:
    """Idle, waiting for a disk, or stolen by a neighbour of this virtual machine (which we do not see either way). What
    guests use is counted in `user` already."""
    names = ("idle", "iowait", "steal", "guest", "guest_nice")
    return sum(float(getattr(times, name, 0.0)) for name in names)


def _own_use() -> tuple[float, int]:
    """(processor seconds so far, bytes of memory) of this process and all below it."""
    pid = os.getpid()
    cpu_s, mem_bytes = 0.0, 0
    for process in map(_process, [pid, *trees.descendants(pid)]):
        if process is None:
            continue
        try:
            with process.oneshot():
                cpu_s += sum(process.cpu_times()[:4])  # user, system, and those of children that have ended
                if process.pid != pid:
                    mem_bytes += process.memory_info().rss
        except psutil.Error:
            continue  # it has ended, or runs as somebody else
    return cpu_s, mem_bytes


def _process(pid: int) -> "psutil.Process | None":
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _disk(dir: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(dir)
    except OSError:
        return 0, 0  # whether it can be written is asked elsewhere
    return usage.total, usage.free
