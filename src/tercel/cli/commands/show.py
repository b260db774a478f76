"""tercel show"""

import time
from contextlib import aclosing

import click
import msgspec

from tercel.cli.completing import any_job
from tercel.cli.filing import HEADERS as FILES
from tercel.cli.filing import PAGE as FILES_PAGE
from tercel.cli.filing import file_row
from tercel.cli.lazy import Command
from tercel.cli.placing import data_facts, needs_of, placing_facts
from tercel.cli.screen import Screen
from tercel.cli.selecting import PAGE, Chosen, each_task, existing, one_task, resolve
from tercel.cli.talking import talk
from tercel.cli.words import (
    Cell,
    count,
    duration,
    ended,
    needs,
    pairs,
    plain,
    ranges,
    short,
    size,
    states,
    table,
)
from tercel.core.errors import NotFound
from tercel.core.intervals import IntervalSet
from tercel.core.states import TaskState
from tercel.sdk.client import AsyncClient
from tercel.wire.api import AttemptView, JobView, TaskView
from tercel.wire.api_files import FileEntry

MOST_FAILED = 10
ATTEMPTS = (
    "ATTEMPT",
    "STATE",
    "END",
    "BLAME",
    "WORKER",
    "STARTED",
    "WALL",
    "CPU",
    "MEMORY",
    "STDOUT",
    "STDERR",
    "NOTE",
)
TASKS = ("TASK", "STATE", "EXIT", "WORKER", "WHY")


@click.command(cls=Command)
@click.argument("select", metavar="SELECT...", nargs=-1, required=True, shell_complete=any_job)
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many tasks."
)
@click.option("--files", is_flag=True, help="The files that they made, instead.")
@click.pass_obj
def command(screen: Screen, select: tuple[str, ...], limit: int, files: bool) -> None:
    """Show all about a job (37), some of its tasks (37.0-9), or a task and every attempt at it (37.4)."""

    async def ask(client: AsyncClient) -> None:
        chosen = await resolve(client, select, ended=True)
        if not chosen:
            raise NotFound("there is no job yet", "select")
        for at, choice in enumerate(chosen):
            if at:
                screen.tell("")
            if files:
                await _show_files(client, screen, choice, limit)
            else:
                await _show(client, screen, choice, limit)

    talk(screen, ask)


async def _show(client: AsyncClient, screen: Screen, choice: Chosen, limit: int) -> None:
    task = one_task(choice)
    if choice.tasks is None:
        await _show_job(client, screen, choice.job)
    elif task is not None:
        view = await client.task(choice.job, task)
        screen.emit(view)
        screen.tell(_task_lines(screen, view))
    else:
        await _show_tasks(client, screen, choice.job, choice.tasks, limit)


async def _show_files(client: AsyncClient, screen: Screen, choice: Chosen, limit: int) -> None:
    tasks = "" if choice.tasks is None else ranges(choice.tasks)
    found: list[FileEntry] = []
    after, more = (-1, ""), True
    while more and len(found) < limit:
        page = await client.job_files(
            choice.job, tasks, after=after, limit=min(limit - len(found), FILES_PAGE)
        )
        found, more = found + page.files, page.more
        after = (found[-1].task, found[-1].name) if found else after
    screen.emit({"job": choice.job, "files": found, "more": more})
    if found:
        screen.tell(table(FILES, map(file_row, found)))
    else:
        screen.note(f"nothing that {'it' if not tasks else 'they'} made is in the catalogue")
    if more:
        screen.note(f"there are more: --limit {limit * 10}")


async def _show_job(client: AsyncClient, screen: Screen, job: int) -> None:
    view = await client.job(job)
    failed: list[TaskView] = []
    if view.counts.failed:
        failed = (await client.tasks(job, state=TaskState.FAILED, limit=MOST_FAILED)).tasks
    screen.emit(view, failed_tasks=failed)
    screen.tell(pairs(_job_facts(view)))
    if failed:
        more = view.counts.failed - len(failed)
        screen.tell(["", *table(TASKS, map(_task_row, failed))])
        if more > 0:
            screen.note(f"and {more:,} more failed")


