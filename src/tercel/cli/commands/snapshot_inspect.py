"""tercel snapshot inspect"""

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tercel.cli.asking import clock
from tercel.cli.completing import snapshot_file
from tercel.cli.lazy import Command, late
from tercel.cli.screen import Screen
from tercel.cli.snapshots import Passing, own_number, whole_file
from tercel.cli.talking import talk
from tercel.cli.words import pairs, short, size, table
from tercel.sdk.client import AsyncClient

HEADERS = ("JOB", "OWNER", "NAME", "TASKS", "FINISHED", "FAILED", "CANCELLED", "TO DO")
SHOWN = 100


@click.command(cls=Command)
@click.argument("file", metavar="FILE", shell_complete=snapshot_file)
@click.pass_obj
def command(screen: Screen, file: str) -> None:
    """Check FILE from its beginning to its end, and tell what is in it. No manager is needed.

    - is what comes through a pipe. Or it is @3, for a snapshot that the manager took by itself.
    """
    number = own_number(file)
    if not number:
        with whole_file(file) as path:
            _inspect(screen, path, "stdin" if file == "-" else file)
        return
    with TemporaryDirectory() as directory:
        copy = Path(directory) / "copy"

        async def ask(client: AsyncClient) -> None:
            async with Passing(screen, lambda size: f"{file}: {size} so far") as passing:
                await client.save_snapshot(copy, number=number, heard=passing.heard)

        talk(screen, ask)
        _inspect(screen, copy, file)


def _inspect(screen: Screen, file: Path, name: str) -> None:
    contents = late("tercel.stores.snapshot.checking", "check")(file, name)
    header = contents.header
    screen.emit(
        {
            "id": header.id,
            "saved_at": header.saved_at,
            "version": header.version,
            "why": header.why,
            "size_bytes": file.stat().st_size,
            "tasks": header.tasks,
            "ended": header.ended,
            "conditions": len(contents.conditions),
            "jobs": [
                {
                    "id": job.row.id,
                    "owner": job.row.owner,
                    "name": job.row.spec.name,
                    "tasks": job.row.task_count,
                    "finished": job.row.finished,
                    "failed": job.row.failed,
                    "cancelled": job.row.cancelled,
                }
                for job in contents.jobs
            ],
        }
    )
    facts = [
        ("snapshot", header.id),
        ("saved", f"{clock(header.saved_at)}, {header.why}"),
        ("by", f"Tercel {header.version}"),
        ("size", size(file.stat().st_size)),
        ("tasks", f"{header.tasks:,}, {header.ended:,} of them ended"),
        ("conditions", f"{len(contents.conditions):,}" if contents.conditions else ""),
    ]
    rows = [
        (
            job.row.id,
            job.row.owner,
            short(job.row.spec.name, 30),
            job.row.task_count,
            job.row.finished,
            job.row.failed,
            job.row.cancelled,
            job.row.task_count - job.ended,
        )
        for job in contents.jobs[:SHOWN]
    ]
    screen.tell([*pairs(facts), "", *table(HEADERS, rows)])
    if len(contents.jobs) > SHOWN:
        screen.note(f"and {len(contents.jobs) - SHOWN:,} more jobs: --json names all")
