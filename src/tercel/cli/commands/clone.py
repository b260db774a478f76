"""tercel clone"""

import click

from tercel.cli.cloning import changed
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import one_task, resolve_one
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("job", metavar="JOB")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A sweep's parameter (C=5, C=1,2,3, g=0:1:0.25), or name, cpus, mem, time, array, priority, retries, queue.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be submitted.")
@click.pass_obj
def command(screen: Screen, job: str, settings: tuple[str, ...], dry_run: bool) -> None:
    """Submit a job like another one, with some things changed, and print the new one's id."""

    async def ask(client: AsyncClient) -> None:
        choice = await resolve_one(client, job)
        if one_task(choice) is not None or choice.tasks is not None:
            raise UsageError(f"{job!r} names tasks: clone a whole job, as in {choice.job}", "job")
        twin = changed(await client.submission(choice.job), settings)
        if dry_run:
            screen.emit({"dry_run": True, "job": twin})
            screen.tell(f"a job like {choice.job} would be submitted")
            return
        submitted = await client.submit(twin)
        screen.emit({"id": submitted.id, "tasks": submitted.tasks, "cloned": choice.job})
        screen.tell(f"{submitted.id}")
        screen.note(f"job {submitted.id}: {count(submitted.tasks, 'task')}, like job {choice.job}")

    talk(screen, ask)
