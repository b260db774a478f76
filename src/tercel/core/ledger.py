"""Jobs: the state that the machine moves. No decisions here.

A task that waits or has ended is a member of one of its job's interval sets and nothing more. Only an attempt
under way is an object: see flights.

    job.waiting --> job.ready --offer--> Flight --report--> job.finished | job.failed
                        ^                  |
                        +---- lost: the flight becomes a *stray*: given up on, but if its report comes after all
                              it is taken
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tercel.core.changes import Edge
from tercel.core.conditions import Fault, Key
from tercel.core.flights import Flight
from tercel.core.inputs import Inputs
from tercel.core.intervals import IntervalSet, Range
from tercel.core.kinds import Kind, kind_of
from tercel.core.model import JobRow, Needs, OnFailure
from tercel.core.naming import Named
from tercel.core.shares import UNLIMITED, Account, Queue
from tercel.core.states import Stage, TaskState

if TYPE_CHECKING:
    from tercel.core.blame import Record
    from tercel.core.blocked import Condition
    from tercel.core.graph import Need
    from tercel.core.workers import Worker


class Job:
    """An unfinished job."""

    __slots__ = (
        "admitted",
        "after",
        "arrows",
        "blocked",
        "blockings",
        "blocks",
        "borrowed",
        "cancelled",
        "counted",
        "delayed",
        "dependents",
        "due",
        "edges",
        "failed",
        "failures",
        "finished",
        "flights",
        "forgiven",
        "growths",
        "held",
        "id",
        "inputs",
        "interruptions",
        "kind",
        "last_blocked",
        "left",
        "long_s",
        "mean_wall_s",
        "most_fails",
        "named",
        "needs",
        "out",
        "outgrown",
        "outranked_at",
        "passed_at",
        "paused",
        "postponed",
        "queue",
        "queued",
        "ready",
        "record",
        "refused_by",
        "row",
        "running",
        "saver",
        "skipped",
        "stages",
        "stands_back",
        "strays",
        "task_count",
        "unmet",
        "user",
        "waiting",
        "watchers",
    )

    def __init__(self, row: JobRow, queue: Queue) -> None:
        self.id = row.id
        self.row = row
        self.queue = queue
        self.user: Account = queue.user(row.owner)
        self.kind: Kind = kind_of(row)
        self.needs: Needs = self.kind.needs
        self.task_count = row.task_count
        self.most_fails = row.spec.most_fails(row.task_count)
        self.ready = IntervalSet(row.ranges)
        self.waiting = IntervalSet()
        self.held = IntervalSet(row.held)
        """Of these nothing is to be started: ..."""
        self.paused = IntervalSet()
        """... those of them that are not under way."""
        self.postponed: dict[tuple[Stage, Key], tuple[Fault, IntervalSet]] = {}
        """Held tasks that were blocked when that was done, with what they will wait for when they are released."""
        for one in row.postponed:
            self.postpone(one.fault, IntervalSet(one.ranges))
        self.blocked = IntervalSet()
        """All that wait for some condition; which for which: ..."""
        self.blocks: dict[Condition, IntervalSet] = {}
        """... by condition, and ..."""
        self.stages: dict[Stage, IntervalSet] = {}
        """... in which stage they met it, which says in what state they go on. None is empty."""
        self.out: dict[Condition, IntervalSet] = {}
        """By condition that has cleared: what it let go and has not ended since."""
        self.named: dict[tuple[str, str], Named] = {}
        """What its tasks have named by what they printed, by place and worker. Of this life of the manager."""
        self.borrowed = IntervalSet()
        """Those that wait, or waited last, for what others have named: they had met something else."""
        self.left = IntervalSet()
        """Tasks of which something that earlier attempts had delivered is to be removed before they are run again."""
        self.flights: dict[int, Flight] = {}
        self.running = 0
        """How many of `flights` are known to run."""
        self.strays: dict[int, list[Flight]] = {}
        self.finished = IntervalSet()
        self.failed = IntervalSet()
        self.cancelled = IntervalSet()
        self.skipped = IntervalSet()
        """Those of the cancelled that never ran because something they needed did not end as it should."""
        self.failures: dict[int, int] = {}
        """Retries spent, of tasks that spent any."""
        self.growths: dict[int, int] = {}
        """How often an unfinished task used more memory than it had, and was to run again with more."""
        self.outgrown: dict[int, tuple[int, int]] = {}
        """Tasks that wait for the job to ask for more memory: how many bytes they had, and used."""
        self.interruptions: dict[int, tuple[int, str]] = {}
        """How often attempts of an unfinished task were ended by their worker, and why the last was."""
        self.blockings: dict[int, int] = {}
        """How often attempts of an unfinished task met something broken outside, of those that did so more than once, ..."""
        self.last_blocked: dict[int, int] = {}
        """... and of those that did so very often, the last of those attempts."""
        self.refused_by: dict[str, str] = {}
        """Workers that cannot run this job, and why."""
        self.record: Record | None = None
        """How its tasks fared on which workers: see blame."""
        self.forgiven: dict[int, int] = {}
        """How often a task was given another try because its worker was at fault."""
        self.mean_wall_s: float | None = None
        """How long its tasks take, recent ones counting most."""
        self.long_s = 0.0
        """About the longest that any of its last hundred tasks took."""
        self.passed_at: float | None = None
        """Since when smaller ones go before it, for want of room."""
        self.outranked_at: float | None = None
        """Since when others of better rank go before it."""
        self.saver: Worker | None = None
        """The worker that is being emptied for it."""
        self.inputs: Inputs | None = None
        """What data its tasks take, if its rank asks about that."""
        # What it has to do with the accounts: see Books._account.
        self.admitted = False
        """Its queue does not hold it back for having too many queued tasks already."""
        self.stands_back = False
        """It does, and the queue has it on its list."""
        self.counted = 0
        """How many of its flights the accounts know of ..."""
        self.queued = 0
        """... and how many tasks that are ready or under way, while it is admitted."""
        self.due = 0.0
        """What is to be charged (or given back)."""
        # Needs: see graph.
        self.after: dict[Need, None] = {}
        """What it waits for, as a whole or task by task."""
        self.edges: Sequence[Edge] = ()
        """What single tasks of it need, by task."""
        self.unmet: dict[int, int] = {}
        """How many arrows to a task are not met, of those that have any."""
        self.delayed: dict[int, float] = {}
        """When the next try of a task is due that waits for that."""
        self.watchers: dict[Need, None] = {}
        """Needs of others that wait for tasks of this one."""
        self.arrows: dict[int, dict[tuple[int, int], Job]] = {}
        """Tasks that wait for a task of this one: by that task, then by their job's id and their number."""
        self.dependents: dict[int, Job] = {}
        """All unfinished jobs that have to do with this one in such a way."""

    def took(self, wall_s: float) -> bool:
        """Learn from how long one of its tasks took. Whether that makes it another kind: see `span_s`."""
        mean = wall_s if self.mean_wall_s is None else self.mean_wall_s
        self.mean_wall_s = mean + 0.1 * (wall_s - mean)
        long_s = self.long_s
        self.long_s = wall_s if wall_s > long_s else long_s + 0.01 * (wall_s - long_s)
        span_s = self.kind.span_s
        if self.long_s > span_s or (span_s > 1.0 and 2.0 * self.long_s <= span_s):
            return not self.row.spec.time_limit_s
        return False

    @property
    def span_s(self) -> float:
        """How long a task of it may take: its limit, else what was seen, up to the next power of two; 0: unknown."""
        if limit_s := self.row.spec.time_limit_s:
            return limit_s
        return 0.0 if self.long_s == 0.0 else max(1.0, 2.0 ** math.ceil(math.log2(self.long_s)))

    def find_kind(self) -> None:
        self.kind = kind_of(self.row, self.span_s)
        self.needs = self.kind.needs

    @property
    def expected_wall_s(self) -> float | None:
        """How long a task of it will take: by what its own took; in a flow of many small steps, by those before it.

        Not so for other jobs: what is offered ahead cannot be overtaken, and a long task of one that nothing is known of
        would stand in the way of urgent ones.
        """
        if self.mean_wall_s is None and self.row.flow:
            return self.user.mean_wall_s
        return self.mean_wall_s

    @property
    def tries(self) -> tuple[dict[int, int] | dict[int, tuple[int, str]], ...]:
        """What is counted of unfinished tasks, by task: forgotten when they end."""
        return self.failures, self.growths, self.interruptions, self.blockings, self.last_blocked

    @property
    def ended_count(self) -> int:
        return len(self.finished) + len(self.failed) + len(self.cancelled)

    @property
    def minds_ends(self) -> bool:
        """Whether the end of a task may mean something for other tasks."""
        if self.dependents:
            return True
        stops = self.most_fails is not None or self.row.spec.on_failure is OnFailure.STOP
        return stops and bool(self.failed)

    @property
    def cap_room(self) -> int:
        """How many more may be under way by the job's own limit."""
        return self.row.max_running - len(self.flights) if self.row.max_running else UNLIMITED

    def state_of(self, task: int) -> TaskState | None:
        """None if the job has no such task."""
        if (flight := self.flights.get(task)) is not None:
            return flight.state
        for state, members in (
            (TaskState.READY, self.ready),
            (TaskState.WAITING, self.waiting),
            (TaskState.PAUSED, self.paused),
            (TaskState.BLOCKED, self.blocked),
            (TaskState.FINISHED, self.finished),
            (TaskState.FAILED, self.failed),
            (TaskState.CANCELLED, self.cancelled),
        ):
            if task in members:
                return state
        return None

    def rests_in(self, state: TaskState) -> IntervalSet:
        """Its tasks in one of the states that are neither under way nor the end."""
        return {
            TaskState.READY: self.ready,
            TaskState.WAITING: self.waiting,
            TaskState.PAUSED: self.paused,
            TaskState.BLOCKED: self.blocked,
        }[state]

    def stage_of(self, task: int) -> Stage | None:
        """In which it met what it waits for; None: it is not blocked."""
        return next((stage for stage, tasks in self.stages.items() if task in tasks), None)

    def ended_in(self, state: TaskState) -> IntervalSet:
        if state is TaskState.FINISHED:
            return self.finished
        return self.failed if state is TaskState.FAILED else self.cancelled

    @property
    def resting(self) -> tuple[IntervalSet, IntervalSet, IntervalSet, IntervalSet]:
        """Tasks that are neither under way nor ended."""
        return self.ready, self.waiting, self.paused, self.blocked

    def rest(self, task: int) -> None:
        """Nobody has it any more, and it has not ended."""
        (self.paused if self.held and task in self.held else self.ready).add(task)

    def take_out(self, task: int) -> None:
        """Out of whichever set it rests in."""
        for members in self.resting:
            members.discard(task)
        for told in (self.outgrown, self.delayed):
            told.pop(task, None)

    def postpone(self, fault: Fault, tasks: IntervalSet) -> None:
        """When they are released."""
        key = fault.stage, fault.key(self.row.owner)
        self.postponed.setdefault(key, (fault, IntervalSet()))[1].update(tasks)

    def take_postponed(self, tasks: IntervalSet) -> list[tuple[Fault, IntervalSet]]:
        """These are not held any more. Returns which of them were blocked, and on what."""
        taken = []
        for key, (fault, postponed) in list(self.postponed.items()):
            if out := postponed.intersection(tasks):
                taken.append((fault, out))
                postponed.difference_update(out)
                if not postponed:
                    del self.postponed[key]
        return taken

    def take_stages(self, tasks: IntervalSet) -> list[tuple[Stage, IntervalSet]]:
        """These are not blocked any more. Returns in which stages they had met their faults."""
        taken = []
        for stage, met in list(self.stages.items()):
            if out := met.intersection(tasks):
                taken.append((stage, out))
                met.difference_update(out)
                if not met:
                    del self.stages[stage]
        return taken

    def restore(
        self, finished: list[Range], failed: list[Range], cancelled: list[Range], skipped: list[Range]
    ) -> None:
        for members, ranges in (
            (self.finished, finished),
            (self.failed, failed),
            (self.cancelled, cancelled),
        ):
            if ranges:  # of thousands of jobs, most have none of these
                members.update(IntervalSet(ranges))
                self.ready.difference_update(members)
        self.skipped.update(IntervalSet(skipped))
