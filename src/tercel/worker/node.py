"""What this node is and how much of it a worker gives to tasks.

A limit that somebody set on this process (affinity, a container's or a batch system's cgroup) counts, not what the
machine has. In a cgroup every ancestor's limit holds as well, so the smallest on the way up decides.
"""

import math
import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path

from tercel import __version__
from tercel.core.model import Needs
from tercel.core.presence import WorkerInfo
from tercel.worker.options import WorkerOptions

_ROOT = Path("/")


def describe(options: WorkerOptions) -> WorkerInfo:
    """How a worker with these options describes itself."""
    return WorkerInfo(
        node=node_name(),
        site=options.site,
        capacity=capacity(options),
        os=platform.system().lower(),
        arch=platform.machine(),
        python=platform.python_version(),
        version=__version__,
        pid=os.getpid(),
    )


def node_name() -> str:
    return socket.gethostname() or "node"


def capacity(options: WorkerOptions, root: Path = _ROOT) -> Needs:
    """What is given to tasks: as the options say, else what is found here."""
    cpus = options.cpus if options.cpus is not None else default_cpus(usable_cores(root))
    mem_bytes = options.mem_bytes if options.mem_bytes is not None else usable_mem_bytes(root)
    return Needs(round(cpus * 1000), mem_bytes)


def default_cpus(cores: int) -> int:
    """All cores but one when there are more than two: the machine stays usable, and so does the worker."""
    return cores - 1 if cores > 2 else cores


def usable_cores(root: Path = _ROOT) -> int:
    """Whole cores this process may use; at least one, for a node with half a core still runs a task."""
    has_affinity = hasattr(os, "sched_getaffinity")  # macOS has not
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, math.floor(min([cores, *_cpu_quotas(root)])))


def usable_mem_bytes(root: Path = _ROOT) -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([total, *_mem_limits(root)])


def _cpu_quotas(root: Path) -> Iterator[float]:
    for group in _groups(root, ""):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield int(quota) / int(period)
    for group in _groups(root, "cpu"):
        quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # without a quota it reads -1
            yield int(quota) / int(period)


def _mem_limits(root: Path) -> Iterator[int]:
    # Where nothing is limited, v2 says "max" and v1 a number larger than any memory.
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for group in _groups(root, controller):
            limit = _read(group / name)
            if limit.isdigit() and int(limit) > 0:
                yield int(limit)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The directories of this process's cgroup and its ancestors; the empty controller is v2's single tree.

    A container may show its own cgroup as the mount's root while /proc names the path outside: directories
    that are not there are harmless, and the way up ends at the root.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller not in controllers.split(","):
            continue
        # v1 mounts one tree per controller, often with a name that joins several; v2 beside v1 is "unified".
        tops = [
            root / "sys/fs/cgroup" / name
            for name in ([controllers, controller] if controller else ["", "unified"])
        ]
        for top in dict.fromkeys(tops):
            here = top / path.lstrip("/")
            while here != top and top in here.parents:
                yield here
                here = here.parent
            yield top


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
