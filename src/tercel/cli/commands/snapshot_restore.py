"""tercel snapshot restore"""

from pathlib import Path

import click

from tercel.cli.completing import snapshot_file
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.snapshots import Passing, own_number, whole_file
from tercel.cli.talking import talk
from tercel.cli.words import count, table
from tercel.sdk.client import AsyncClient
from tercel.wire.api_snapshots import Restoration


@click.command(cls=Command)
@click.argument("file", metavar="FILE", shell_complete=snapshot_file)
@click.option("--into", metavar="URL", help="The manager to restore it at, as --server.")
@click.option(
    "--again", is_flag=True, help="Also if it was restored there before: its jobs are there twice then."
)
@click.pass_obj
def command(screen: Screen, file: str, into: str | None, again: bool) -> None:
    """Restore the jobs in FILE (- for what comes through a pipe), or in @3, a snapshot that the manager took by itself.

    The file is checked before anything is changed. Jobs keep their numbers if the manager has never given those to others,
    else they get new ones, which are told. What had ended has ended; all else goes on.
    """
    screen.server = into or screen.server
    number = own_number(file)

    async def own(client: AsyncClient) -> Restoration:
        return await client.restore_own_snapshot(number, again=again)

    async def sent(client: AsyncClient, path: Path) -> Restoration:
        async with Passing(screen, lambda size: f"{file}: {size} sent; restoring") as passing:
            return await client.restore_snapshot(path, again=again, heard=passing.heard)

    if number:
        done = talk(screen, own)
    else:
        with whole_file(file) as path:
            done = talk(screen, lambda client: sent(client, path))
    screen.emit(done)
    _tell(screen, done)


def _tell(screen: Screen, done: Restoration) -> None:
    ended = done.tasks - done.unfinished
    screen.tell(
        f"{count(len(done.jobs), 'job')} restored: {count(done.tasks, 'task')}, {ended:,} of them ended, "
        f"{done.unfinished:,} to do"
    )
    if any(there != here for there, here in done.jobs):
        screen.tell(table(("WAS", "IS"), done.jobs))
    if any(there != here for there, here in done.conditions):
        conditions = [(f"C{there}", f"C{here}") for there, here in done.conditions]
        screen.tell(table(("WAS", "IS"), conditions))
    for note in done.notes:
        screen.note(note)
