"""What clients are shown: built from the machine for what is unfinished, from the store for what has ended."""

import asyncio
import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from tercel.core.blame import blame_of
from tercel.core.blocked import Condition
from tercel.core.blocking import hint
from tercel.core.explain import why_blocked, why_paused, why_ready, why_under_way, why_waiting
from tercel.core.intervals import IntervalSet, Range
from tercel.core.ledger import Job
from tercel.core.model import JobRow, JobSpec
from tercel.core.points import item_point
from tercel.core.reports import End, Outcome
from tercel.core.rules import edges_of
from tercel.core.scripts import typed
from tercel.core.selectors import task_name
from tercel.core.states import TERMINAL, TaskState
from tercel.manager import finding, logs
from tercel.manager.service import Manager
from tercel.stores.contract import Store, count_left_out
from tercel.wire.api import (
    AttemptView,
    Counts,
    JobView,
    Submission,
    TaskView,
)

LISTED_ARRAY = 1000
"""Characters of a job's array in a list of jobs: there may be a thousand of a megabyte each."""
LISTED_NEEDS = 100
"""What a job waits for, there."""
PAGE_OUTPUT_BYTES = 4 * 2**20
"""Outputs on one page of tasks: one that would make it larger begins the next page."""


def counts(row: JobRow, job: Job | None) -> Counts:
    if job is None:
        return Counts(finished=row.finished, failed=row.failed, cancelled=row.cancelled)
    bringing, delivering = _moving(job) if job.row.spec.inputs or job.row.spec.outputs else (0, 0)
    return Counts(
        waiting=len(job.waiting),
        paused=len(job.paused),
        blocked=len(job.blocked),
        ready=len(job.ready),
        offered=len(job.flights) - job.running - bringing,
        staging_in=bringing,
        running=job.running - delivering,
        staging_out=delivering,
        finished=len(job.finished),
        failed=len(job.failed),
        cancelled=len(job.cancelled),
    )


def _moving(job: Job) -> tuple[int, int]:
    """How many of its tasks have files brought, and delivered."""
    states = [flight.state for flight in job.flights.values() if flight.moving is not None]
    return states.count(TaskState.STAGING_IN), states.count(TaskState.STAGING_OUT)


def job_view(manager: Manager, row: JobRow, *, listed: bool = False) -> JobView:
    spec = row.spec
    array_most, after_most = (LISTED_ARRAY, LISTED_NEEDS) if listed else (None, None)
    command = shlex.join(typed(spec.argv)) if spec.argv else spec.line
    if spec.function is not None:
        command = str(spec.function)
    if row.has_lines and not spec.template:
        command = manager.store.lines(row.id, [(0, 0)])[0]
    return JobView(
        id=row.id,
        name=spec.name,
        owner=row.owner,
        command=command[:1000],
        tasks=row.task_count,
        array=spec.array[:array_most],
        counts=counts(row, manager.machine.jobs.get(row.id)),
        submitted_at=row.submitted_at,
        ended_at=row.ended_at,
        priority=spec.priority,
        cpus=spec.cpus,
        mem_bytes=spec.mem_bytes,
        time_limit_s=spec.time_limit_s,
        retries=spec.retries,
        cwd=spec.cwd,
        queue=spec.queue or row.owner,
        flow=row.flow,
        after=list(spec.after[:after_most]),
        max_fails=spec.max_fails,
        template=spec.template,
        grid=str(spec.grid)[:1000] if spec.grid is not None else "",
        points=spec.grid.count if spec.grid is not None else 0,
        gpus=spec.gpus,
        resources=spec.resources,
        requires=list(spec.requires[:after_most]),
        where=spec.where,
        rank=spec.rank,
        mem_growth=spec.mem_growth,
        pids=spec.pids,
        disk_bytes=spec.disk_bytes,
        isolate=spec.isolate,
        container=spec.container,
        sandbox=spec.sandbox,
        cleanup=spec.cleanup,
        cleanup_limit_s=spec.cleanup_limit_s,
        warn_signal=spec.warn_signal,
        block_on=[] if listed else list(spec.block_on),
        inputs=[] if listed else list(spec.inputs),
        outputs=[] if listed else list(spec.outputs),
    )


def forked(store: Store, row: JobRow) -> str:
    """Of a copy, where it is from."""
    notes = store.notes(row.id, row.ranges[0][0])
    return next((note.note for note in notes if note.what == "forked"), "")


