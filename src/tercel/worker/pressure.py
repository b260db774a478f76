"""How much of its node a worker gives to tasks while others use it too. Pure: what was measured comes in.

What others use is all that is used less what our own tasks use. So many whole cores (in steps of a sixteenth of it: so much
memory) are theirs; and `keep_free` cores more are left to people who come back to their keyboard.

    given = cores - keep_free - what others use         never below `floor`; nothing that runs is ended for it

It does not flutter. What others use counts as more only after it was more, by half a step, for SHRINK_S on end, and as less
after it was less for GROW_S: a compiler's burst changes nothing, and a core that was taken is given again only when it has
been free for a while. The first measurement counts at once, since there is nothing to flutter from.

When load counts: with --keep-free always. Without it, cores count unless --cpus says how many are given, or there are only
one or two (one's own laptop or a small machine for just this: waiting until nobody uses it would mean waiting for ever),
and memory counts unless --mem says how much.
"""

import msgspec

from tercel.core.model import Needs
from tercel.worker.options import WorkerOptions

SHRINK_S = 5.0
GROW_S = 20.0
DEADBAND = 0.55
"""In steps. Half a step is the least that keeps rounding from flapping."""
MEM_STEPS = 16
MEM_FREE_STEPS = 2
"""So much of the memory may be others' (the system's own, daemons) before less is given."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a node does, as measured."""

    cores: float
    """That this process may run on."""
    busy: float | None
    """So many of them were in use since the last measurement, by whomever; None: that was too short ago to tell."""
    own: float = 0.0
    """Of that by our own tasks, and by ourselves."""
    mem_bytes: int = 0
    """Of these and of disk 0 means: not known."""
    mem_free_bytes: int = 0
    """That could be had without pushing others out."""
    own_mem_bytes: int = 0
    disk_bytes: int = 0
    disk_free_bytes: int = 0
    load: float = 0.0


class Level:
    """A whole number of steps that follows a measurement, slowly enough."""

    def __init__(self) -> None:
        self.steps = 0
        self._begun = False
        self._since: float | None = None
        self._above = False
        self._extreme = 0.0
        """While it was above: the least that it was since then; while below: the most."""

    def follow(self, measured: float, now: float) -> int:
        if not self._begun:
            self._begun = True
            self.steps = round(measured)
            return self.steps
        if abs(measured - self.steps) <= DEADBAND:
            self._since = None
            return self.steps
        above = measured > self.steps
        if self._since is None or above is not self._above:
            self._since, self._above, self._extreme = now, above, measured
        else:
            self._extreme = min(self._extreme, measured) if above else max(self._extreme, measured)
        if now - self._since >= (SHRINK_S if above else GROW_S):
            self.steps, self._since = round(self._extreme), None
        return self.steps


class Pressure:
    def __init__(
        self,
        whole: Needs,
        *,
        cores: float,
        mem_bytes: int,
        keep_free: float,
        floor: float = 0.0,
        minds_cpus: bool = True,
        minds_mem: bool = True,
    ) -> None:
        """`cores` and `mem_bytes`: all that this process may use of the node, `whole` what is given of it at most."""
        self._whole = whole
        self._cores = cores
        self._mem_bytes = mem_bytes
        self._keep_free = keep_free
        self._floor = floor
        self._minds_cpus = minds_cpus
        self._minds_mem = minds_mem
        self._cpu_level = Level()
        self._mem_level = Level()

    def on_reading(self, reading: Reading, spared: float, now: float) -> Needs:
        """What is given from now on. `spared`: cores of our own tasks whose processes are not below us (containers')."""
        whole = self._whole
        millicpus = self._millicpus(reading, spared, now) if self._minds_cpus else whole.millicpus
        mem_bytes = self._mem(reading, now) if self._minds_mem else whole.mem_bytes
        if millicpus == whole.millicpus and mem_bytes == whole.mem_bytes:
            return whole
        return Needs(millicpus, mem_bytes, "", whole.resources)

    def _millicpus(self, reading: Reading, spared: float, now: float) -> int:
        if reading.busy is None:
            taken = self._cpu_level.steps
        else:
            taken = self._cpu_level.follow(max(0.0, reading.busy - reading.own - spared), now)
        left = min(self._cores, reading.cores - taken) - self._keep_free
        return min(self._whole.millicpus, round(1000 * max(left, self._floor, 0.0)))

    def _mem(self, reading: Reading, now: float) -> int:
        step = self._mem_bytes // MEM_STEPS
        if step == 0:
            return self._whole.mem_bytes
        steps = self._mem_level.steps
        if reading.mem_bytes:
            could_have = min(self._mem_bytes, reading.own_mem_bytes + reading.mem_free_bytes)
            steps = self._mem_level.follow((self._mem_bytes - could_have) / step, now)
        if steps <= MEM_FREE_STEPS:
            return self._whole.mem_bytes
        return min(self._whole.mem_bytes, max(0, self._mem_bytes - steps * step))


def pressure_for(options: WorkerOptions, whole: Needs, cores: int, mem_bytes: int) -> Pressure:
    """Of a worker with these options, on a node that lets it use so much."""
    asked = options.keep_free is not None
    return Pressure(
        whole,
        cores=cores,
        mem_bytes=mem_bytes,
        keep_free=options.keep_free if options.keep_free is not None else (1.0 if cores > 2 else 0.0),
        floor=options.floor_cpus,
        minds_cpus=asked or (options.cpus is None and cores > 2),
        minds_mem=asked or options.mem_bytes is None,
    )
