"""tercel worker release"""

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
    """Let workers out of quarantine, whoever put them there. What they did before is forgotten."""

    async def ask(client: AsyncClient) -> None:
        released = 0
        for worker in workers:
            released += (await client.end_quarantine(worker)).count
        screen.emit({"released": released})
        screen.tell(f"{count(released, 'worker')} released" if released else "none of them was in quarantine")

    talk(screen, ask)
