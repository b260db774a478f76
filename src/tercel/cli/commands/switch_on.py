"""tercel switch on"""

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.pass_obj
def command(screen: Screen, name: str) -> None:
    """Turn a system or an application on again. What waits for it goes on at its next test."""

    async def ask(client: AsyncClient) -> None:
        changed = (await client.switch_on(name)).count
        screen.emit({"name": name, "off": False, "changed": changed})
        screen.tell(f"{name}: on" if changed else f"{name}: was on")

    talk(screen, ask)
