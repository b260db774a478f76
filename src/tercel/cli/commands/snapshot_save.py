"""tercel snapshot save"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tercel.cli.completing import any_job
from tercel.cli.lazy import Command, late
from tercel.cli.screen import Screen, write_stdout
from tercel.cli.selecting import split
from tercel.cli.snapshots import PIECE_BYTES, Passing, own_number
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
    meanwhile. If FILE is -, it goes through a pipe.
    """
    if str(file) == "-":
        _check_piped(screen)
        with TemporaryDirectory(prefix="tercel-") as directory:
            # Whole before its first byte is passed on: who reads it need not take half a one for all.
            copy = Path(directory) / "copy"
            screen.note(_save(screen, copy, "stdout", select))
            _pass_on(copy)
        return
    if file.exists() and not force:
        raise UsageError(f"{file} exists; --force puts the snapshot in its place", "file")
    screen.tell(_save(screen, file, str(file), select))


def _check_piped(screen: Screen) -> None:
    if screen.json:
        raise UsageError("the snapshot itself goes to stdout: leave out --json, or name a file", "file")
    if sys.stdout.isatty():
        raise UsageError("a snapshot is not for a terminal: name a file, or pipe it elsewhere", "file")


def _save(screen: Screen, file: Path, name: str, select: tuple[str, ...]) -> str:
    """Returns what is told of it."""
    number = own_number(select[0]) if len(select) == 1 else 0
    chosen = [] if number else split(select) if select else []
    told = ""

    async def ask(client: AsyncClient) -> None:
        nonlocal told
        async with Passing(screen, lambda size: f"{name}: {size} so far") as passing:
            saved = await client.save_snapshot(file, chosen, number=number, heard=passing.heard)
        header = late("tercel.stores.snapshot.files", "header")(file)
        jobs, tasks = len(header.jobs), header.tasks
        screen.emit({"file": name, "size_bytes": saved, "jobs": jobs, "tasks": tasks})
        told = f"{name}: {count(jobs, 'job')}, {count(tasks, 'task')}, {size(saved)}"

    talk(screen, ask)
    return told


def _pass_on(file: Path) -> None:
    with file.open("rb") as copy:
        while piece := copy.read(PIECE_BYTES):
            write_stdout(piece)
