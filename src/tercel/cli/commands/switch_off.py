"""tercel switch off"""

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option("--why", default="", metavar="TEXT", help="For those who ask why their tasks wait.")
@click.pass_obj
def command(screen: Screen, name: str, why: str) -> None:
    """Turn a system or an application off: app=matlab or system=hpc1. What runs goes on."""

    async def ask(client: AsyncClient) -> None:
        changed = (await client.switch_off(name, why=why)).count
        screen.emit({"name": name, "off": True})
        screen.tell(
            f"{name}: {'off' if changed else 'it was off before'}; `tercel switch on {name}` turns it on again"
        )

    talk(screen, ask)
