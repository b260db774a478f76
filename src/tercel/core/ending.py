"""Tasks are cancelled or run again, by somebody's will, or because others failed."""

import msgspec

from tercel.core.changes import JobResumed, SpanConcluded
from tercel.core.effects import Ended, Progressed
from tercel.core.intervals import IntervalSet
from tercel.core.joining import Joining
from tercel.core.ledger import Job
from tercel.core.model import OnFailure
from tercel.core.states import TaskEvent, TaskState, next_state
from tercel.core.waiting import members_among, named


class Ending(Joining):
    def on_cancel(self, job: Job, tasks: IntervalSet, reason: str, now: float) -> int:
        """End the unfinished ones among `tasks`. Returns how many."""
        doomed = IntervalSet()
        for members in job.resting:
            chosen = members.intersection(tasks)
            members.difference_update(chosen)
            doomed.update(chosen)
        if job.blocks:
            self._leave_conditions(job, doomed, now, "cancelled")
        kills: dict[str, list[int]] = {}
        for task in members_among(job.flights, tasks):
            flight = job.flights[task]
            self._abandon(flight)
            kills.setdefault(flight.worker.id, []).append(flight.attempt)
            self._conclude_strays(job, task, again=True)
            doomed.add(task)
        for first, last in doomed.ranges():
            self.changes.append(SpanConcluded(job.id, first, last, TaskState.CANCELLED, now, reason))
        for task in members_among(job.strays, doomed):
            self._conclude_strays(job, task, again=True)
        for condition, out in list(job.out.items()):
            out.difference_update(doomed)
            if not out:
                self._none_out(condition, job)
        forget_tries(job, doomed)
        job.cancelled.update(doomed)
        self.effects += [Ended(worker, attempts) for worker, attempts in kills.items()]
        if doomed:
            self.effects.append(Progressed(job.id, named(doomed), []))
            self._settle_or_end(job, now)
            self._spread(job, doomed, now)
        return len(doomed)

    def on_retry(
        self, job: Job, tasks: IntervalSet, now: float, finished_too: bool = False, by: str = ""
    ) -> int:
        """Run ended ones among `tasks` again, and what was skipped because of them. Returns how many of `tasks`.

        Those that need something which has not ended as it should stay as they are.
        """
        again = IntervalSet()
        states = [TaskState.FAILED, TaskState.CANCELLED] + [TaskState.FINISHED] * finished_too
        for state in states:
            if next_state(state, TaskEvent.RETRY) is TaskState.READY:
                again.update(job.ended_in(state).intersection(tasks))
        again.difference_update(self._hopeless(job, again))
        if again:
            if job.row.ended_at is not None:
                self.changes.append(JobResumed(job.id))
                job.row = msgspec.structs.replace(job.row, ended_at=None)
            self._fence(job, again.intersection(job.finished))
            self._reopen(job, again)
            self._note(job, again, "retried", by, now)
            self._wait_again(job, again, now)
            self._gate(job, again, now)
            self._revive_behind(job, again, now)
        else:
            self._settle_or_end(job, now)
        return len(again)

    def _after_ends(self, job: Job, tasks: IntervalSet, now: float) -> None:
        """What the end of these tasks means for the rest of their job and for others."""
        self._spread(job, tasks, now)
        failed = job.failed.intersection(tasks) if job.failed else None
        if not failed:
            return
        if job.most_fails is not None and len(job.failed) > job.most_fails:
            reason = f"stopped: more than {job.row.spec.max_fails} of the job's tasks failed"
            self.on_cancel(job, IntervalSet(job.row.ranges), reason, now)
        if job.row.spec.on_failure is OnFailure.STOP:
            reason = f"stopped: {job.id}.{failed.first()} failed"
            for id in sorted(self.flows.get(job.row.flow, ()) or {job.id}):
                if (other := self.jobs.get(id)) is not None:
                    self.on_cancel(other, IntervalSet(other.row.ranges), reason, now)


def forget_tries(job: Job, tasks: IntervalSet) -> None:
    """They have ended without an attempt's report."""
    for told in (*job.tries, job.delayed, job.outgrown):
        for task in members_among(told, tasks):
            del told[task]