async def _show_tasks(client: AsyncClient, screen: Screen, job: int, tasks: IntervalSet, limit: int) -> None:
    wanted = existing(await client.job(job), tasks)
    found: list[TaskView] = []
    more = False
    async with aclosing(each_task(client, job, wanted, page=min(PAGE, limit + 1))) as views:
        async for view in views:
            if more := len(found) == limit:
                break
            found.append(view)
    screen.emit({"tasks": found, "more": more})
    screen.tell(table(TASKS, map(_task_row, found)))
    if more:
        screen.note(f"there are more: --limit {limit * 10}")


def _job_facts(view: JobView) -> list[tuple[str, str]]:
    lasted_s = (view.ended_at or time.time()) - view.submitted_at
    when = "ended after" if view.ended_at is not None else "under way for"
    return [
        ("job", f"{view.id}" + (f" ({view.name})" if view.name else "")),
        ("owner", view.owner),
        ("template" if view.template else "command", short(view.command, 400)),
        ("points", f"{view.points:,}: {view.grid}" if view.points else ""),
        ("directory", view.cwd or "an empty one of its own"),
        ("tasks", f"{view.tasks:,}" + (f" ({view.array})" if view.array else "")),
        ("states", states(view.counts)),
        ("submitted", f"{_clock(view.submitted_at)}, {when} {duration(lasted_s)}"),
        ("needs", needs_of(view)),
        ("time limit", duration(view.time_limit_s) if view.time_limit_s else ""),
        *placing_facts(view),
        *data_facts(view),
        ("retries", str(view.retries or "")),
        ("most failures", view.max_fails),
        ("queue", view.queue if view.queue != view.owner else ""),
        ("priority", str(view.priority)),
        ("flow", f"{view.flow}" if view.flow else ""),
        ("forked", short(view.forked, 400)),
        ("after", short(needs(view.after), 400)),
        ("next", _next(view)),
    ]


def _next(view: JobView) -> str:
    if ended(view.counts) < view.tasks:
        return f"`tercel explain {view.id}` says why tasks wait"
    return f"`tercel explain {view.id}` says why tasks were cancelled" if view.counts.cancelled else ""


def _task_lines(screen: Screen, view: TaskView) -> list[str]:
    facts = [
        ("task", view.id),
        ("state", screen.state(view.state)),
        ("why", view.why),
        ("fault", f"met at {view.stage}; goes on as {view.resumes_in}" if view.stage else ""),
        ("seen", _seen(view)),
        ("hint", view.hint),
        ("worker", view.worker),
        ("point", msgspec.json.encode(view.point).decode() if view.point is not None else ""),
    ]
    width = max(len(name) for name, value in facts if value)
    lines = [
        f"{name.ljust(width)}  {value if name == 'state' else plain(value)}" for name, value in facts if value
    ]
    if view.attempts:
        lines += ["", *table(ATTEMPTS, map(_attempt_row, view.attempts))]
    if view.left_out:
        lines.append(f"… {count(view.left_out, 'more attempt')} between these: removed by their age")
    return lines


def _seen(view: TaskView) -> str:
    """By what its last attempt knew that something outside is broken: in the table there is little room for it."""
    last = view.attempts[-1] if view.attempts else None
    is_told = view.state is TaskState.BLOCKED and last is not None and last.state is TaskState.BLOCKED
    return short(last.note, 400) if last is not None and is_told else ""


def _task_row(view: TaskView) -> list[Cell]:
    code = "" if view.exit_code is None else str(view.exit_code)
    return [view.id, view.state, code, view.worker, short(view.why, 80)]


def _attempt_row(attempt: AttemptView) -> list[Cell]:
    return [
        str(attempt.attempt),
        attempt.state,
        f"{attempt.end} {attempt.code}",
        attempt.blame,
        attempt.worker,
        _clock(attempt.started_at),
        duration(attempt.wall_s),
        duration(attempt.cpu_s),
        size(attempt.max_rss_bytes),
        size(attempt.out_bytes) + (" (tail kept)" if attempt.out_cut else ""),
        size(attempt.err_bytes) + (" (tail kept)" if attempt.err_cut else ""),
        short(attempt.note, 60),
    ]


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
