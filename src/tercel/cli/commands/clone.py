"""tercel clone"""

import click

from tercel.cli.cloning import changed
from tercel.cli.completing import any_job
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import resolve_one
from tercel.cli.showing import show_drafts
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("job", metavar="JOB", shell_complete=any_job)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A sweep's parameter (C=5, C=1,2,3, g=0:1:0.25), or a key of job files: mem=2G, queue=vision; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be submitted.")
@click.pass_obj
def command(screen: Screen, job: str, settings: tuple[str, ...], dry_run: bool) -> None:
    """Submit a job like another one, with some things changed, and print the new one's id.

    \b
    tercel clone 37 --set C=5 --set mem=4G --dry-run
    """

    async def ask(client: AsyncClient) -> None:
        choice = await resolve_one(client, job)
        if choice.tasks is not None:
            raise UsageError(f"{job!r} names tasks: clone a whole job, as in {choice.job}", "job")
        twin = changed(await client.submission(choice.job), settings)
        if dry_run:
            await show_drafts(screen, [twin])
            return
        submitted = await client.submit(twin.submission)
        screen.emit({"id": submitted.id, "tasks": submitted.tasks, "cloned": choice.job})
        screen.tell(f"{submitted.id}")
        screen.note(f"job {submitted.id}: {count(submitted.tasks, 'task')}, like job {choice.job}")

    talk(screen, ask)
