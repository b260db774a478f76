"""What the cgroups of this process allow it: a container's limits, or a batch system's.

In a cgroup every ancestor's limit holds as well, so the smallest on the way up decides.
"""

from collections.abc import Iterator
from pathlib import Path


def cpu_quotas(root: Path) -> Iterator[float]:
    """In cores."""
    for group in _groups(root, ""):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield int(quota) / int(period)
    for group in _groups(root, "cpu"):
        quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # without a quota it reads -1
            yield int(quota) / int(period)


def mem_limits(root: Path) -> Iterator[int]:
    # Where nothing is limited, v2 says "max" and v1 a number larger than any memory.
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for group in _groups(root, controller):
            limit = _read(group / name)
            if limit.isdigit() and int(limit) > 0:
                yield int(limit)


def mem_left(root: Path) -> Iterator[int]:
    """How much more this process and those beside it may have, in each cgroup that has a limit.

    What is only kept of files that nobody reads goes when it is needed: it counts as left.
    """
    for controller, limit, used, idle in (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for group in _groups(root, controller):
            most, now = _read(group / limit), _read(group / used)
            if most.isdigit() and now.isdigit():
                stat = dict(
                    line.split(" ", 1) for line in _read(group / "memory.stat").splitlines() if " " in line
                )
                kept = stat.get(idle, "0")
                yield max(0, int(most) - int(now) + (int(kept) if kept.isdigit() else 0))


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
