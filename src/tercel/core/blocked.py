"""Tasks that are blocked, and the conditions that they wait for, kept in step.

    a fault --> its condition is found, or opened --> the tasks wait for it --> ...released, or gone otherwise--> closed with
                                                                                                       the last of them
Who waits for what is noted in the same batch of changes as the tasks' own state, so that they cannot differ.

A condition that has let all its tasks go is remembered as long as any of those has not ended: should one meet the same fault
again, it is the same condition, as old as it was.
"""

import heapq

import msgspec

from tercel.core.accounts import Settings
from tercel.core.blocking import start_fault
from tercel.core.books import Books
from tercel.core.changes import ConditionSet, Loaded, Noted, TasksBlocked, TasksUnblocked
from tercel.core.conditions import ConditionRow, Fault, Key, Place
from tercel.core.effects import Progressed
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.policies import Policy, parse_policy
from tercel.core.states import Stage, TaskEvent, TaskState, next_state, rests_as

NOT_BEFORE_MOST_S = 3600.0
"""However long a tester, or who turned a task away, asks not to be asked."""
MOVING = frozenset({Stage.STAGE_IN, Stage.STAGE_OUT, Stage.REGISTER})
"""Stages whose faults no attempt's record tells of in words of its own: until a test has seen something, that is what is known."""
NOTE_MOST = 500
"""Characters of what is told of a test."""


class Condition:
    """One that tasks wait for, or did a moment ago."""

    __slots__ = (
        "count",
        "flows",
        "jobs",
        "last",
        "out",
        "policy",
        "probe",
        "progress",
        "row",
        "steady",
        "turns",
        "unasked_at",
        "wall_s",
    )

    def __init__(self, row: ConditionRow) -> None:
        self.row = row
        self.policy: Policy = parse_policy(row.policy)
        self.jobs: dict[int, Job] = {}
        """Those with tasks that wait for it: see `Job.blocks`. In the order in which they have their turns."""
        self.count = 0
        """Of those tasks."""
        self.last: dict[int, int] = {}
        """By job: the task that went last. The next is the one behind it, or one that always comes back would keep all others."""
        self.out: dict[int, Job] = {}
        """Those with tasks that it has let go and that have not ended: see `Job.out`."""
        self.probe = 0
        """The number of the test under way; 0: none is."""
        self.flows = False
        """It has let tasks go, and none has come back since."""
        self.progress = False
        """One that was let go has ended otherwise."""
        self.steady = False
        """It serves some, only not so many: what it has room for is found out step by step."""
        self.turns = 0
        """How often somebody was asked, in this life of the manager."""
        self.unasked_at: float | None = None
        """Since when there is nobody to ask, though it is due."""
        self.wall_s = 0.0
        """How long attempts run before they meet the fault, recent ones counting most."""

    @property
    def id(self) -> int:
        return self.row.id

    def next_of(self, job: Job, count: int) -> IntervalSet:
        """So many of a job's tasks, in turn."""
        waiting = job.blocks[self]
        last = self.last.get(job.id, -1)
        behind = waiting.intersection(IntervalSet([(last + 1, max(last + 1, waiting.last()))]))
        tasks = IntervalSet(behind.take_first(count))
        if len(tasks) < count:  # and from the beginning again
            rest = waiting.copy()
            rest.difference_update(tasks)
            first = IntervalSet(rest.take_first(count - len(tasks)))
            self.last[job.id] = first.last() if first else tasks.last()
            tasks.update(first)
        else:
            self.last[job.id] = tasks.last()
        return tasks


