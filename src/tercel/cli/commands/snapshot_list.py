"""tercel snapshot list"""

import click

from tercel.cli.asking import clock
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import Cell, ranges, short, size, table
from tercel.core.intervals import IntervalSet
from tercel.sdk.client import AsyncClient
from tercel.wire.api_snapshots import SnapshotView

HEADERS = ("SNAPSHOT", "SAVED", "JOBS", "NUMBERS", "TASKS", "ENDED", "SIZE", "WHY")
WIDTH = 24


@click.command(cls=Command)
@click.pass_obj
def command(screen: Screen) -> None:
    """Snapshots that the manager took by itself, newest first: by schedule, and before many tasks were cancelled, a
    rollback was made or jobs were removed.

    The newest ten by schedule are kept, and ten from before a command, if all are not larger than 4 GiB together (see `tercel up --help`). `tercel snapshot inspect @3` tells what is in
    one, `tercel snapshot restore @3` restores it, `tercel snapshot save FILE @3` copies it.
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
        clock(one.saved_at),
        one.jobs,
        _numbers(one),
        one.tasks,
        one.ended,
        size(one.size_bytes),
        short(one.why, 60),
    ]


def _numbers(one: SnapshotView) -> str:
    """`1-3,7`; of many the first ones."""
    text = ranges(IntervalSet((number, number) for number in one.numbers))
    return short(f"{text},…" if 0 < len(one.numbers) < one.jobs else text, WIDTH)
