"""tercel queue pause"""

import click

from tercel.cli.lazy import Command
from tercel.cli.queueing import change_queue
from tercel.cli.screen import Screen
from tercel.wire.api import QueueSettings


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option("--reason", default="", metavar="TEXT", help="For those who ask why.")
@click.pass_obj
def command(screen: Screen, name: str, reason: str) -> None:
    """Start nothing more of a queue until it is resumed. What runs goes on."""
    change_queue(screen, name, QueueSettings(paused=True, reason=reason), new=False)