def submission(store: Store, row: JobRow) -> Submission:
    """What would make another job like it."""
    live = store.live(row.id)
    edges = live.edges if live is not None else []
    fields = {name: getattr(row.spec, name) for name in JobSpec.__struct_fields__}
    first, last = row.ranges[0][0], row.ranges[-1][1]
    texts = store.lines(row.id, [(first, last)]) if row.has_lines else None
    calls = store.calls(row.id, [(first, last)]) if row.spec.function is not None else None
    named = set(edges_of((), calls, row.ranges))
    return Submission(
        **fields,
        lines=texts if not row.spec.template else None,
        items=texts if row.spec.template else None,
        calls=calls,
        edges=[
            (task, 0 if job == row.id else job, low, high)
            for task, job, low, high in edges
            if (task, job, low, high) not in named
        ]
        or None,
    )


# -- tasks ------------------------------------------------------------------------------------------------


async def task_views(
    manager: Manager,
    row: JobRow,
    *,
    tasks: Sequence[Range] | None,
    states: Sequence[TaskState],
    after: int,
    limit: int,
    outputs: bool,
) -> tuple[list[TaskView], bool]:
    """A page of tasks in order of number, and whether more follow."""
    job = manager.machine.jobs.get(row.id)
    if job is not None:  # the machine's sets move: they are read on its own thread
        members = _members(manager, row, job, states)
    else:
        members = await asyncio.to_thread(_members, manager, row, None, states)
    if tasks is not None:
        members = members.intersection(IntervalSet(tasks))
    members.discard_range(0, after)
    page = IntervalSet(members.take_first(limit))
    more = len(members) > 0
    outcomes = await _outcomes(manager, row, job, page)
    now = manager.clock()
    waiting = why_ready(manager.machine, job, now) if job is not None and job.ready else ""
    views: list[TaskView] = []
    size = 0
    for task in page:
        outcome = outcomes.get(task)
        state = job.state_of(task) if job is not None else None
        if outcome is not None and (state is None or state in TERMINAL):
            if outputs:
                size += _kept_bytes(outcome)
                if views and size > PAGE_OUTPUT_BYTES:
                    more = True
                    break
            views.append(_ended_view(row.id, outcome, await _texts(manager, outcome) if outputs else None))
        elif job is not None and state is not None:
            views.append(_open_view(manager, job, task, state, waiting, now))
    return (await _with_points(manager, row, views) if row.spec.template else views), more


async def _with_points(manager: Manager, row: JobRow, views: list[TaskView]) -> list[TaskView]:
    grid = row.spec.grid
    if grid is not None:
        return [replace(view, point=grid.point(view.task)) for view in views]
    tasks = IntervalSet((view.task, view.task) for view in views).ranges()
    items = await asyncio.to_thread(manager.store.lines, row.id, tasks)
    return [replace(view, point=item_point(item)) for view, item in zip(views, items, strict=True)]


async def _outcomes(manager: Manager, row: JobRow, job: Job | None, page: IntervalSet) -> dict[int, Outcome]:
    """The records of those tasks on a page that have ended, also of those that end while it is made.

    Those of a job that ends and is retried meanwhile are not waited for without end: what `job` says of it is old.
    """
    found: dict[int, Outcome] = {}
    missing = page
    for _ in range(finding.SETTLINGS):
        records = await asyncio.to_thread(
            manager.store.outcomes, row.id, ranges=missing.ranges(), limit=len(missing)
        )
        found |= {record.report.task: record for record in records}
        if job is None or manager.trouble:
            break
        states = {task: job.state_of(task) for task in page}
        missing = IntervalSet(
            (task, task)
            for task, state in states.items()
            if state in TERMINAL and (task not in found or found[task].state is not state)
        )
        if not missing:
            break
        await manager.settled()
    return found


def _members(manager: Manager, row: JobRow, job: Job | None, states: Sequence[TaskState]) -> IntervalSet:
    """The tasks of a job that are in one of `states` (all if none is given)."""
    if not states:
        return IntervalSet(row.ranges)
    members = IntervalSet()
    for state in states:
        if state in TERMINAL:
            found = (
                job.ended_in(state) if job is not None else IntervalSet(manager.store.ended(row.id, state))
            )
        elif job is None:
            continue
        elif state in (TaskState.READY, TaskState.WAITING, TaskState.PAUSED, TaskState.BLOCKED):
            found = job.rests_in(state)
        else:
            found = IntervalSet((t, t) for t in sorted(job.flights) if job.flights[t].state is state)
        members.update(found)
    return members


def has_task(row: JobRow, task: int) -> bool:
    return any(first <= task <= last for first, last in row.ranges)


