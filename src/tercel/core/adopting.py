"""Jobs that come from elsewhere, with a past: out of a snapshot, into a machine that runs.

They are in the store already. What they need is known here, or pinned, or adopted before them.
"""

import msgspec

from tercel.core.blocked import Condition, not_ahead
from tercel.core.changes import ConditionSet, LiveJob, TasksBlocked
from tercel.core.clocks import Clocks
from tercel.core.conditions import ConditionRow, Place
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job


class Adopting(Clocks):
    def take_attempts(self, count: int) -> int:
        """The first of so many attempt ids that nothing else will ever have."""
        first = self._next_attempt
        self._next_attempt += count
        return first

    def take_conditions(self, count: int) -> int:
        """The first of so many numbers for conditions."""
        first = self._next_condition
        self._next_condition += count
        return first

    def adopt_condition(self, row: ConditionRow, now: float) -> Condition:
        """The one that its tasks are to wait for: it, or one that is open here for the same thing.

        Tasks that join must follow, or it stays for nobody. What it was before is closed by `drop_condition`, when nobody
        waits for that any more: a manager that is killed meanwhile finds both.
        """
        row = not_ahead(row, now)
        known = self._known.get(row.key)
        if known is not None and known.id in self.conditions:
            return known
        condition = self._known[row.key] = Condition(row)
        self._set(
            condition, closed_at=None, closed=""
        )  # if it has cleared since its first tasks were adopted
        self._open(condition)
        if row.place is Place.WORKER:
            self._expect(row.where, now)  # or its tasks would wait for a worker that is nowhere
        return condition

    def drop_condition(self, row: ConditionRow, instead: Condition, now: float) -> None:
        """All who were to wait for it wait for another."""
        if instead.id != row.id:
            told = f"the same as condition {instead.id}"
            self.changes.append(ConditionSet(msgspec.structs.replace(row, closed_at=now, closed=told)))

    def adopt(
        self, live: LiveJob, conditions: dict[int, Condition], now: float, *, anew: bool = False
    ) -> Job:
        """A job with unfinished tasks. `conditions`: by the number that the store has, what `adopt_condition` gave.

        `anew`: what is ready has not been asked about, of a job that asks before it starts.
        """
        job = self.restore(live)
        for id, stage, ranges in live.blocked:
            condition, tasks = conditions[id], IntervalSet(ranges)
            self._join(condition, job, tasks, stage)
            if condition.id != id:
                self.changes.append(TasksBlocked(job.id, tuple(ranges), condition.id, now, stage))
        self._attach(job, now)
        if anew:
            self._gate(job, job.ready, now)
        return job
