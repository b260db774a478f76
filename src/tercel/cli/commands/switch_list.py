"""tercel switch list"""

import time

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import duration, table
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.pass_obj
def command(screen: Screen) -> None:
    """What is off, since when, by whom and why."""

    async def ask(client: AsyncClient) -> None:
        found = (await client.switches()).switches
        screen.emit({"switches": found})
        if found:
            now = time.time()
            rows = ([one.name, duration(max(0.0, now - one.since)), one.off] for one in found)
            screen.tell(table(("NAME", "OFF SINCE", "BY"), rows))
        else:
            screen.note("nothing is off")

    talk(screen, ask)
