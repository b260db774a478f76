"""tercel reserve end"""

from contextlib import suppress

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.core.errors import NotFound
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=click.IntRange(min=0))
@click.pass_obj
def command(screen: Screen, ids: tuple[int, ...]) -> None:
    """End reservations before their time: their workers are everybody's again. If one is not there, none is ended."""

    async def ask(client: AsyncClient) -> None:
        known = {reservation.id for reservation in (await client.reservations()).reservations}
        wanted = list(dict.fromkeys(ids))
        if unknown := [str(id) for id in wanted if id not in known]:
            rest = "" if len(unknown) == len(wanted) else "; nothing was ended"
            raise NotFound(f"there is no reservation {', '.join(unknown)}{rest}: see `tercel reserve list`")
        for id in wanted:
            with suppress(NotFound):  # its time has come in this moment
                await client.end_reservation(id)
        screen.emit({"ended": wanted})
        screen.tell(f"{count(len(wanted), 'reservation')} ended")

    talk(screen, ask)
