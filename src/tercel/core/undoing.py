"""Rollback: what a plan says is undone, all of it at once."""

from collections.abc import Iterable, Mapping

import msgspec

from tercel.core import graph, rolling
from tercel.core.changes import JobResumed
from tercel.core.ending import Ending
from tercel.core.intervals import IntervalSet
from tercel.core.ledger import Job
from tercel.core.rolling import Part, Plan, Standing


class Undoing(Ending):
    def plan_rollback(
        self, chosen: Mapping[int, IntervalSet], behind: Iterable[int], *, only: bool = False
    ) -> Plan:
        """`behind`: all jobs that need any of the chosen ones, and so on. All of them are known here, or pinned."""
        ids = {*chosen, *behind}
        found = {id: job for id in ids if (job := self.find(id)) is not None}
        for job in list(found.values()):  # and what they need, for that decides what may run
            for needed in _needed_by(job):
                if (other := self.find(needed)) is not None:
                    found[needed] = other
        return rolling.plan(chosen, {id: standing_of(job) for id, job in found.items()}, only=only)

    def on_rollback(self, plan: Plan, behind: Iterable[int], who: str, now: float) -> None:
        """Ended tasks are back at the beginning. Nothing has happened since the plan was made of the same jobs.

        What has not begun of other jobs that need any of them waits again.
        """
        parts = [(job, part) for id, part in plan.parts.items() if (job := self.find(id)) is not None]
        for job, part in parts:
            if job.row.ended_at is not None:
                self.bring_back(job)
                self.changes.append(JobResumed(job.id))
                job.row = msgspec.structs.replace(job.row, ended_at=None)
            self._fence(job, part.tasks.intersection(job.finished))
            self._reopen(job, part.tasks)
            self._note_undone(job, part, who, now)
        ids = set(behind)
        touched = {job.id: job for job, _ in parts}
        touched |= {id: job for id in ids if (job := self.jobs.get(id)) is not None}
        for job in touched.values():
            if ids.isdisjoint(_needed_by(job)):
                continue
            for task in list(job.strays):  # what a lost attempt may yet tell, it did with what is undone
                self._conclude_strays(job, task, again=True)
        for job in touched.values():  # all, before any is looked at: what it needs may come after it
            graph.detach(job, self.find)
        for job in touched.values():
            self._attach(job, now)
        for job, part in parts:
            self._gate(job, part.tasks, now)

    def _note_undone(self, job: Job, part: Part, who: str, now: float) -> None:
        told = (
            (part.chosen, "rolled back", who),
            (part.used, "rolled back", f"{who}: it had used what was undone"),
            (part.skipped, "waits again", f"what it needs was rolled back {who}"),
        )
        for tasks, what, note in told:
            if tasks:
                self._note(job, tasks, what, note, now)


def _needed_by(job: Job) -> set[int]:
    """Jobs; itself too, if some of its tasks need others of it."""
    return {after.job for after in job.row.spec.after} | {edge[1] for edge in job.edges}


def standing_of(job: Job) -> Standing:
    return Standing(
        row=job.row,
        finished=job.finished,
        failed=job.failed,
        cancelled=job.cancelled,
        skipped=job.skipped,
        under_way=IntervalSet((task, task) for task in sorted(job.flights)),
        edges=job.edges,
    )
