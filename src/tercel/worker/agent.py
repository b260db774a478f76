"""The worker's side of the protocol, pure: what it holds, what it owes, what it may forget.

    offered -> queue --launches()--> lane --on_ended()--> owed --on_ack()--> forgotten
                 \\--on_take_back(), on_cancel(), drain()--> returned

A lane is a place where one attempt runs at a time, with the resources of that attempt. Attempts of a job whose
tasks are short are put into a lane ahead of time, so that its spawner never waits for a round trip; such an
attempt counts as started and takes no resources of its own. The queue is strictly first in, first out: a large
task at its head is not starved by small ones behind it.
"""

from collections import deque
from collections.abc import Iterable

from tercel.core.model import End, Needs, Report
from tercel.runners.contract import Launch
from tercel.wire.messages import Brief, Held, Offer

LANE_AHEAD_S = 0.05
"""How much work, by the job's mean, may wait inside a lane."""
LANE_AHEAD_MOST = 16


class _Lane:
    __slots__ = ("attempts", "job", "needs")

    def __init__(self, job: int, needs: Needs) -> None:
        self.job = job
        self.needs = needs
        self.attempts: set[int] = set()


class _Held:
    """An attempt in the queue or in a lane."""

    __slots__ = ("attempt", "job", "lane", "line", "started", "task", "wanted")

    def __init__(self, job: int, task: int, attempt: int, line: str) -> None:
        self.job = job
        self.task = task
        self.attempt = attempt
        self.line = line
        self.lane = -1
        self.started = False
        self.wanted = True


