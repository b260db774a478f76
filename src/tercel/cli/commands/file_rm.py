"""tercel file rm"""

import click

from tercel.cli.completing import file_name
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.core.files import KEPT
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("name", metavar="NAME", shell_complete=file_name)
@click.option("--replica", "url", default="", metavar="URL", help="Forget only that it is there.")
@click.pass_obj
def command(screen: Screen, name: str, url: str) -> None:
    """Forget a file: the name is free again. Only its owner or an admin may.

    What the manager keeps of it goes, unless another file has the same bytes. What is elsewhere stays there.
    """

    async def ask(client: AsyncClient) -> None:
        removed = await client.remove_file(name, url)
        screen.emit(removed)
        elsewhere = [place for place in removed.urls if not place.startswith(KEPT)]
        left = (
            f"; its bytes stay at {count(len(elsewhere), 'place')}: {', '.join(elsewhere)}"
            if elsewhere
            else ""
        )
        screen.tell(f"{name}: {'no longer at ' + url if url else 'forgotten'}{left}")

    talk(screen, ask)
