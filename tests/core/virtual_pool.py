"""A pool without processes: the real machine, workers that only count, and a clock that jumps from event to event.

For questions of sharing, which take hours of many workers' time to answer.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable

from tercel.core.accounts import Settings
from tercel.core.changes import Loaded
from tercel.core.effects import Offered, Recalled
from tercel.core.flights import Flight
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Needs, QueueRow
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report

Length = Callable[[random.Random], float]


class VirtualPool:
    def __init__(self, workers: int, slots: int, seed: int = 1) -> None:
        self.now = 0.0
        self.machine = Machine(Settings(), Loaded(1, 1, [], [], []), 0.0)
        self.rng = random.Random(seed)
        self.lengths: dict[int, Length] = {}
        self.slots = workers * slots
        self._free = {f"w{number}": slots * 1000 for number in range(workers)}
        self._waiting: dict[str, deque[Flight]] = {name: deque() for name in self._free}
        self._ends: list[tuple[float, int, Flight, float]] = []
        self._order = itertools.count()
        self.used: dict[str, float] = {}
        """Processor seconds of tasks that ended, by queue and by user: see `usage`."""
        self.begins: dict[int, list[float]] = {}
        """When tasks of a job began ..."""
        self.ended: dict[int, list[float]] = {}
        """... and ended."""
        for name in self._free:
            info = WorkerInfo(node=name, capacity=Needs(slots * 1000, 0))
            self.machine.on_hello(name, "1", info, [], 0.0)

    def queue(self, name: str, weight: float = 1.0, **caps: int) -> None:
        self.machine.on_queue_set(QueueRow(name=name, weight=weight, **caps))

    def submit(
        self,
        tasks: int,
        length: Length,
        *,
        queue: str = "",
        owner: str = "ada",
        priority: int = 1000,
        cpus: float = 1.0,
        time_limit_s: float = 0.0,
    ) -> int:
        id = len(self.lengths) + 1
        self.lengths[id] = length
        spec = JobSpec(argv=("work",), queue=queue, priority=priority, cpus=cpus, time_limit_s=time_limit_s)
        self.begins[id], self.ended[id] = [], []
        self.machine.on_accepted(
            JobRow(
                id=id,
                owner=owner,
                spec=spec,
                ranges=((0, tasks - 1),),
                max_running=0,
                submitted_at=self.now,
            ),
            now=self.now,
        )
        return id

    def run_until(self, until: float, over: Callable[[], bool] = lambda: False) -> None:
        self._round()
        while self._ends and self._ends[0][0] <= until and not over():
            self.now = self._ends[0][0]
            reports: dict[str, list[Report]] = {}
            while self._ends and self._ends[0][0] == self.now:
                _, _, flight, length = heapq.heappop(self._ends)
                self._note_end(flight, length)
                self._free[flight.worker.id] += flight.lease.needs.millicpus
                report = Report(
                    flight.job.id, flight.task, flight.attempt, End.EXITED, 0, 0.0, length, length, 0
                )
                reports.setdefault(flight.worker.id, []).append(report)
            for name, batch in reports.items():
                self.machine.on_reports(name, batch, self.now)
                self._begin(name)
            self._round()
        if not over():
            self.now = max(self.now, until)

    def usage(self) -> dict[str, float]:
        """Also of what is under way, up to now."""
        told = dict(self.used)
        for end, _, flight, length in self._ends:
            _add(told, flight, length - (end - self.now))
        return told

    def _note_end(self, flight: Flight, length: float) -> None:
        self.ended[flight.job.id].append(self.now)
        _add(self.used, flight, length)

    def _round(self) -> None:
        self.machine.tick(self.now)
        self.machine.round()
        _, effects = self.machine.take()
        for effect in effects:
            if isinstance(effect, Offered):
                for lease in effect.leases:
                    flights = self.machine.jobs[lease.job].flights
                    self._waiting[lease.worker] += (
                        flights[task] for task in range(lease.first, lease.last + 1)
                    )
                self._begin(effect.leases[0].worker)
            elif isinstance(effect, Recalled):
                waiting = self._waiting[effect.worker]
                back = [flight for flight in waiting if flight.attempt in effect.attempts]
                for flight in back:
                    waiting.remove(flight)
                self.machine.on_returned(effect.worker, [flight.attempt for flight in back])

    def _begin(self, name: str) -> None:
        waiting = self._waiting[name]
        while waiting and self._free[name] >= waiting[0].lease.needs.millicpus:
            flight = waiting.popleft()
            self._free[name] -= flight.lease.needs.millicpus
            length = self.lengths[flight.job.id](self.rng)
            self.begins[flight.job.id].append(self.now)
            self.machine.on_started(name, [flight.attempt], self.now)
            heapq.heappush(self._ends, (self.now + length, next(self._order), flight, length))


def _add(used: dict[str, float], flight: Flight, seconds: float) -> None:
    for key in (flight.job.queue.name, f"user {flight.job.row.owner}"):
        used[key] = used.get(key, 0.0) + seconds


def deviation(used: dict[str, float], weights: dict[str, float]) -> float:
    """How far the worst-off (or best-off) is from its share, relative to that share."""
    total, all_weights = sum(used[name] for name in weights), sum(weights.values())
    return max(abs(used[name] / total / (weight / all_weights) - 1) for name, weight in weights.items())