class Agent:
    """Events come in as method calls; what to launch, kill, send comes out as return values."""

    def __init__(self, capacity: Needs) -> None:
        self.capacity = capacity
        self.draining = False
        self.owed: dict[int, Report] = {}
        """Reports that are not acknowledged yet, in order of ending."""
        self._briefs: dict[int, Brief] = {}
        self._held: dict[int, _Held] = {}
        self._queue: deque[_Held] = deque()
        self._lanes: dict[int, _Lane] = {}
        self._free_lanes: list[int] = []
        self._used_millicpus = 0
        self._used_mem_bytes = 0
        self._mean_wall_s: dict[int, float] = {}

    # -- what it holds ------------------------------------------------------------------------------------

    @property
    def running_count(self) -> int:
        return len(self._lanes)

    @property
    def idle(self) -> bool:
        """Whether nothing runs and nothing waits to run."""
        return not self._held

    def held(self) -> list[Held]:
        """For Hello: all that the manager may believe is here."""
        here = [Held(h.job, h.task, h.attempt, h.started, False) for h in self._held.values() if h.wanted]
        return here + [Held(r.job, r.task, r.attempt, True, True) for r in self.owed.values()]

    def restore(self, reports: Iterable[Report]) -> None:
        """Reports found in the spool of an earlier process."""
        self.owed.update((report.attempt, report) for report in reports)

    # -- from the manager ---------------------------------------------------------------------------------

    def on_welcome(self, drop: list[int]) -> list[int]:
        """Forget what is no longer wanted; returns what to kill."""
        kill = []
        for attempt in drop:
            self.owed.pop(attempt, None)
            held = self._held.get(attempt)
            if held is None:
                continue
            if held.lane >= 0:
                held.wanted = False
                kill.append(attempt)
            else:
                self._unqueue({attempt})
        return kill

    def on_brief(self, brief: Brief) -> None:
        self._briefs[brief.job] = brief

    def on_forget(self, job: int) -> None:
        if not any(held.job == job for held in self._held.values()):
            self._briefs.pop(job, None)
            self._mean_wall_s.pop(job, None)

    def on_offer(self, offer: Offer) -> list[int]:
        """Queue the offered tasks. Returns those it will not take (it is draining, or has no brief)."""
        attempts = range(offer.first_attempt, offer.first_attempt + offer.last - offer.first + 1)
        if self.draining or offer.job not in self._briefs:
            return list(attempts)
        for at, attempt in enumerate(attempts):
            if attempt not in self._held and attempt not in self.owed:
                line = offer.lines[at] if offer.lines is not None else ""
                held = _Held(offer.job, offer.first + at, attempt, line)
                self._held[attempt] = held
                self._queue.append(held)
        return []

    def on_take_back(self, attempts: list[int]) -> list[int]:
        """Give back those that have not been launched."""
        return self._unqueue(set(attempts))

    def on_cancel(self, attempts: list[int]) -> tuple[list[int], list[int]]:
        """Returns (what to kill, what is given back unstarted)."""
        kill = [a for a in attempts if (held := self._held.get(a)) is not None and held.lane >= 0]
        return kill, self._unqueue(set(attempts))

    def on_ack(self, attempts: list[int]) -> None:
        for attempt in attempts:
            self.owed.pop(attempt, None)

    def drain(self) -> list[int]:
        """Take nothing more; give back what has not been launched."""
        self.draining = True
        return self._unqueue({held.attempt for held in self._queue})

    def _unqueue(self, attempts: set[int]) -> list[int]:
        gone = [held.attempt for held in self._queue if held.attempt in attempts]
        if gone:
            self._queue = deque(held for held in self._queue if held.attempt not in attempts)
            for attempt in gone:
                del self._held[attempt]
        return gone

    # -- from and to the runner ---------------------------------------------------------------------------

    def launches(self) -> list[Launch]:
        """What to start now: new lanes while there is room, then short tasks behind running ones."""
        launches = []
        while self._queue and (needs := self._briefs[self._queue[0].job].needs) and self._fits(needs):
            held = self._queue.popleft()
            lane = self._open_lane(held.job, needs)
            launches.append(self._place(held, lane))
        if self._queue:
            launches += self._deepen()
        return launches

    def _deepen(self) -> list[Launch]:
        launches: list[Launch] = []
        progress = True
        while self._queue and progress:
            progress = False
            job = self._queue[0].job
            depth = self._depth(job)
            for number, lane in self._lanes.items():
                if lane.job == job and len(lane.attempts) < depth:
                    launches.append(self._place(self._queue.popleft(), number))
                    progress = True
                    if not self._queue or self._queue[0].job != job:
                        break
        return launches

    def _depth(self, job: int) -> int:
        mean = self._mean_wall_s.get(job)
        if mean is None:
            return 1
        return 1 + min(LANE_AHEAD_MOST, int(LANE_AHEAD_S / max(mean, 1e-6)))

    def _fits(self, needs: Needs) -> bool:
        if not self._lanes:
            return True  # alone it may always run: the manager matched it to what this worker said it has
        return (
            self._used_millicpus + needs.millicpus <= self.capacity.millicpus
            and self._used_mem_bytes + needs.mem_bytes <= self.capacity.mem_bytes
        )

    def _open_lane(self, job: int, needs: Needs) -> int:
        number = self._free_lanes.pop() if self._free_lanes else len(self._lanes)
        self._lanes[number] = _Lane(job, needs)
        self._used_millicpus += needs.millicpus
        self._used_mem_bytes += needs.mem_bytes
        return number

    def _place(self, held: _Held, lane: int) -> Launch:
        held.lane = lane
        self._lanes[lane].attempts.add(held.attempt)
        return Launch(lane, held.job, held.task, held.attempt, self._briefs[held.job].program, held.line)

    def on_started(self, attempts: list[int]) -> list[int]:
        """Returns those the manager should be told of."""
        news = []
        for attempt in attempts:
            held = self._held.get(attempt)
            if held is not None and held.wanted:
                held.started = True
                news.append(attempt)
        return news

    def on_ended(self, reports: list[Report]) -> list[Report]:
        """Returns the reports that are owed to the manager, in order."""
        owed = []
        for report in reports:
            held = self._held.pop(report.attempt, None)
            if held is None:
                continue
            self._leave_lane(held)
            if report.end is End.EXITED:
                mean = self._mean_wall_s.get(report.job, report.wall_s)
                self._mean_wall_s[report.job] = mean + 0.2 * (report.wall_s - mean)
            if held.wanted:
                self.owed[report.attempt] = report
                owed.append(report)
        return owed

    def _leave_lane(self, held: _Held) -> None:
        lane = self._lanes[held.lane]
        lane.attempts.discard(held.attempt)
        if not lane.attempts:
            del self._lanes[held.lane]
            self._free_lanes.append(held.lane)
            self._used_millicpus -= lane.needs.millicpus
            self._used_mem_bytes -= lane.needs.mem_bytes
