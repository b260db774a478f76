"""tercel queue set"""

import click

from tercel.cli.lazy import Command
from tercel.cli.queueing import change_queue, queue_options
from tercel.cli.screen import Screen
from tercel.core.errors import UsageError
from tercel.wire.api import QueueSettings


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@queue_options
@click.pass_obj
def command(
    screen: Screen,
    name: str,
    weight: float | None,
    max_running: int | None,
    max_queued: int | None,
    user_max: int | None,
) -> None:
    """Change a queue; what is not named stays as it is."""
    if (weight, max_running, max_queued, user_max) == (None, None, None, None):
        raise UsageError(
            "nothing to change: give --weight, --max-running, --max-queued or --user-max", "queue"
        )
    settings = QueueSettings(weight=weight, max_running=max_running, max_queued=max_queued, user_max=user_max)
    change_queue(screen, name, settings, new=False)
