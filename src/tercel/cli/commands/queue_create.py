"""tercel queue create"""

from typing import Unpack

import click

from tercel.cli.lazy import Command
from tercel.cli.queueing import QueueFlags, change_queue, queue_options
from tercel.cli.screen import Screen
from tercel.wire.api import QueueSettings


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@queue_options
@click.pass_obj
def command(screen: Screen, name: str, **flags: Unpack[QueueFlags]) -> None:
    """Make a queue. Jobs join it with --queue NAME."""
    change_queue(screen, name, QueueSettings(**flags), new=True)
