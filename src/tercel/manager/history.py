"""What befell a task, or a job: from the records of attempts and from notes, oldest first.

A page of a task's history is cut from all of it; a job's is read page by page, for very much may have befallen it.
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby

from tercel.core.blame import blame_of
from tercel.core.changes import Noted
from tercel.core.errors import NotFound
from tercel.core.intervals import IntervalSet
from tercel.core.model import JobRow
from tercel.core.reports import End, Outcome
from tercel.core.states import TERMINAL, TaskState
from tercel.manager import explaining, views
from tercel.manager.rollback import named_ranges
from tercel.manager.service import Manager
from tercel.wire.api import History, HistoryEvent

_NO_CODE = (End.TIMED_OUT, End.CANCELLED, End.INTERRUPTED, End.REFUSED, End.EXCEEDED)
NOTES_A_SECOND = 2**20
"""More than befall a job. A page's number is below 2**53 for a few centuries."""
_WORDS = {
    (TaskState.CANCELLED, End.INTERRUPTED): "interrupted",
    (TaskState.FAILED, End.INTERRUPTED): "interrupted",
}


async def of_task(manager: Manager, row: JobRow, task: int, *, skip: int, limit: int) -> History:
    view = await views.task_view(manager, row, task)
    if view is None:
        raise NotFound(f"job {row.id} has no task {task}", "task")
    store = manager.store
    earlier = await asyncio.to_thread(store.history, row.id, task)
    last = await asyncio.to_thread(store.outcomes, row.id, ranges=[(task, task)], limit=1)
    notes = await asyncio.to_thread(store.notes, row.id, task)
    found = [HistoryEvent(at=row.submitted_at, what="accepted", text=f"from {row.owner}")]
    found += [HistoryEvent(at=note.at, what=note.what, text=note.note) for note in notes]
    job = manager.machine.jobs.get(row.id)
    flight = job.flights.get(task) if job is not None else None
    for outcome in (*earlier, *last):
        if outcome.report.attempt and (flight is None or flight.attempt != outcome.report.attempt):
            found += _attempt(outcome, row)
    if flight is not None and flight.running_since is not None:
        worker = flight.worker.id
        found.append(
            HistoryEvent(at=flight.running_since, what="started", worker=worker, attempt=flight.attempt)
        )
    found.sort(key=lambda event: event.at)  # of the same time: as they stand here
    is_told = view.state in TERMINAL or not view.why
    now = str(view.state) if is_told else view.why if view.condition else f"{view.state}: {view.why}"
    return History(
        id=view.id,
        events=found[skip : skip + limit],
        more=len(found) > skip + limit,
        next=min(len(found), skip + limit),
        now=now,
    )


def _attempt(outcome: Outcome, row: JobRow) -> list[HistoryEvent]:
    """How it began, if it did, and how it ended."""
    report = outcome.report
    events: list[HistoryEvent] = []
    if report.started_at:
        # By a worker's clock: nothing starts before it was accepted, or after it has ended.
        at = min(max(report.started_at, row.submitted_at), outcome.ended_at)
        events.append(HistoryEvent(at=at, what="started", worker=outcome.worker, attempt=report.attempt))
    events.append(
        HistoryEvent(
            at=outcome.ended_at,
            what=_WORDS.get((outcome.state, report.end), str(outcome.state)),
            text=views.how_it_ended(outcome),
            attempt=report.attempt,
            worker=outcome.worker,
            code=None if report.end in _NO_CODE else report.code,
            wall_s=report.wall_s,
            blame=blame_of(outcome) or "",
        )
    )
    return events


async def of_job(manager: Manager, row: JobRow, *, skip: int, limit: int) -> History:
    """`skip`: 0, or what the page before says is next."""
    since, skipped = divmod(skip, NOTES_A_SECOND)
    notes = await asyncio.to_thread(
        manager.store.job_notes, row.id, since=since, skip=skipped, limit=limit + 1
    )
    more = len(notes) > limit
    found: list[HistoryEvent] = []
    if skip == 0:
        found.append(
            HistoryEvent(
                at=row.submitted_at,
                what="accepted",
                text=f"from {row.owner}",
                tasks=named_ranges(row.ranges),
                count=row.task_count,
            )
        )
    found += await asyncio.to_thread(_runs, notes[:limit])
    if row.ended_at is not None and not more:
        text = f"{row.finished:,} finished, {row.failed:,} failed, {row.cancelled:,} cancelled"
        found.append(HistoryEvent(at=row.ended_at, what="ended", text=text, count=row.task_count))
        found.sort(key=lambda event: event.at)  # a job may have been restored, or forked, after its end
    explained = await explaining.explain_job(manager, row)
    return History(
        id=str(row.id), events=found, more=more, next=_behind(skip, notes[:limit]), now=explained.summary
    )


def _behind(skip: int, notes: Sequence[Noted]) -> int:
    """Where the page after these begins: a second, and how many notes of that second have been told."""
    if not notes:
        return skip
    second = max(int(notes[-1].at), 0)
    told = sum(note.at >= second for note in notes)
    return max(skip, second * NOTES_A_SECOND) + told


def _runs(notes: Sequence[Noted]) -> list[HistoryEvent]:
    """What befell others soon after in the same words is one event. Made when all of them are known: they may be many."""
    events: list[HistoryEvent] = []
    for (what, text), alike in groupby(notes, key=lambda note: (note.what, note.note)):
        run = list(alike)
        members = IntervalSet([range for note in run for range in note.ranges])
        events.append(
            HistoryEvent(
                at=run[0].at,
                until=run[-1].at if len(run) > 1 else None,
                what=what,
                text=text,
                tasks=named_ranges(members.ranges()),
                count=len(members),
            )
        )
    return events
