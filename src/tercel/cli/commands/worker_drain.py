"""tercel worker drain"""

import click

from tercel.cli.completing import worker as worker_id
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("workers", metavar="ID...", nargs=-1, required=True, shell_complete=worker_id)
@click.pass_obj
def command(screen: Screen, workers: tuple[str, ...]) -> None:
    """Let workers finish what they run, take nothing more, and leave. `tercel pool` shows their ids."""

    async def ask(client: AsyncClient) -> None:
        drained = 0
        for worker in workers:
            drained += (await client.drain(worker)).count
        screen.emit({"draining": drained})
        screen.tell(f"{count(drained, 'worker')} will leave when what runs has ended")

    talk(screen, ask)
