"""tercel queue set"""

from typing import Unpack

import click

from tercel.cli.lazy import Command
from tercel.cli.queueing import QueueFlags, change_queue, queue_options
from tercel.cli.screen import Screen
from tercel.core.errors import UsageError
from tercel.wire.api import QueueSettings


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@queue_options
@click.pass_obj
def command(screen: Screen, name: str, **flags: Unpack[QueueFlags]) -> None:
    """Change a queue; what is not named stays as it is."""
    if all(value is None for value in flags.values()):
        raise UsageError(
            "nothing to change: give --weight, --max-running, --max-queued or --user-max", "queue"
        )
    change_queue(screen, name, QueueSettings(**flags), new=False)
