"""tercel worker quarantine"""

import shlex

import click

from tercel.cli.completing import worker as worker_id
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("workers", metavar="ID...", nargs=-1, required=True, shell_complete=worker_id)
@click.option("--reason", default="", metavar="TEXT", help="For those who ask why.")
@click.pass_obj
def command(screen: Screen, workers: tuple[str, ...], reason: str) -> None:
    """Give workers no more tasks until they are released. What they run goes on. `tercel pool` shows their ids.

    It is kept, also over restarts of the worker and of the manager.
    """

    async def ask(client: AsyncClient) -> None:
        for worker in workers:
            await client.quarantine(worker, reason)
        screen.emit({"quarantined": list(workers)})
        them = "it" if len(workers) == 1 else "them"
        again = f"`tercel worker release {shlex.join(workers)}` lets {them} take tasks again"
        screen.tell(f"{count(len(workers), 'worker')} will take no more tasks; {again}")

    talk(screen, ask)
