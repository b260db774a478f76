"""What this node is and how much of it a worker gives to tasks.

A limit that somebody set on this process (affinity, a container's or a batch system's cgroup) counts, not what the
machine has. What takes time to find out is remembered in the worker's directory.
"""

import math
import os
import platform
import shutil
import socket
from pathlib import Path

from tercel import __version__
from tercel.core.errors import UsageError
from tercel.core.model import Needs
from tercel.core.presence import Gpu, WorkerInfo
from tercel.core.resources import WHOLE
from tercel.worker import cgroups, engines, gpus, speed
from tercel.worker.options import WorkerOptions
from tercel.worker.remembered import Remembered, remember, remembered

_ROOT = Path("/")


def describe(options: WorkerOptions) -> WorkerInfo:
    """How a worker with these options describes itself. Takes a moment: GPUs and programs are asked.

    Raises UsageError if the options leave nothing to tasks, or name GPUs that are not there.
    """
    known = remembered(options.dir)
    now = Remembered(cpu=speed.cpu_model(), engines=engines.found(known.engines))
    same_cpu = known.cpu == now.cpu and known.speed > 0
    now.speed = known.speed if same_cpu else speed.measured()
    if now != known:
        remember(options.dir, now)
    offered = gpus.offered(options.gpus, gpus.found(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    return WorkerInfo(
        node=node_name(),
        site=options.site,
        capacity=capacity(options, offered),
        os=platform.system().lower(),
        arch=platform.machine(),
        python=platform.python_version(),
        version=__version__,
        pid=os.getpid(),
        kernel=platform.release(),
        speed=now.speed,
        disk_bytes=disk_bytes(options.dir),
        dir=str(options.dir),
        gpus=offered,
        containers=tuple(now.engines),
        tags=options.tags,
        indices=_indices(options, offered),
    )


def node_name() -> str:
    return socket.gethostname() or "node"


def capacity(options: WorkerOptions, offered: tuple[Gpu, ...] = (), root: Path = _ROOT) -> Needs:
    """What is given to tasks while nobody else needs the node: as the options say, else what is found here."""
    cpus = given_cpus(options, usable_cores(root))
    mem_bytes = options.mem_bytes if options.mem_bytes is not None else usable_mem_bytes(root)
    amounts = options.resources | {
        name: WHOLE * len(names) for name, names in _indices(options, offered).items()
    }
    return Needs(round(cpus * 1000), mem_bytes, "", tuple(sorted(amounts.items())))


def _indices(options: WorkerOptions, offered: tuple[Gpu, ...]) -> dict[str, tuple[str, ...]]:
    gpu_ids = tuple(gpu.id for gpu in offered)
    return options.pieces | ({"gpus": gpu_ids} if gpu_ids else {})


def given_cpus(options: WorkerOptions, cores: int) -> float:
    """Raises UsageError if that is nothing."""
    if options.keep_free is None:
        return default_cpus(cores) if options.cpus is None else options.cpus
    left = cores - options.keep_free
    if left <= 0:
        raise UsageError(
            f"--keep-free {options.keep_free:g} leaves nothing to tasks: there are {cores} cores here",
            "keep-free",
        )
    return left if options.cpus is None else min(left, options.cpus)


def default_cpus(cores: int) -> int:
    """All cores but one when there are more than two: the machine stays usable, and so does the worker."""
    return cores - 1 if cores > 2 else cores


def affinity() -> frozenset[int]:
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # macOS has not
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def usable_cores(root: Path = _ROOT) -> int:
    """Whole cores this process may use; at least one, for a node with half a core still runs a task."""
    return max(1, math.floor(min([len(affinity()), *cgroups.cpu_quotas(root)])))


def usable_mem_bytes(root: Path = _ROOT) -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([total, *cgroups.mem_limits(root)])


def disk_bytes(dir: Path) -> int:
    """Of the file system that a worker's directory is, or will be, on; 0 if that cannot be told."""
    for place in (dir, *dir.parents):
        try:
            return shutil.disk_usage(place).total
        except FileNotFoundError:
            continue
        except OSError:
            break
    return 0
