"""tercel snapshot save"""

from pathlib import Path

import click

from tercel.cli.completing import any_job
from tercel.cli.lazy import Command, late
from tercel.cli.screen import Screen
from tercel.cli.selecting import split
from tercel.cli.snapshots import Passing, own_number
from tercel.cli.talking import talk
from tercel.cli.words import count, size
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("select", metavar="[SELECT...]", nargs=-1, shell_complete=any_job)
@click.option("--force", is_flag=True, help="In the place of a file of this name.")
@click.pass_obj
def command(screen: Screen, file: Path, select: tuple[str, ...], force: bool) -> None:
    """Save jobs into FILE, with their tasks, results, outputs and all that is known of them.

    SELECT is 37, 1-5, last or all (the unfinished ones); without it all of your jobs are saved. What they need comes along. Or
    it is @3, for a snapshot that the manager took by itself. Tasks under way are saved as not yet run. The manager goes on
    meanwhile.
    """
    if file.exists() and not force:
        raise UsageError(f"{file} exists; --force puts the snapshot in its place", "file")
    number = own_number(select[0]) if len(select) == 1 else 0
    chosen = [] if number else split(select) if select else []

    async def ask(client: AsyncClient) -> None:
        async with Passing(screen, lambda size: f"{file}: {size} so far") as passing:
            saved = await client.save_snapshot(file, chosen, number=number, heard=passing.heard)
        header = late("tercel.stores.snapshot.files", "header")(file)
        jobs, tasks = len(header.jobs), header.tasks
        screen.emit({"file": str(file), "size_bytes": saved, "jobs": jobs, "tasks": tasks})
        screen.tell(f"{file}: {count(jobs, 'job')}, {count(tasks, 'task')}, {size(saved)}")

    talk(screen, ask)
