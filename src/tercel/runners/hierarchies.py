"""Which control groups a worker may use, and those it makes: one below its own per hierarchy, one below that per lane.

    <own group>/tercel-<digest of the worker's directory>/<lane>

v1 has a hierarchy per controller (memory, cpu, pids); v2 has one, whose controllers must be passed on from group to
group, which the kernel allows only where no process is in the group that passes them on. So a worker that is alone in its
group moves into one below it; beside others (a login shell) it does without.

Where the groups were made stands in a file, for the next process may find itself elsewhere and still has to remove them.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from tercel.runners import cgroups, trees
from tercel.runners.cgroups import CPU, MEMORY, PIDS, Places

CONTROLLERS = (MEMORY, CPU, PIDS)
_FILE = "cgroups"
_ROOT = Path("/")


class Hierarchies:
    def __init__(self, dir: Path, *, use: bool = True, root: Path = _ROOT) -> None:
        """`use`: whether to make any. `root` is where /proc and /sys are looked for."""
        self._use = use
        self._record = dir / _FILE
        self._root = root
        self._name = f"tercel-{hashlib.sha256(os.fsencode(dir)).hexdigest()[:12]}"
        self._bases: Places = {}

    def open(self) -> None:
        """Remove what an earlier process left, and make what lanes need. Waits for the kernel."""
        owns = own_groups(self._root) if self._use else {}
        made_before = [path for path in _lines(self._record) if Path(path).name == self._name]
        here = [str(place / self._name) for _, place in owns.values()]
        spared = frozenset(trees.ancestry())
        for path in dict.fromkeys([*made_before, *here]):
            cgroups.remove(path, spared)
        # Written before they are made: what is made and not written down would stay for ever.
        self._record.write_text("".join(f"{path}\n" for path in dict.fromkeys(here)))
        for controller, (version, own) in owns.items():
            if self._can_use(controller, version, own):
                self._bases[controller] = version, str(own / self._name)

    def _can_use(self, controller: str, version: int, own: Path) -> bool:
        if version == 1:
            return os.access(own, os.W_OK)  # the first that needs a group there makes it
        try:
            _pass_on(own, controller)
            base = own / self._name
            base.mkdir(exist_ok=True)
            _pass_on(base, controller)
        except OSError:
            return False
        return True

    def places(self, lane: str) -> Places:
        return {
            controller: (version, f"{base}/{lane}") for controller, (version, base) in self._bases.items()
        }

    def close(self) -> None:
        """When all lanes are gone. What cannot be removed now is at the next start."""
        gone = [cgroups.remove(path) for path in {path for _, path in self._bases.values()}]
        if all(gone):
            self._record.unlink(missing_ok=True)


def _pass_on(group: Path, controller: str) -> None:
    """Have the groups below this one of v2 count by that controller. Raises OSError."""
    switch = group / "cgroup.subtree_control"
    if controller in switch.read_text().split():
        return
    if controller not in (group / "cgroup.controllers").read_text().split():
        raise FileNotFoundError(controller)
    if cgroups.members(str(group)) == [os.getpid()]:
        leaf = group / "tercel-worker"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
    switch.write_text(f"+{controller}")


def own_groups(root: Path) -> dict[str, tuple[int, Path]]:
    """By controller: the version of its hierarchy, and this process's group there."""
    found: dict[str, tuple[int, Path]] = {}
    paths = dict(_memberships(root))
    for mount_root, point, kind, options in _mounts(root):
        if kind == "cgroup":
            names = [name for name in CONTROLLERS if name in options and name in paths]
        else:
            names = [name for name in CONTROLLERS if "" in paths and name not in found and name not in paths]
        for name in names:
            path = paths[name if kind == "cgroup" else ""]
            group = root / point.lstrip("/") / _below(path, mount_root)
            if kind == "cgroup" or _offers(group, name):
                found[name] = (1 if kind == "cgroup" else 2), group
    return found


def _memberships(root: Path) -> Iterator[tuple[str, str]]:
    """(controller, path); the empty controller is v2's tree."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _mounts(root: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """(what of the hierarchy is mounted, where, its kind, its options) of those of cgroups."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, *options = after.split(" ")
        if kind in ("cgroup", "cgroup2"):
            fields = before.split(" ")
            yield fields[3], fields[4], kind, ",".join(options).split(",")


def _below(path: str, mounted: str) -> str:
    """A container may show its own group as the root of the mount, while its path is told from outside, or inside."""
    if mounted != "/" and (path == mounted or path.startswith(mounted + "/")):
        path = path[len(mounted) :]
    elif mounted != "/":
        path = ""
    return path.lstrip("/")


def _offers(group: Path, controller: str) -> bool:
    return controller in " ".join(_lines(group / "cgroup.controllers")).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
