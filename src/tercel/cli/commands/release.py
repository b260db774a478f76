"""tercel release"""

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
    """Let go what is held. What was blocked waits for the same again.

    SELECT is 37, 37.99, 37.0-9, 1-5, last or all.
    """
    chosen = split(select)

    async def ask(client: AsyncClient) -> None:
        done = await client.release(chosen)
        screen.emit({"released": done.count})
        screen.tell(f"{count(done.count, 'task')} released")
        if not done.count:
            screen.note("no chosen task is held")

    talk(screen, ask)
