"""tercel clean"""

import click

from tercel.cli.asking import is_sure
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count, size
from tercel.core.commands import parse_time
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Cleaned


@click.command(cls=Command)
@click.option("--older", required=True, metavar="TIME", help="How long ago it must have ended: 30d, 12h.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be removed.")
@click.option("--no-snapshot", is_flag=True, help="Take no snapshot of it before.")
@click.option("--yes", is_flag=True, help="Do not ask. Scripts need this.")
@click.pass_obj
def command(screen: Screen, older: str, dry_run: bool, no_snapshot: bool, yes: bool) -> None:
    """Remove jobs that ended long ago, with their outputs; closed conditions and notes of that age; long histories.

    Jobs that others need are kept until those are removed. Numbers of jobs are never used again. What is removed is put into
    a snapshot before, if that is not too large (see `tercel snapshot list`). For admins.
    """
    older_s = parse_time(older, "older")

    async def ask(client: AsyncClient) -> None:
        found = await client.clean(older_s, dry_run=True)
        if dry_run:
            screen.emit(found)
            screen.tell(f"would remove {told(found)}")
            return
        if not is_sure(f"Remove {told(found)}?", yes):
            screen.note("nothing was removed")
            return
        gone = await client.clean(older_s, snapshot=not no_snapshot)
        screen.emit(gone)
        screen.tell(f"removed {told(gone)}")
        if gone.note:
            screen.note(gone.note)

    talk(screen, ask)


def told(found: Cleaned) -> str:
    jobs = f"{count(found.jobs, 'job')} of {count(found.tasks, 'task')} with {size(found.output_bytes)} of output"
    return (
        f"{jobs}; {count(found.conditions, 'condition')}, {count(found.notes, 'note')}, "
        f"{count(found.attempts, 'attempt')} of long histories"
    )
