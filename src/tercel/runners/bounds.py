"""What holds a lane's process, and all that it starts, to a job's limits: control groups, where it has some.

Memory and processes are limited before the first attempt of a job; cpu only while an attempt runs that lasts, so that the
many that end at once pay nothing for it. Without control groups those that last are bound to as many cores as they
asked for, and memory and processes are watched (see guard).

Should memory run out, the kernel looks for the largest process of the group. That must not be the spawner: what it starts
is marked as the better choice.
"""

# ruff: noqa: PTH208
# (A spawner imports this, and pathlib would double its start-up time.)

import os
import resource

from tercel.runners.cgroups import CPU, MEMORY, PIDS, Group
from tercel.runners.guard import Guard, Limits
from tercel.runners.measuring import Tree

_VICTIM_SCORE = 800
"""Of those that the kernel may end for want of memory, from -1000 to 1000; an ordinary process has 0."""
_ROUNDS_MOST = 8
_LEFT_BYTES = 2**20
"""What a lane's process itself holds is less."""
NO_LIMITS = Limits(0, 0, 0, 0)


class Bounds:
    def __init__(self, group: Group, lane: int, own_processes: int) -> None:
        """`own_processes`: how many in the group are not the attempt's. `lane` is its number."""
        self._group = group
        self._lane = lane
        self._own_processes = own_processes
        self._entered = False
        self._gathered = False
        self._limits = NO_LIMITS
        self._enforced: frozenset[str] = frozenset()
        self._held: frozenset[str] | None = None
        self._helpers = 0
        self._marks_victims = False
        """Whether the kernel holds this job's attempts to their memory."""
        self._allowance = 0
        """What the group may hold beyond that: see _allow_for_leftovers."""
        self._file_size_most = 0
        self._holds_cpu = False
        self._cores = sorted(os.sched_getaffinity(0))
        self._score = -1
        """Descriptor of this process's own."""
        self._own_score = b"0"
        self._file_size = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.marks_children = False
        """Whether `before_start` and `after_start` have something to do."""

    def apply(self, limits: Limits, held: frozenset[str] | None = None, helpers: int = 0) -> None:
        """Of the job whose attempts come next.

        `held`: the controllers by which somebody else (an engine) does it. `helpers`: processes that do not count.
        """
        self._limits = limits
        self._helpers = helpers
        self._held = held
        own = limits if held is None else NO_LIMITS
        if own.mem_bytes or own.pids:
            self._enter()
        enforced = frozenset(self._enforce(own)) if self._entered else frozenset()
        if MEMORY in enforced and self._score < 0:
            self._score = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
            self._own_score = os.pread(self._score, 16, 0).strip()
        self._marks_victims = MEMORY in enforced
        self._file_size_most = own.disk_bytes
        self.marks_children = self._marks_victims or bool(own.disk_bytes)
        self._enforced = enforced if held is None else held

    def _enter(self) -> None:
        if not self._entered:
            self._entered = True
            self._group.enter()

    def gather(self) -> None:
        """Should this process be killed, all that it has started can be found. Before it starts anything."""
        self._gathered = self._group.gather()

    def leave(self) -> None:
        """Before this process ends."""
        if self._entered or self._gathered:
            self._group.leave()

    def _enforce(self, limits: Limits) -> list[str]:
        """Returns the controllers that hold attempts to a limit. One that cannot (any more) does not count."""
        done = []
        pids = limits.pids + self._own_processes + self._helpers if limits.pids else 0
        self._allowance = self._group.memory_bytes() if limits.mem_bytes else 0
        mem_bytes = limits.mem_bytes + self._allowance
        for controller, limit, value in (
            (MEMORY, self._group.limit_memory, mem_bytes),
            (PIDS, self._group.limit_pids, pids),
        ):
            if controller in self._group:
                try:
                    limit(value)
                except OSError:
                    continue
                if value:
                    done.append(controller)
        return done

    def guard(self, tree: Tree, directory: bytes, now: float) -> Guard | None:
        """For an attempt that begins, if it needs one."""
        if not self._limits.watched:
            return None
        group = self._group if self._held is None else Group({})
        guard = Guard(self._limits, group, self._enforced, tree, directory, now).begin()
        guard.not_its_own_bytes = self._allowance
        guard.helpers = self._helpers
        return guard

    # -- around the start of a process ----------------------------------------------------------------------

    def before_start(self) -> None:
        """What is started next inherits it."""
        if self._file_size_most:
            _, hard = self._file_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (_least(self._file_size_most, hard), hard))
        if self._marks_victims:
            os.pwrite(self._score, b"%d" % max(_VICTIM_SCORE, int(self._own_score)), 0)

    def after_start(self) -> None:
        if self._file_size_most:
            resource.setrlimit(resource.RLIMIT_FSIZE, self._file_size)
        if self._marks_victims:
            os.pwrite(self._score, self._own_score, 0)

    # -- cpu ------------------------------------------------------------------------------------------------

    def hold_cpu(self, tree: Tree) -> None:
        """An attempt lasts: from now on it gets no more than it asked for."""
        millicpus = self._limits.millicpus
        if not millicpus or millicpus >= 1000 * len(self._cores):
            return
        if self._held is not None:
            if CPU not in self._held:
                bind(tree, chosen_cores(self._cores, millicpus, self._lane))
        else:
            self._enter()
            self._holds_cpu = hold_cpu(self._group, tree, millicpus, self._cores, self._lane)

    def after_attempt(self) -> None:
        """One that lasted, or has limits. All its processes have ended."""
        if self._holds_cpu:
            self._holds_cpu = False
            try:
                self._group.limit_cpu(0)
            except OSError:
                pass  # the group is gone, and its limit with it
        if self._marks_victims:
            self._allow_for_leftovers()

    def _allow_for_leftovers(self) -> None:
        """Files that it left in memory (/dev/shm) are not held against the next one."""
        left = self._group.memory_bytes()
        if abs(left - self._allowance) > _LEFT_BYTES:
            try:
                self._group.limit_memory(self._limits.mem_bytes + left)
                self._allowance = left
            except OSError:
                pass


def _least(size_bytes: int, hard: int) -> int:
    return size_bytes if hard == resource.RLIM_INFINITY else min(size_bytes, hard)


def hold_cpu(group: Group, tree: Tree, millicpus: int, cores: list[int], lane: int) -> bool:
    """Whether the group does it from now on. Waits for the kernel."""
    if CPU in group:
        try:
            group.adopt(CPU, tree)
            group.limit_cpu(millicpus)
        except OSError:
            pass
        else:
            return True
    bind(tree, chosen_cores(cores, millicpus, lane))
    return False


def chosen_cores(cores: list[int], millicpus: int, lane: int) -> list[int]:
    """As many as are asked for, rounded up. Lanes of one job, numbered from 0, have different ones as long as there are."""
    count = -(-millicpus // 1000)
    first = lane * count % len(cores)
    return (cores + cores)[first : first + count]


def bind(tree: Tree, cores: list[int]) -> None:
    """To these cores; what they start later inherits it."""
    bound: set[int] = set()
    for _ in range(_ROUNDS_MOST):
        threads = set(_threads(tree())) - bound
        if not threads:
            return
        for thread in threads:
            try:
                os.sched_setaffinity(thread, cores)
            except OSError:
                pass  # it has ended, or is another user's
        bound |= threads


def _threads(pids: list[int]) -> list[int]:
    found: list[int] = []
    for pid in pids:
        try:
            found += map(int, os.listdir(f"/proc/{pid}/task"))
        except OSError:
            pass  # it has ended
    return found
