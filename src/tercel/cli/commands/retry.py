"""tercel retry"""

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import split
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("select", metavar="SELECT...", nargs=-1, required=True)
@click.pass_obj
def command(screen: Screen, select: tuple[str, ...]) -> None:
    """Run failed tasks again, under the same ids. Finished ones are left alone.

    SELECT is 37, 37.99, 37.0-9, 1-5, last or all. Of a whole job the failed tasks are run again; tasks that are
    named (37.0-9) also if they were cancelled.
    """
    chosen = split(select)

    async def ask(client: AsyncClient) -> None:
        done = await client.retry(chosen)
        screen.emit({"retried": done.count})
        screen.tell(f"{count(done.count, 'task')} will run again")
        if not done.count:
            screen.note("no chosen task has failed; cancelled ones run again if they are named, as in 37.0-9")

    talk(screen, ask)
