"""tercel snapshot list"""

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.snapshots import moment
from tercel.cli.talking import talk
from tercel.cli.words import Cell, short, size, table
from tercel.sdk.client import AsyncClient
from tercel.wire.api_snapshots import SnapshotView

HEADERS = ("SNAPSHOT", "SAVED", "JOBS", "TASKS", "ENDED", "SIZE", "WHY")


@click.command(cls=Command)
@click.pass_obj
def command(screen: Screen) -> None:
    """Snapshots that the manager took by itself, newest first: by schedule, and before many tasks were cancelled, a
    rollback was made or jobs were removed.

    The newest ten are kept, if they are not larger than 4 GiB together. `tercel snapshot restore @3` restores one, `tercel
    snapshot save FILE @3` copies it.
    """

    async def ask(client: AsyncClient) -> None:
        found = await client.snapshots()
        screen.emit(found)
        if found.snapshots:
            screen.tell(table(HEADERS, map(_row, found.snapshots)))
        else:
            screen.note("the manager has taken no snapshots yet")

    talk(screen, ask)


def _row(one: SnapshotView) -> list[Cell]:
    return [
        f"@{one.number}",
        moment(one.saved_at),
        one.jobs,
        one.tasks,
        one.ended,
        size(one.size_bytes),
        short(one.why, 60),
    ]
