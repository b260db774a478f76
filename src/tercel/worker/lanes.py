"""The lanes of a worker: places where one attempt runs at a time, with the room and the pieces that it takes.

What is given to tasks may become less while they run (others need the node): then nothing new begins until what runs has
come down to it. Nothing is ended for that.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from tercel.core.model import Needs
from tercel.core.resources import Stock, Taken
from tercel.worker.held import Attempt, Job, Lane
from tercel.worker.walltime import warning_s

LANES_MOST = 512
"""However little each attempt asks for: every lane has a process of its own."""
LOOK_AHEAD = 64
"""How many that wait are looked at when the first of them needs what others have."""
GPUS = "gpus"


class Lanes:
    def __init__(self, capacity: Needs, indices: Mapping[str, tuple[str, ...]]) -> None:
        self.capacity = capacity
        """What is given to tasks at this time."""
        self._stock = Stock(capacity, indices)
        self._lanes: dict[int, Lane] = {}
        self._free: list[int] = []
        """Numbers that were used before."""
        self._used_millicpus = 0
        self._used_mem_bytes = 0
        # Who asked for no GPU must not take another's.
        self._plain_env = {"CUDA_VISIBLE_DEVICES": ""} if indices.get(GPUS) else {}

    def __len__(self) -> int:
        return len(self._lanes)

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def overfull(self) -> bool:
        """Whether more runs than is given by now."""
        capacity = self.capacity
        return self._used_millicpus > capacity.millicpus or self._used_mem_bytes > capacity.mem_bytes

    def fits(self, needs: Needs) -> bool:
        if not self._lanes:
            return True  # alone it may always run: the manager matched it to what this worker said it has
        return (
            self._used_millicpus + needs.millicpus <= self.capacity.millicpus
            and self._used_mem_bytes + needs.mem_bytes <= self.capacity.mem_bytes
            and len(self._lanes) < LANES_MOST
            and not self.lacks_pieces(needs)
        )

    def lacks_pieces(self, needs: Needs) -> bool:
        """Whether others have the licences, GPUs and the like that it needs."""
        return bool(needs.resources) and self._stock.room(needs.resources) <= 0

    def first_fitting(self, waiting: Sequence[Attempt]) -> int | None:
        """Which of these begins next, if there is room for any: the first, unless it lacks pieces."""
        if not waiting:
            return None
        needs = waiting[0].job.needs
        if self.fits(needs):
            return 0
        return self._first_behind(waiting) if self.lacks_pieces(needs) else None

    def _first_behind(self, waiting: Sequence[Attempt]) -> int | None:
        """Nobody passes with a piece of what those before it wait for, or they might wait for ever."""
        awaited: set[str] = set()
        passed: set[int] = set()
        for at, held in enumerate(islice(waiting, LOOK_AHEAD)):
            if held.job.id in passed:
                continue
            needs = held.job.needs
            names = [name for name, _ in needs.resources]
            if awaited.isdisjoint(names):
                if self.fits(needs):
                    return at
                if not self.lacks_pieces(needs):
                    return None
            awaited.update(names)
            passed.add(held.job.id)
        return None

    # -- what is in them ----------------------------------------------------------------------------------

    def launched(self) -> list[int]:
        """All attempts."""
        return [attempt for lane in self for attempt in lane.attempts]

    def unbegun(self) -> list[int]:
        """What to withdraw from the runner so that nothing more begins; those that have begun go on."""
        unbegun = []
        for lane in self:
            for held in lane.attempts.values():
                if not held.withdrawn and held.attempt != lane.lasting:
                    held.withdrawn = True
                    unbegun.append(held.attempt)
        return unbegun

    def warnings(self) -> dict[int, float]:
        """What runs, each with how many seconds before its end it wants to be warned; 0: it does not."""
        return {lane.lasting: warning_s(lane.job.program.warn_signal) for lane in self if lane.lasting >= 0}

    def contained_cpus(self) -> float:
        """Cores of what runs in containers, whose processes may not be below this worker's."""
        return sum(lane.needs.millicpus for lane in self if lane.job.program.container) / 1000

    # -- opening and closing ------------------------------------------------------------------------------

    def open(self, job: Job) -> Lane:
        number = self._free.pop() if self._free else len(self._lanes)
        lane = self._lanes[number] = Lane(number, job)
        self._used_millicpus += lane.needs.millicpus
        self._used_mem_bytes += lane.needs.mem_bytes
        if lane.needs.resources:
            lane.taken = self._stock.take(lane.needs.resources)
            lane.env = self._plain_env | _variables(lane.taken)
        else:
            lane.env = self._plain_env
        return lane

    def close(self, lane: Lane) -> None:
        del self._lanes[lane.number]
        self._free.append(lane.number)
        self._used_millicpus -= lane.needs.millicpus
        self._used_mem_bytes -= lane.needs.mem_bytes
        if lane.taken:
            self._stock.give_back(lane.taken)


def _variables(taken: Taken) -> dict[str, str]:
    """By which a task is told which pieces are its own."""
    env: dict[str, str] = {}
    for name, _, pieces in taken:
        if pieces:
            env[variable_of(name)] = ",".join(pieces)
            if name == GPUS:
                env["CUDA_VISIBLE_DEVICES"] = ",".join(pieces)
    return env


def variable_of(resource: str) -> str:
    return "TERCEL_RESOURCE_" + re.sub("[^A-Z0-9_]", "_", resource.upper())
