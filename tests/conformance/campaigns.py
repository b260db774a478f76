"""What tests of campaigns share: jobs as they are drawn, and a manager that a test turns by hand, with its workers.

What a task ends with follows from its job's name, its number and how many of its retries are spent. It meets what is broken
outside, too, but that is mended at some time, or never. So how all ends does not follow from when anything happens.
"""

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tercel.core.changes import AttemptSpent, Edge, JobAdded, LiveJob, Reopened
from tercel.core.conditions import ConditionRow, Place, SwitchRow, Verdict
from tercel.core.effects import Probe
from tercel.core.flights import Flight
from tercel.core.intervals import IntervalSet
from tercel.core.invariants import violations
from tercel.core.ledger import Job
from tercel.core.machine import Machine
from tercel.core.model import After, AfterKind, BlockRule, JobRow, JobSpec, Needs, OnFailure
from tercel.core.presence import WorkerInfo
from tercel.core.reports import Blame, End, Outcome, Report
from tercel.core.states import TaskState
from tercel.manager.options import ManagerOptions
from tercel.manager.service import Manager
from tercel.stores.contract import Store, needed_by
from tercel.stores.memory import MemoryStore
from tercel.stores.sqlite import SqliteStore
from tercel.testers.contract import Surroundings

START = 1000.0
TURNS_MOST = 3000
"""Whoever needs more hangs."""
BROKEN, OWN = 75, 1
"""Exit codes: something outside is broken; and, with the retries that are spent added, the task's own failures."""
SWITCH = "app=solver"
DOOMED = "tcp:gone.lab:1"
"""Never mended: what waits for it fails when the policy's patience is over."""
RULES = (
    BlockRule(on="exit:75", tester="tcp:licence.lab:27000", at=Place.MANAGER, policy="every 20s for 1d"),
    BlockRule(on="exit:75", tester="tcp:store.lab:80", at=Place.SITE, policy="backoff 5s to 1m for 2d"),
    BlockRule(
        on="exit:75", tester="file:/data/ready", at=Place.WORKER, policy="every 10s x2, then 30s for 1d"
    ),
    BlockRule(on="exit:75", tester=f"enabled:{SWITCH}", at=Place.HERE, policy="every 15s for 1d"),
    BlockRule(on="start", tester="tcp:licence.lab:27000", at=Place.MANAGER, policy="every 20s for 1d"),
    BlockRule(on="start", tester=f"enabled:{SWITCH}", at=Place.HERE, policy="every 15s for 1d"),
    BlockRule(on="exit:75", tester=DOOMED, at=Place.SITE, policy="every 10s for 45s"),
)


class Shape(msgspec.Struct, frozen=True):
    """A job as it is drawn."""

    fails: tuple[int, ...]
    """By task: so many of its attempts fail by its own doing."""
    meets: tuple[int, ...]
    """By task: the attempt after so many of these needs what is outside; or its last, if it has fewer."""
    retries: int
    backoff_s: float
    rule: int | None
    needs: tuple[tuple[int, AfterKind, bool], ...]
    """How many jobs back, how they must have ended, and whether task by task."""
    edges: tuple[tuple[int, int, int], ...]
    """Which task needs which other, of how many jobs back (0: its own); numbers that are too large begin anew."""
    on_failure: OnFailure
    most_running: int

    def spec(self, id: int, sizes: list[int]) -> JobSpec:
        after = {
            After(job=id - back, kind=kind, each=each and len(self.fails) <= sizes[id - back - 1])
            for back, kind, each in self.needs
            if back < id
        }
        return JobSpec(
            argv=("work",),
            name=f"step {id}",
            array=f"0-{len(self.fails) - 1}",
            retries=self.retries,
            backoff_s=self.backoff_s,
            block_on=() if self.rule is None else (RULES[self.rule],),
            after=tuple(sorted(after, key=lambda one: (one.job, one.kind, one.each))),
            on_failure=self.on_failure,
        )

    def needs_the_outside(self, task: int, spent: int) -> bool:
        return spent == min(self.meets[task], self.fails[task], self.retries)

    def arrows(self, id: int, sizes: list[int]) -> tuple[Edge, ...]:
        """Of single tasks, to tasks of earlier jobs or earlier ones of its own."""
        found: set[Edge] = set()
        for task, back, other in self.edges:
            own, needed = task % len(self.fails), id - back
            if needed < 1:
                continue
            before = other % sizes[needed - 1]
            if back or before < own:
                found.add((own, needed, before, before))
        return tuple(sorted(found))


