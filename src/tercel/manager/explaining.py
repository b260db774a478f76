"""Why the tasks of a job are where they are, for people."""

import asyncio

from tercel.core.explain import why_resting, why_under_way
from tercel.core.model import JobRow
from tercel.core.selectors import task_name
from tercel.core.states import TaskState
from tercel.manager.service import Manager
from tercel.manager.views import counts, how_it_ended, task_view
from tercel.wire.api import Explanation, Reason


async def explain_job(manager: Manager, row: JobRow) -> Explanation:
    job = manager.machine.jobs.get(row.id)
    if job is None:
        return await _explain_ended(manager, row)
    now = manager.clock()
    grouped: dict[tuple[TaskState, str], int] = {
        (state, text): count for state, count, text in why_resting(manager.machine, job, now)
    }
    for flight in job.flights.values():
        text = (
            "runs"
            if flight.running_since is not None and flight.worker.online
            else why_under_way(flight, now)
        )
        key = (flight.state, text)
        grouped[key] = grouped.get(key, 0) + 1
    reasons = [
        Reason(state=state, count=count, text=text)
        for (state, text), count in sorted(grouped.items(), key=lambda item: -item[1])
    ]
    summary = "; ".join(f"{r.count:,} {r.state}: {r.text}" for r in reasons[:3])
    return Explanation(id=str(row.id), summary=summary, reasons=reasons)


async def _explain_ended(manager: Manager, row: JobRow) -> Explanation:
    """Of what did not finish, why the first one did not."""
    total = counts(row, None)
    summary = f"ended: {total.finished:,} finished, {total.failed:,} failed, {total.cancelled:,} cancelled"
    reasons = []
    whole = [(row.ranges[0][0], row.ranges[-1][1])]
    for state, count in ((TaskState.FAILED, total.failed), (TaskState.CANCELLED, total.cancelled)):
        if not count:
            continue
        for first in await asyncio.to_thread(
            manager.store.outcomes, row.id, ranges=whole, states=[state], limit=1
        ):  # none, if it is being retried
            which = f"{task_name(row.id, first.report.task)}: " if row.task_count > 1 else ""
            reasons.append(Reason(state=state, count=count, text=which + how_it_ended(first)))
    return Explanation(
        id=str(row.id), summary="; ".join([summary, *(reason.text for reason in reasons)]), reasons=reasons
    )


async def explain_task(manager: Manager, row: JobRow, task: int) -> Explanation | None:
    view = await task_view(manager, row, task)
    if view is None:
        return None
    summary = view.why or str(view.state)
    return Explanation(id=view.id, summary=summary, reasons=[Reason(state=view.state, count=1, text=summary)])
