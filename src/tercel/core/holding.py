"""Tasks that people hold, and release again.

ready, waiting, blocked --hold--> paused --release--> ready, waiting (if a need is not met), or blocked as before

Who was blocked is not tested for while it is held, nor given up. It is remembered what it waited for: released, it waits for that
again, which is tested at once, and goes on in waves like all others. Without that, whoever holds thousands during an outage and
releases them would send all of them into it.
"""

from tercel.core.accounts import Settings
from tercel.core.changes import Loaded
from tercel.core.conditions import Fault, fault_of_condition
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.states import RESUMES, TaskEvent, TaskState, next_state
from tercel.core.waiting import Waiting, members_among, move


class Holding(Waiting):
    def __init__(self, settings: Settings, loaded: Loaded, now: float) -> None:
        super().__init__(settings, loaded, now)
        self._postponing: dict[int, Job] = {}
        """Jobs of which more is postponed than is kept."""

    def on_hold(self, job: Job, tasks: IntervalSet, now: float = 0.0, by: str = "") -> int:
        """Start nothing of these; what is under way goes on. Returns how many are held by this.

        `by`: who asks, and why, for the tasks' history.
        """
        held = IntervalSet()
        states = (
            (TaskState.READY, job.ready),
            (TaskState.WAITING, job.waiting),
            (TaskState.BLOCKED, job.blocked),
        )
        self._postpone(job, tasks)
        for state, members in states:
            if next_state(state, TaskEvent.HOLD) is TaskState.PAUSED:
                held.update(members.intersection(tasks))
                move(members, job.paused, tasks)
        if job.blocks:
            self._leave_conditions(job, held, self._clock.now, "held")
        for task in members_among(job.delayed, held):
            del job.delayed[task]
        held.update(IntervalSet((task, task) for task in members_among(job.flights, tasks)))
        held.difference_update(job.held)
        job.held.update(held)
        if held:
            self.revise(job, job.row.spec)
            self._note(job, held, "held", by, now)
        return len(held)

    def resumes_in(self, job: Job, task: int) -> TaskState | None:
        """The state in which a task goes on that is blocked or held; None: it is neither."""
        if (stage := job.stage_of(task)) is not None:
            return RESUMES[stage]
        if task not in job.paused:
            return None
        if any(task in tasks for _, tasks in job.postponed.values()):
            return TaskState.BLOCKED
        return TaskState.WAITING if self._unmet(job, IntervalSet([(task, task)])) else TaskState.READY

    @staticmethod
    def _postpone(job: Job, tasks: IntervalSet) -> None:
        """Remember what those wait for that are blocked, and in which stage they met it, for when they are released."""
        for condition, waiting in job.blocks.items():
            held = waiting.intersection(tasks)
            for stage, met in job.stages.items() if held else ():
                if both := held.intersection(met):
                    job.postpone(fault_of_condition(condition.row, stage), both)

    def _postpone_one(self, job: Job, task: int, fault: Fault) -> None:
        """A task that was under way when it was held has met a fault. Kept by `_keep_postponed`: thousands may come together."""
        job.postpone(fault, IntervalSet([(task, task)]))
        self._postponing[job.id] = job

    def _keep_postponed(self) -> None:
        for job in self._postponing.values():
            self.revise(job, job.row.spec)
        self._postponing.clear()

    def on_release(self, job: Job, tasks: IntervalSet, now: float, by: str = "") -> int:
        """Returns how many of them were held."""
        free = job.held.intersection(tasks)
        if not free or next_state(TaskState.PAUSED, TaskEvent.RELEASE) is not TaskState.READY:
            return 0
        job.held.difference_update(free)
        resting = job.paused.intersection(free)
        under_way = len(members_among(job.flights, free))
        move(job.paused, job.ready, resting)
        postponed = job.take_postponed(free)
        self.revise(job, job.row.spec)
        self._note(job, free, "released", by, now)
        self._wait_again(job, resting, now)
        for fault, were_blocked in postponed:
            if again := were_blocked.intersection(job.ready):
                self._block_all(job, again, fault, now)
        self._gate(job, resting, now)
        return len(resting) + under_way
