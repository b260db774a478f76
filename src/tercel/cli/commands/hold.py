"""tercel hold"""

import click

from tercel.cli.completing import unfinished_job
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import split
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("select", metavar="SELECT...", nargs=-1, required=True, shell_complete=unfinished_job)
@click.pass_obj
def command(screen: Screen, select: tuple[str, ...]) -> None:
    """Start nothing more of these until they are released. What runs goes on, but is not tried again meanwhile.

    SELECT is 37, 37.99, 37.0-9, 1-5, last or all.
    """
    chosen = split(select)

    async def ask(client: AsyncClient) -> None:
        done = await client.hold(chosen)
        screen.emit({"held": done.count})
        screen.tell(f"{count(done.count, 'task')} held")
        if not done.count:
            screen.note("no chosen task waits or runs, or all of those are held already")

    talk(screen, ask)
