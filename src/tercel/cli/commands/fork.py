"""tercel fork"""

import click

from tercel.cli.asking import clock, moment
from tercel.cli.completing import any_job
from tercel.cli.lazy import Command, late
from tercel.cli.screen import Screen
from tercel.cli.selecting import split
from tercel.cli.talking import talk
from tercel.cli.words import Cell, count, table
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Forked, ForkedJob

COLUMNS = ("WAS", "IS", "NAME", "TASKS", "KEPT", "NOT FINISHED", "CHANGED", "NEED THOSE")


@click.command(cls=Command)
@click.argument("select", metavar="JOB...", nargs=-1, required=True, shell_complete=any_job)
@click.option("--at", metavar="TIME", help="As of 14:05, 2026-11-16T14:05, or '2h ago'.  [default: now]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[STEP:]KEY=VALUE",
    help="A key of job files: command=…, mem=2G, env.SEED=7, lines_file=…; of one job among several, by its name or "
    "number: fit:command=…; repeatable.",
)
@click.option(
    "--only-affected",
    is_flag=True,
    help="Of a changed job, run only those tasks again that would run something else.",
)
@click.option("--name", default="", metavar="NAME", help="Of the copy, if it is one.")
@click.option("--queue", default="", metavar="NAME", help="Of the copies.")
@click.option("--hold", is_flag=True, help="Start nothing of them until they are released.")
@click.option("--dry-run", is_flag=True, help="Show what would run again, and why.")
@click.pass_obj
def command(
    screen: Screen,
    select: tuple[str, ...],
    at: str | None,
    settings: tuple[str, ...],
    only_affected: bool,
    name: str,
    queue: str,
    hold: bool,
    dry_run: bool,
) -> None:
    """Replay jobs from a moment, with some things changed, as new jobs. The old ones stay as they are.

    What had finished by then keeps its results. What had not, what is changed, and what needs such runs again. A job of a
    flow brings the whole flow.

    \b
    tercel fork 37 --at 14:05 --set command='./fit2.sh {C}' --only-affected --dry-run
    """
    chosen = split(select)
    then = None if at is None else moment(at, "at")
    wanted = late("tercel.sdk.files.settings", "from_texts")(settings) if settings else None

    async def ask(client: AsyncClient) -> None:
        forked = await client.fork(
            chosen,
            at=then,
            settings=wanted,
            only_affected=only_affected,
            name=name,
            queue=queue,
            hold=hold,
            dry_run=dry_run,
        )
        screen.emit(forked)
        _tell(screen, forked, dry_run, "" if then is None else f" as of {clock(then)}")

    talk(screen, ask)


def _tell(screen: Screen, forked: Forked, dry_run: bool, then: str) -> None:
    again = sum(job.tasks - job.kept for job in forked.jobs)
    kept = sum(job.kept for job in forked.jobs)
    would = "would run" if dry_run else "will run"
    screen.tell(
        f"{count(len(forked.jobs), 'job')} {'to fork' if dry_run else 'forked'}{then}: {kept:,} tasks keep their results, "
        f"{again:,} {would} again"
    )
    screen.tell(table(COLUMNS, map(_row, forked.jobs)))
    for note in forked.notes:
        screen.note(note)


def _row(job: ForkedJob) -> list[Cell]:
    copy = str(job.id) if job.id else "-"
    return [str(job.job), copy, job.name, job.tasks, job.kept, job.unfinished, job.changed, job.needy]