class Knowing:
    """Knows all testers, and asks none: what is broken is the test's to say."""

    def is_own(self, kind: str) -> bool:
        return True

    async def judge(self, text: str) -> tuple[str, Place]:
        return text, Place.HERE if text.startswith("enabled:") else Place.SITE

    async def ask(self, text: str, surroundings: Surroundings) -> Verdict:
        raise AssertionError(f"{text}: {surroundings}")


class Unhurried(sqlite3.Connection):
    """It does not wait for the disk: nothing is pulled out here."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return super().execute("PRAGMA synchronous = OFF" if "synchronous" in sql else sql, *values)


class ByHand(Manager):
    """A manager whose loop is turned by the test, at times that the test says."""

    def __init__(self, data: Path, store: Store, now: float = START) -> None:
        self.now = now
        self.probes: dict[int, Probe] = {}
        self.spent: Counter[tuple[int, int]] = Counter()
        """Retries, by task: counted beside the machine, which must not forget any."""
        options = ManagerOptions(data=data, grace_s=60.0)
        super().__init__(options, store, store.load(), Knowing(), lambda: self.now)

    async def settled(self) -> None:
        self.turn()

    def turn(self) -> None:
        self.machine.tick(self.now)
        self.machine.round()
        changes, effects = self.machine.take()
        if changes:
            self.store.write(changes)
            self.store.commit()
        assert violations(self.machine) == []
        for change in changes:
            if isinstance(change, AttemptSpent):
                self.spent[change.outcome.report.job, change.outcome.report.task] += 1
            elif isinstance(change, Reopened):
                for task in IntervalSet(change.ranges):
                    self.spent[change.job, task] = 0
        self.probes |= {effect.number: effect for effect in effects if isinstance(effect, Probe)}


class Campaign:
    """A manager with its workers, and what is outside. Names of jobs say how their tasks end, wherever they are."""

    def __init__(self, data: Path, kind: str, shapes: list[Shape], broken: set[str], workers: str) -> None:
        data.mkdir()
        self._data = data
        self._memory = MemoryStore() if kind == "memory" else None
        self.manager = ByHand(data, self._store())
        self.shapes = {f"step {id}": shape for id, shape in enumerate(shapes, 1)}
        self.broken: set[str] = set()
        self.workers = workers.split()
        for tester in broken:
            self.breaks(tester)

    def _store(self) -> Store:
        if self._memory is not None:
            return self._memory
        return SqliteStore(self._data / "store.db", factory=Unhurried)

    def restart(self) -> None:
        """With what its store kept; no worker is there yet."""
        before = self.manager
        self.close()
        self.manager = ByHand(self._data, self._store(), before.now)
        self.manager.spent = before.spent

    def close(self) -> None:
        self.manager.close()

    @property
    def machine(self) -> Machine:
        return self.manager.machine

    def turn(self) -> None:
        self.manager.turn()

    # -- outside ------------------------------------------------------------------------------------------

    def breaks(self, tester: str) -> None:
        self.broken.add(tester)
        self._switch(tester, "off")

    def mends(self, tester: str) -> None:
        if tester != DOOMED:
            self.broken.discard(tester)
            self._switch(tester, "")

    def _switch(self, tester: str, off: str) -> None:
        if tester == f"enabled:{SWITCH}":
            self.machine.on_switch(SwitchRow(name=SWITCH, off=off))
            self.turn()

    def answer(self, number: int) -> None:
        probe = self.manager.probes.pop(number)
        cleared = probe.condition.tester not in self.broken
        self.machine.on_tested(number, Verdict(cleared), self.manager.now)
        self.turn()

    # -- workers ------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Those that have not."""
        for name in self.workers:
            if name in self.machine.workers and self.machine.workers[name].online:
                continue
            info = WorkerInfo(node=name, site="lab", capacity=Needs(2000, 0))
            self.machine.on_hello(name, "pid 1", info, [], self.manager.now)
            self.turn()

    def leave(self, name: str) -> None:
        """And it comes back, with nothing of what it had."""
        self.machine.on_bye(name, self.manager.now)
        self.turn()
        self.join()

    def flights(self) -> list[Flight]:
        return [flight for worker in self.machine.workers.values() for flight in worker.flights.values()]

    @property
    def rests(self) -> bool:
        """Nothing is under way, or about to be. When what it needed is run again, that goes on all the same; restored, it waits."""
        return not self.flights() and not any(job.delayed for job in self.machine.jobs.values())

    def report(self, flight: Flight) -> None:
        end, code = (End.CANCELLED, 0) if flight.ending else (End.EXITED, self._code(flight.job, flight.task))
        times = (self.manager.now, 2.0, 1.0)
        report = Report(flight.job.id, flight.task, flight.attempt, end, code, *times, 1000)
        self.machine.on_reports(flight.worker.id, [report], self.manager.now)
        self.turn()

    def _code(self, job: Job, task: int) -> int:
        shape = self.shapes.get(job.row.spec.name)
        spent = self.manager.spent[job.id, task]
        testers = {rule.tester for rule in job.row.spec.block_on if rule.on == "exit:75"}
        if testers & self.broken and (shape is None or shape.needs_the_outside(task, spent)):
            return BROKEN
        return OWN + spent if shape is not None and spent < shape.fails[task] else 0

    # -- people -------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, size: int, edges: tuple[Edge, ...] = (), most_running: int = 0) -> None:
        ranges = ((0, size - 1),)
        id, now = self.manager.take_job_id(), self.manager.now
        row = JobRow(id=id, owner="ada", spec=spec, ranges=ranges, max_running=most_running, submitted_at=now)
        self.manager.store.write([JobAdded(row, edges=edges)])
        self.manager.store.commit()
        needed = sorted(needed_by(LiveJob(row, edges=list(edges))))
        for other in needed:
            self.machine.pin(other)
            if (live := self.manager.store.live(other)) is not None:
                self.machine.remember(live)
        self.machine.on_accepted(row, edges, now)
        for other in needed:
            self.machine.unpin(other)
        self.turn()

    def ask(self, what: str, job: Job, mask: int) -> None:
        tasks = IntervalSet((task, task) for task in range(5) if mask >> task & 1)
        tasks = tasks.intersection(IntervalSet(job.row.ranges))
        match what:
            case "hold":
                self.machine.on_hold(job, tasks)
            case "release":
                self.machine.on_release(job, tasks, self.manager.now)
            case "cancel":
                self.machine.on_cancel(job, tasks, "by ada", self.manager.now)
            case "retry":
                self.machine.on_retry(job, tasks, self.manager.now)
        self.turn()

    # -- to the end ---------------------------------------------------------------------------------------

    def run_on(self, chance: random.Random, mended_after: int) -> None:
        """Until all has ended. Whatever was broken is so for so many turns more."""
        for job in list(self.machine.jobs.values()):
            self.ask("release", job, 31)
        turns = 0
        while self.machine.jobs:
            turns += 1
            assert turns < TURNS_MOST, "it hangs"
            if turns == mended_after:
                for tester in sorted(self.broken):
                    self.mends(tester)
            flights, probes = self.flights(), list(self.manager.probes)
            if flights and (not probes or chance.random() < 0.7):
                self.report(chance.choice(flights))
            elif probes:
                self.answer(chance.choice(probes))
            else:
                due = self.machine.next_deadline()
                assert due is not None, "nothing will ever happen any more"
                self.manager.now = max(self.manager.now, due)
                self.turn()

    # -- what is compared ---------------------------------------------------------------------------------

    def standing(self, job: int) -> dict[int, object]:
        """How its tasks stand, but for what is under way or pauses before its next try: it is ready elsewhere."""
        if (known := self.machine.jobs.get(job)) is None:
            return {}
        awaited = {task: _told(condition.row) for condition, tasks in known.blocks.items() for task in tasks}
        return {
            task: (_rests(known, task), known.failures.get(task, 0), awaited.get(task))
            for first, last in known.row.ranges
            for task in range(first, last + 1)
        }

    def results(self, job: int) -> object:
        row = self.manager.store.job(job)
        assert row is not None
        assert row.ended_at is not None
        ends = self.manager.store.outcomes(job, ranges=row.ranges, limit=100)
        return (
            (row.spec.name, row.finished, row.failed, row.cancelled),
            [(_end(end), self._tries(job, end.report.task)) for end in ends],
        )

    def _tries(self, job: int, task: int) -> list[object]:
        """Those that were spent, in order."""
        before = self.manager.store.history(job, task)
        return [
            _end(end) for end in before if end.state is TaskState.FAILED and end.blame in (None, Blame.TASK)
        ]


def _told(row: ConditionRow) -> tuple[object, ...]:
    return row.tester, row.place, row.where, row.policy


def _rests(job: Job, task: int) -> TaskState | None:
    if task in job.flights:
        return TaskState.PAUSED if task in job.held else TaskState.READY
    return TaskState.READY if task in job.delayed else job.state_of(task)


def _end(end: Outcome) -> tuple[object, ...]:
    return end.report.task, end.state, end.report.end, end.report.code
