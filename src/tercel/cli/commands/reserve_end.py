"""tercel reserve end"""

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=click.IntRange(min=0))
@click.pass_obj
def command(screen: Screen, ids: tuple[int, ...]) -> None:
    """End reservations before their time: their workers are everybody's again."""

    async def ask(client: AsyncClient) -> None:
        for id in ids:
            await client.end_reservation(id)
        screen.emit({"ended": list(ids)})
        screen.tell(f"{count(len(ids), 'reservation')} ended")

    talk(screen, ask)
