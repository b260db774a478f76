"""Watches one attempt of a job with limits: what it takes too much of, and what is said about that.

Where the kernel enforces a limit, the guard looks at the kernel's count of what it did. Elsewhere it measures, often
enough that little more can be taken meanwhile, and never for more than a fiftieth of the time. The same for an attempt with
processes outside of its group: root may move them, and a container that it starts may have a group of its own.
"""

import time

from tercel.core.sizes import size
from tercel.runners.cgroups import MEMORY, PIDS, Group
from tercel.runners.measuring import Meter, Tree, usage

FIRST_S = 0.05
WATCH_S = 0.1
"""Between looks at what nobody else enforces."""
CALM_S = 0.5
"""Between looks at what the kernel enforces: that it ended one process of several, say."""
COST_MOST = 50
"""How many times longer than a look the time between two of them is at least."""
MEASURE_MOST_S = 1.0


class Limits:
    """As core.model.Limits, which a spawner does not import."""

    __slots__ = ("disk_bytes", "mem_bytes", "millicpus", "pids", "watched")

    def __init__(self, mem_bytes: int, millicpus: int, pids: int, disk_bytes: int) -> None:
        self.mem_bytes = mem_bytes
        self.millicpus = millicpus
        self.pids = pids
        self.disk_bytes = disk_bytes
        self.watched = bool(mem_bytes or pids or disk_bytes)
        """Whether attempts need a guard."""


class Excess:
    """What an attempt took too much of: a value of Report.exceeded; and a sentence."""

    __slots__ = ("mem_bytes", "note", "what")

    def __init__(self, what: str, note: str, mem_bytes: int = 0) -> None:
        self.what = what
        self.note = note
        self.mem_bytes = mem_bytes
        """If it was memory: how much it took."""


class Guard:
    def __init__(
        self, limits: Limits, group: Group, enforced: frozenset[str], tree: Tree, directory: bytes, now: float
    ) -> None:
        """`enforced`: the controllers by which the kernel holds it to its limits. `directory` is its sandbox."""
        self._limits = limits
        self._group = group
        self._enforced = enforced
        self._tree = tree
        self._ooms = self._denied = 0
        self._meter = Meter(directory) if limits.disk_bytes else None
        self._given_bytes = 0
        """In its sandbox before it begins: copies of what it reads, where there can be no links."""
        self._measured = {
            controller
            for controller, limit in ((MEMORY, limits.mem_bytes), (PIDS, limits.pids))
            if limit and controller not in enforced
        }
        """By which the kernel does not hold it, or not all of it."""
        self.peak_bytes = 0
        """The most memory that was seen."""
        self.not_its_own_bytes = 0
        """Of the group's memory: left by others before it."""
        self.helpers = 0
        """Processes in its tree that do not count."""
        self.look_at = now + FIRST_S

    def begin(self) -> "Guard":
        """What happened in the group before is not this attempt's doing, nor what is in its sandbox already."""
        self._ooms = self._group.oom_kills() if MEMORY in self._enforced else 0
        self._denied = self._group.denied_forks() if PIDS in self._enforced else 0
        self._given_bytes = self._meter.whole(MEASURE_MOST_S) if self._meter is not None else 0
        return self

    def look(self) -> Excess | None:
        begun = time.monotonic()
        excess = self._look()
        now = time.monotonic()
        pause_s = WATCH_S if self._measured or self._meter is not None else CALM_S
        self.look_at = now + max(pause_s, COST_MOST * (now - begun))
        return excess

    def _look(self) -> Excess | None:
        if MEMORY in self._enforced:
            if self._group.oom_kills() > self._ooms:
                return self._out_of_memory()
            self.peak_bytes = max(self.peak_bytes, self._group.memory_bytes() - self.not_its_own_bytes)
        self._seek_outside()
        if self._measured and (excess := self._measure()) is not None:
            return excess
        if self._meter is not None:
            self._meter.step()
            if (written := self._meter.most_bytes - self._given_bytes) > self._limits.disk_bytes:
                return wrote_too_much(written, self._limits.disk_bytes)
        return None

    def _seek_outside(self) -> None:
        """Whom the kernel does not hold to a limit of its group is measured from now on."""
        kept = [name for name in self._enforced - self._measured if name in self._group]
        if kept:
            tree = self._tree()
            self._measured.update(name for name in kept if self._group.outside(name, tree))

    def _measure(self) -> Excess | None:
        limits = self._limits
        used = usage(self._tree(), limits.mem_bytes)
        self.peak_bytes = max(self.peak_bytes, used.mem_bytes)
        if MEMORY in self._measured and used.mem_bytes > limits.mem_bytes:
            note = f"used {size(used.mem_bytes)} of {size(limits.mem_bytes)} of memory"
            return Excess("memory", note, used.mem_bytes)
        processes = used.processes - self.helpers
        if PIDS in self._measured and processes > limits.pids:
            return Excess("pids", f"had {processes:,} processes, {limits.pids:,} allowed")
        return None

    def _out_of_memory(self) -> Excess:
        self.peak_bytes = max(self.peak_bytes, self._limits.mem_bytes)
        return out_of_memory(self._limits.mem_bytes)

    # -- when it has ended by itself ------------------------------------------------------------------------

    def verdict(self, failed: bool, huge_file: bool) -> Excess | None:
        """What it exceeded in the end. `huge_file`: it was ended by the signal for writing a file of that size."""
        if MEMORY in self._enforced and self._group.oom_kills() > self._ooms:
            return self._out_of_memory()
        if not failed:
            return None
        if self._was_denied():
            return Excess("pids", self._denial())
        if self._meter is not None:
            found = self._meter.whole(MEASURE_MOST_S) - self._given_bytes
            if huge_file or found >= self._limits.disk_bytes:
                return wrote_too_much(max(found, self._limits.disk_bytes), self._limits.disk_bytes)
        return None

    def remark(self) -> str:
        """What is worth saying of an attempt that ended well."""
        return self._denial() if self._was_denied() else ""

    def _was_denied(self) -> bool:
        return PIDS in self._enforced and self._group.denied_forks() > self._denied

    def _denial(self) -> str:
        return f"reached its limit of {self._limits.pids:,} processes"


def wrote_too_much(found_bytes: int, allowed_bytes: int) -> Excess:
    return Excess("disk", f"wrote {size(found_bytes)}, {size(allowed_bytes)} allowed")


def out_of_memory(allowed_bytes: int) -> Excess:
    """Of an attempt that the kernel kept from taking more."""
    all_of_it = f"used {size(allowed_bytes)} of {size(allowed_bytes)} of memory"
    return Excess("memory", f"{all_of_it}, and was ended when it asked for more", allowed_bytes)