async def task_view(manager: Manager, row: JobRow, task: int) -> TaskView | None:
    """One task with every attempt."""
    if not has_task(row, task):
        return None
    views, _ = await task_views(
        manager, row, tasks=[(task, task)], states=(), after=-1, limit=1, outputs=False
    )
    tried = await asyncio.to_thread(manager.store.history, row.id, task)
    if not views:
        return None
    view = views[0]
    if view.hint and (outcome := await logs.outcome_of(manager, row.id, task)) is not None:
        view = replace(view, hint=hint(outcome.report, *await logs.last_words(manager, outcome.report)))
    job = manager.machine.jobs.get(row.id)
    flight = job.flights.get(task) if job is not None else None
    # One that was given up as lost may be back: it has not ended.
    history = [_attempt_view(o) for o in tried if flight is None or o.report.attempt != flight.attempt]
    notes = await asyncio.to_thread(manager.store.notes, row.id, task) if len(tried) > 1 else ()
    return replace(view, attempts=history + view.attempts, left_out=count_left_out(notes))


def _open_view(manager: Manager, job: Job, task: int, state: TaskState, waiting: str, now: float) -> TaskView:
    flight = job.flights.get(task)
    condition = _condition_of(job, task) if state is TaskState.BLOCKED else None
    if condition is not None:
        why = why_blocked(condition, now)
    elif flight is not None:
        why = why_under_way(flight, now)
    elif state in TERMINAL:
        why = "its record waits to be saved"
    elif state is TaskState.WAITING:
        why = why_waiting(manager.machine, job, task, now)
    else:
        why = why_paused(job) if state is TaskState.PAUSED else waiting
    if task in job.interruptions:
        times, last = job.interruptions[task]
        why += f"; was interrupted {times:,} time{'s' if times > 1 else ''} by its worker, the last time because {last}"
    return TaskView(
        id=task_name(job.id, task),
        job=job.id,
        task=task,
        state=state,
        worker=flight.worker.id if flight is not None else "",
        why=why,
        condition=condition.id if condition is not None else None,
        stage=job.stage_of(task),
        resumes_in=manager.machine.resumes_in(job, task),
    )


def _condition_of(job: Job, task: int) -> Condition | None:
    return next((condition for condition, tasks in job.blocks.items() if task in tasks), None)


def _ended_view(job: int, outcome: Outcome, texts: tuple[str, str] | None) -> TaskView:
    report = outcome.report
    out, err = texts or (None, None)
    return TaskView(
        id=task_name(job, report.task),
        job=job,
        task=report.task,
        state=outcome.state,
        worker=outcome.worker,
        exit_code=report.code if report.end is End.EXITED and report.attempt else None,
        why=how_it_ended(outcome),
        attempts=[_attempt_view(outcome)] if report.attempt else [],
        stdout=out,
        stderr=err,
        hint=hint(report) if outcome.state is TaskState.FAILED and report.attempt else "",
    )


def how_it_ended(outcome: Outcome) -> str:
    report = outcome.report
    if not report.attempt:
        return report.note
    words = {
        End.EXITED: f"exited with code {report.code}",
        End.SIGNALLED: f"killed by signal {report.code}",
        End.TIMED_OUT: "exceeded its time limit",
        End.CANCELLED: "cancelled",
        End.INTERRUPTED: "interrupted",
    }.get(report.end, str(report.end))
    return f"{words}: {report.note}" if report.note else words


def _attempt_view(outcome: Outcome) -> AttemptView:
    report = outcome.report
    out, err = report.out, report.err
    return AttemptView(
        attempt=report.attempt,
        state=outcome.state,
        worker=outcome.worker,
        end=report.end,
        code=report.code,
        note=report.note,
        started_at=report.started_at,
        ended_at=outcome.ended_at,
        wall_s=report.wall_s,
        cpu_s=report.cpu_s,
        max_rss_bytes=report.max_rss_bytes,
        out_bytes=out.total_bytes if out else 0,
        err_bytes=err.total_bytes if err else 0,
        blame=blame_of(outcome) or "",
        out_cut=out is not None and out.kept_bytes < out.total_bytes,
        err_cut=err is not None and err.kept_bytes < err.total_bytes,
        exceeded=report.exceeded,
    )


async def _texts(manager: Manager, outcome: Outcome) -> tuple[str, str]:
    report = outcome.report
    out = await logs.text(manager, report.attempt, "out", report.out)
    return out, await logs.text(manager, report.attempt, "err", report.err)


def _kept_bytes(outcome: Outcome) -> int:
    return sum(output.kept_bytes for output in (outcome.report.out, outcome.report.err) if output is not None)
