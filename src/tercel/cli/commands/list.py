"""tercel list"""

import time

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import Cell, duration, ended, short, table
from tercel.sdk.client import AsyncClient
from tercel.wire.api import JobView

MOST_PER_REQUEST = 1000


@click.command(cls=Command)
@click.option("-a", "--all", "every", is_flag=True, help="Ended jobs too.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many."
)
@click.pass_obj
def command(screen: Screen, every: bool, limit: int) -> None:
    """List jobs, newest first: those under way, or all."""

    async def ask(client: AsyncClient) -> None:
        jobs, more = await _jobs(client, limit, every)
        screen.emit({"jobs": jobs, "more": more})
        if jobs:
            now = time.time()
            screen.tell(table(HEADERS, (_row(job, now) for job in jobs)))
        elif not screen.json:
            screen.note("no jobs" if every else "no jobs under way (`tercel list --all` shows ended ones)")
        if more:
            screen.note(f"there are more: `tercel list{' --all' if every else ''} --limit {limit * 10}`")

    talk(screen, ask)


HEADERS = (
    "ID",
    "NAME",
    "OWNER",
    "TASKS",
    "READY",
    "RUNNING",
    "FINISHED",
    "FAILED",
    "CANCELLED",
    "AGE",
    "COMMAND",
)


def _row(job: JobView, now: float) -> list[Cell]:
    counts = job.counts
    return [
        job.id,
        short(job.name, 24),
        short(job.owner, 16),
        job.tasks,
        counts.ready + counts.offered,
        counts.running,
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
