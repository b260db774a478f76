"""tercel queue remove"""

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.core.rules import check_queue_name
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.pass_obj
def command(screen: Screen, name: str) -> None:
    """Remove a queue in which nothing is unfinished."""
    check_queue_name(name)

    async def ask(client: AsyncClient) -> None:
        await client.remove_queue(name)
        screen.emit({"removed": name})
        screen.tell(f"queue {name} is gone")

    talk(screen, ask)
