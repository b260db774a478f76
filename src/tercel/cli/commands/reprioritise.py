"""tercel reprioritise"""

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
@click.option(
    "--to", "priority", type=int, required=True, metavar="N", help="0 is most urgent; 1000 is usual."
)
@click.pass_obj
def command(screen: Screen, select: tuple[str, ...], priority: int) -> None:
    """Give unfinished jobs another priority within their queue.

    SELECT is 37, 1-5, last or all: whole jobs.

    \b
    tercel reprioritise 37 --to 5
    """
    chosen = split(select)

    async def ask(client: AsyncClient) -> None:
        done = await client.revise(chosen, priority=priority)
        screen.emit({"revised": done.count, "priority": priority})
        screen.tell(f"{count(done.count, 'job')} now of priority {priority}")
        if not done.count:
            screen.note("no chosen job is unfinished and had another priority")

    talk(screen, ask)
