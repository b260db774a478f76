"""tercel queue resume"""

import click

from tercel.cli.lazy import Command
from tercel.cli.queueing import change_queue
from tercel.cli.screen import Screen
from tercel.wire.api import QueueSettings


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.pass_obj
def command(screen: Screen, name: str) -> None:
    """Let a paused queue go on."""
    change_queue(screen, name, QueueSettings(paused=False), new=False)
