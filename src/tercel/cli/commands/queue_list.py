"""tercel queue list"""

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import Cell, short, table
from tercel.sdk.client import AsyncClient
from tercel.wire.api import QueueView

HEADERS = ("QUEUE", "WEIGHT", "JOBS", "UNDER WAY", "READY", "WAITING", "HAD", "FAIR", "CAPS", "NOTE")


@click.command(cls=Command)
@click.pass_obj
def command(screen: Screen) -> None:
    """The queues and how they share.

    UNDER WAY are tasks at workers, running or about to. HAD is a queue's part of what all have had lately; FAIR is the part it should have by its weight, of those that
    have work.
    """

    async def ask(client: AsyncClient) -> None:
        queues = (await client.queues()).queues
        screen.emit({"queues": queues})
        if queues:
            screen.tell(table(HEADERS, map(_row, queues)))
        else:
            screen.note("no queues yet: each user gets one with the first job")

    talk(screen, ask)


def _row(queue: QueueView) -> list[Cell]:
    caps = [
        f"{name} {number:,}"
        for name, number in (
            ("running", queue.max_running),
            ("queued", queue.max_queued),
            ("of one user", queue.user_max),
        )
        if number
    ]
    return [
        queue.name,
        f"{queue.weight:g}",
        queue.jobs,
        queue.running,
        queue.ready,
        queue.waiting,
        f"{queue.share:.0%}",
        f"{queue.fair:.0%}" if queue.fair else "",
        ", ".join(caps),
        short(queue.paused, 60),
    ]
