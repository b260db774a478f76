"""tercel list"""

import time
from contextlib import aclosing

import click
import msgspec

from tercel.cli.completing import any_job
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import PAGE, each_task, existing, resolve_one
from tercel.cli.talking import talk
from tercel.cli.words import Cell, duration, ended, short, table
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient
from tercel.wire.api import JobView, TaskView

MOST_PER_REQUEST = 1000
JOBS = 50
TASKS = 100
TASKS_AT_ONCE = 1000
"""Shown together, with columns as wide as they need."""


@click.command(cls=Command)
@click.argument("select", metavar="[SELECT]", default="", shell_complete=any_job)
@click.option("-a", "--all", "every", is_flag=True, help="Ended jobs too.")
@click.option("--points", is_flag=True, help="The tasks of a job, with the point of each.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many.  [default: {JOBS} jobs; {TASKS} tasks, with --json all]",
)
@click.pass_obj
def command(screen: Screen, select: str, every: bool, points: bool, limit: int | None) -> None:
    """List jobs, newest first: those under way, or all. With SELECT (37, 37.0-9, last): the tasks of that job.

    \b
    tercel list --all
    tercel list 37 --points
    """
    if points and not select:
        raise UsageError(
            "--points shows the tasks of a job: say which, as in `tercel list 37 --points`", "select"
        )
    if every and select:
        raise UsageError("--all is for lists of jobs; all tasks of a job are listed anyway", "all")

    async def ask(client: AsyncClient) -> None:
        if select:
            await _list_tasks(client, screen, select, points, limit)
        else:
            await _list_jobs(client, screen, every, limit or JOBS)

    talk(screen, ask)


# -- jobs -------------------------------------------------------------------------------------------------


async def _list_jobs(client: AsyncClient, screen: Screen, every: bool, limit: int) -> None:
    jobs, more = await _jobs(client, limit, every)
    screen.emit({"jobs": jobs, "more": more})
    if jobs:
        now = time.time()
        blocked = any(job.counts.blocked for job in jobs)
        screen.tell(table(_headers(blocked), (_row(job, now, blocked) for job in jobs)))
    elif not screen.json:
        screen.note("no jobs" if every else "no jobs under way (`tercel list --all` shows ended ones)")
    if more:
        screen.note(f"there are more: `tercel list{' --all' if every else ''} --limit {limit * 10}`")


HEADERS = (
    "ID",
    "NAME",
    "OWNER",
    "TASKS",
    "WAITING",
    "BLOCKED",
    "READY",
    "RUNNING",
    "FINISHED",
    "FAILED",
    "CANCELLED",
    "AGE",
    "COMMAND",
)


def _headers(blocked: bool) -> list[str]:
    """What is seldom has a column only if there is any."""
    return [header for header in HEADERS if blocked or header != "BLOCKED"]


def _row(job: JobView, now: float, blocked: bool) -> list[Cell]:
    counts = job.counts
    return [
        job.id,
        short(job.name, 24),
        short(job.owner, 16),
        job.tasks,
        counts.waiting + counts.paused,
        *([counts.blocked] if blocked else []),
        counts.ready + counts.offered,
        counts.staging_in + counts.running + counts.staging_out,
        counts.finished,
        counts.failed,
        counts.cancelled,
        duration(max(0.0, now - job.submitted_at)) if ended(counts) < job.tasks else "ended",
        short(job.command, 40),
    ]


async def _jobs(client: AsyncClient, limit: int, every: bool) -> tuple[list[JobView], bool]:
    jobs: list[JobView] = []
    before: int | None = None
    while True:
        page = await client.jobs(before=before, limit=min(limit - len(jobs), MOST_PER_REQUEST), all=every)
        jobs += page.jobs
        if not page.more or not page.jobs or len(jobs) >= limit:
            return jobs, page.more
        before = jobs[-1].id


# -- tasks ------------------------------------------------------------------------------------------------


async def _list_tasks(
    client: AsyncClient, screen: Screen, select: str, points: bool, limit: int | None
) -> None:
    choice = await resolve_one(client, select)
    job = await client.job(choice.job)
    if points and not job.template:
        raise UsageError(f"job {job.id} has no points: it is neither a sweep nor made from JSON", "select")
    tasks = existing(job, choice.tasks) if choice.tasks is not None else None
    most = limit or (job.tasks if screen.json else TASKS)
    shown: list[TaskView] = []
    count = 0
    async with aclosing(each_task(client, job.id, tasks, page=min(PAGE, most + 1))) as views:
        async for view in views:
            if count == most:
                screen.note(f"there are more: --limit {most * 10}")
                break
            count += 1
            screen.emit(_line(view))
            shown.append(view)
            if len(shown) == TASKS_AT_ONCE:
                _tell(screen, shown, points)
                shown = []
    if shown:
        _tell(screen, shown, points)


def _line(view: TaskView) -> dict[str, object]:
    """For programs."""
    return {
        "id": view.id,
        "task": view.task,
        "point": view.point,
        "state": view.state,
        "exit": view.exit_code,
        "seconds": round(view.attempts[-1].wall_s, 6) if view.attempts else None,
    }


def _tell(screen: Screen, views: list[TaskView], points: bool) -> None:
    names = list(dict.fromkeys(name for view in views for name in view.point or {})) if points else []
    headers = ("TASK", *(short(name, 24) for name in names), "STATE", "EXIT", "SECONDS")
    screen.tell(table(headers, (_task_row(view, names) for view in views)))


def _task_row(view: TaskView, names: list[str]) -> list[Cell]:
    point = view.point or {}
    return [
        view.id,
        *(_shown(point[name]) if name in point else "" for name in names),
        view.state,
        "" if view.exit_code is None else str(view.exit_code),
        f"{view.attempts[-1].wall_s:.3f}" if view.attempts else "",
    ]


def _shown(value: object) -> str:
    return short(value if isinstance(value, str) else msgspec.json.encode(value).decode(), 40)