class Blocked(Books):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self.conditions: dict[int, Condition] = {}
        """Those that tasks wait for."""
        self._known: dict[Key, Condition] = {}
        """By key: these, and those that were closed a moment ago."""
        self._at_worker: dict[str, dict[int, Condition]] = {}
        """Those that are tested at one worker, by that."""
        self._for_workers: dict[int, Condition] = {}
        """Those that wait for a worker of some kind to come."""
        self._for_names: dict[str, dict[int, Condition]] = {}
        """Those that wait for a name of the catalogue, by tester."""
        self._next_condition = loaded.next_condition
        self._tests: list[tuple[float, int]] = []
        """When which condition is to be tested."""
        for row in loaded.conditions:
            row = not_ahead(row, now)
            condition = self._known[row.key] = Condition(row)
            self._open(condition)
            if row.place is Place.WORKER:
                self._expect(row.where, now)
        for live in loaded.jobs:
            for id, stage, ranges in live.blocked:
                self._join_again(id, self.jobs[live.job.id], IntervalSet(ranges), stage)
        for condition in list(self.conditions.values()):
            self._close_if_empty(condition, "nothing waits for it", now)

    def _join_again(self, id: int, job: Job, tasks: IntervalSet, stage: Stage) -> None:
        """After a restart. What waits for a condition that is not known can only find out anew."""
        condition = self.conditions.get(id)
        if condition is not None:
            self._join(condition, job, tasks, stage)
        else:
            job.blocked.difference_update(tasks)
            job.rests_in(rests_as(stage)).update(tasks)
            self.changes.append(TasksUnblocked(job.id, tuple(tasks.ranges())))

    # -- coming -------------------------------------------------------------------------------------------

    def _block(self, job: Job, task: int, fault: Fault, now: float) -> Condition:
        """A ready task has been tried, and waits for what a fault names. Its attempt's record tells why."""
        condition = self._condition(job.row.owner, fault, now, at_once=False)
        if next_state(TaskState.READY, TaskEvent.BLOCK) is not TaskState.BLOCKED:
            return condition
        # One by one, a hundred thousand of them: no set is made for any.
        job.ready.discard(task)
        job.blocked.add(task)
        waiting = job.blocks.get(condition)
        if waiting is None:
            waiting = job.blocks[condition] = IntervalSet()
            condition.jobs[job.id] = job
        waiting.add(task)
        met = job.stages.get(fault.stage)
        if met is None:
            met = job.stages[fault.stage] = IntervalSet()
        met.add(task)
        condition.count += 1
        self.changes.append(TasksBlocked(job.id, ((task, task),), condition.id, now, fault.stage))
        self._tell_progress(job)
        return condition

    def _gate(self, job: Job, tasks: IntervalSet, now: float) -> None:
        """Ready tasks that were never tried, of a job that asks before it starts: that is tested at once."""
        fault = start_fault(job.row.spec) if job.row.spec.block_on else None
        if fault is None:
            return
        chosen = tasks.intersection(job.ready)
        for task in job.failures:
            chosen.discard(task)
        if chosen:
            self._block_all(job, chosen, fault, now)

    def _block_all(self, job: Job, tasks: IntervalSet, fault: Fault, now: float) -> None:
        """Ready tasks wait for what a fault names, which is tested at once: none of them has just met it."""
        if fault.place is Place.WORKER:
            worker = self.workers.get(fault.where)
            if worker is None or worker.given_up:
                return  # what was wrong there need not hold them up elsewhere
        condition = self._condition(job.row.owner, fault, now, at_once=True)
        if next_state(TaskState.READY, TaskEvent.BLOCK) is TaskState.BLOCKED:
            job.ready.difference_update(tasks)
            self._wait_for(condition, job, tasks, fault.stage, now)
            met = "; ".join(fault.context)
            told = f"{met}, on {fault.tester}" if met else f"again on {fault.tester}"
            self.changes.append(Noted(job.id, tuple(tasks.ranges()), now, "blocked", told))
            self._tell_progress(job)
        self.settle(job)

    def _tell_progress(self, job: Job) -> None:
        """Its counts are others. What was just said is not said again."""
        last = self.effects[-1] if self.effects else None
        if not (isinstance(last, Progressed) and last.job == job.id):
            self.effects.append(Progressed(job.id, [], []))

    def _wait_for(self, condition: Condition, job: Job, tasks: IntervalSet, stage: Stage, now: float) -> None:
        self._join(condition, job, tasks, stage)
        self.changes.append(TasksBlocked(job.id, tuple(tasks.ranges()), condition.id, now, stage))

    @staticmethod
    def _join(condition: Condition, job: Job, tasks: IntervalSet, stage: Stage) -> None:
        job.blocked.update(tasks)
        job.blocks.setdefault(condition, IntervalSet()).update(tasks)
        job.stages.setdefault(stage, IntervalSet()).update(tasks)
        condition.jobs[job.id] = job
        condition.count += len(tasks)

    def _condition(self, owner: str, fault: Fault, now: float, at_once: bool) -> Condition:
        """The one for this fault: known, or opened."""
        key = fault.key(owner)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Condition(self._new_row(owner, fault, now))
        if known.progress:  # it had cleared, to some avail: this is another time
            known.progress = False
            known.row = msgspec.structs.replace(known.row, opened_at=now, tests=0)
        if known.id not in self.conditions:  # it is new, or remembered
            pause_s = 0.0 if at_once else min(self.pause_s(known), known.policy.patience_s)
            pause_s = max(pause_s, min(fault.not_before_s, NOT_BEFORE_MOST_S))
            self._set(known, next_test_at=now + pause_s, closed_at=None, closed="")
            self._open(known)
        return known

    def _new_row(self, owner: str, fault: Fault, now: float) -> ConditionRow:
        id = self._next_condition
        self._next_condition += 1
        return ConditionRow(
            id=id,
            owner=owner,
            tester=fault.tester,
            place=fault.place,
            where=fault.where,
            own=fault.own,
            cwd=fault.cwd,
            env=fault.env,
            policy=fault.policy,
            opened_at=now,
            arose_at=now,
            note="; ".join(fault.context)[:NOTE_MOST] if fault.stage in MOVING else "",
        )

    def _open(self, condition: Condition) -> None:
        self.conditions[condition.id] = condition
        if condition.row.place is Place.WORKER:
            self._at_worker.setdefault(condition.row.where, {})[condition.id] = condition
        elif condition.row.tester.startswith("worker:"):
            self._for_workers[condition.id] = condition
        elif condition.row.tester.startswith(("made:", "unused:")):
            self._for_names.setdefault(condition.row.tester, {})[condition.id] = condition
        self._await_test(condition)

    def pause_s(self, condition: Condition) -> float:
        """Until its next test."""
        row = condition.row
        # Spread evenly, by a fixed irrational step: no two conditions test together for long, and no chance comes in.
        draw = ((row.id * 0.6180339887 + row.tests * 0.4142135623) % 1.0) or 1.0
        return condition.policy.pause_s(row.tests, draw)

    def _set(self, condition: Condition, **changed: object) -> None:
        condition.row = msgspec.structs.replace(condition.row, **changed)
        self.changes.append(ConditionSet(condition.row))

    def _await_test(self, condition: Condition) -> None:
        heapq.heappush(self._tests, (condition.row.next_test_at, condition.id))

    # -- going --------------------------------------------------------------------------------------------

    def _leave_conditions(self, job: Job, tasks: IntervalSet, now: float, why: str) -> None:
        """Tasks that were blocked are in another state already: they wait for nothing any more."""
        for condition, waiting in list(job.blocks.items()):
            if gone := waiting.intersection(tasks):
                self._unwait(condition, job, gone)
                self._close_if_empty(condition, why, now)

    def _unwait(self, condition: Condition, job: Job, tasks: IntervalSet) -> list[tuple[Stage, IntervalSet]]:
        """Returns in which stages they had met it."""
        waiting = job.blocks[condition]
        waiting.difference_update(tasks)
        job.blocked.difference_update(tasks)
        condition.count -= len(tasks)
        if not waiting:
            del job.blocks[condition]
            del condition.jobs[job.id]
            condition.last.pop(job.id, None)
            # Others of it may be refused for what these waited for: one of them must find out anew, or nobody watches it.
            self._forgive_job(job)
        self.changes.append(TasksUnblocked(job.id, tuple(tasks.ranges())))
        return job.take_stages(tasks)

    def _close_if_empty(self, condition: Condition, why: str, now: float) -> None:
        if condition.count == 0 and self.conditions.pop(condition.id, None) is not None:
            condition.probe = 0
            self._for_workers.pop(condition.id, None)
            if (same := self._for_names.get(condition.row.tester)) is not None:
                same.pop(condition.id, None)
                if not same:
                    del self._for_names[condition.row.tester]
            if (
                (others := self._at_worker.get(condition.row.where))
                and others.pop(condition.id, None)
                and not others
            ):
                del self._at_worker[condition.row.where]
            self._set(condition, closed_at=now, closed=why)
            self._forget_if_over(condition)

    def _forget_if_over(self, condition: Condition) -> None:
        key = condition.row.key
        if not condition.out and condition.id not in self.conditions and self._known.get(key) is condition:
            del self._known[key]

    def _take_out(self, job: Job, task: int, now: float) -> None:
        """Out of whichever set it rests in: an attempt of it counts after all."""
        was_blocked = bool(job.blocks) and task in job.blocked
        job.take_out(task)
        if was_blocked:
            self._leave_conditions(job, IntervalSet([(task, task)]), now, "an attempt came back")

    def _none_out(self, condition: Condition, job: Job) -> None:
        del job.out[condition]
        del condition.out[job.id]
        self._forget_if_over(condition)

    def _leave(self, job: Job) -> None:
        super()._leave(job)
        for condition in list(job.out):
            self._none_out(condition, job)


def not_ahead(row: ConditionRow, now: float) -> ConditionRow:
    """Of a manager whose clock was ahead of this one: as if it had been this one's."""
    ahead_s = max(row.opened_at, row.tested_at, row.paused_at) - now
    return row if ahead_s <= 0 else moved(row, -ahead_s)


def moved(row: ConditionRow, by_s: float) -> ConditionRow:
    """All its times, but those that are none."""
    return msgspec.structs.replace(
        row,
        opened_at=row.opened_at + by_s,
        arose_at=row.arose_at + by_s,
        tested_at=row.tested_at and row.tested_at + by_s,
        paused_at=row.paused_at and row.paused_at + by_s,
        next_test_at=row.next_test_at + by_s,
    )
