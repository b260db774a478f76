"""tercel reserve create"""

import time

import click

from tercel.cli.lazy import Command, late
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count, duration, short
from tercel.core.commands import parse_time
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient
from tercel.wire.api import NewReservation


@click.command(cls=Command)
@click.option(
    "--where",
    default="",
    metavar="EXPR",
    help="Which workers, as in `tercel submit --where`: by what lasts, as site, tags or mem.",
)
@click.option("--all", "every", is_flag=True, help="All workers, also those that join later.")
@click.option("--queue", default="", metavar="NAME", help="For jobs of this queue.")
@click.option("--user", default="", metavar="NAME", help="For jobs of this user.")
@click.option(
    "--for",
    "span",
    required=True,
    metavar="TIME",
    help="How long: 12h, 2d, 1:30:00; a bare number is minutes.",
)
@click.option("--lend", is_flag=True, help="Others may use them while they would be idle.")
@click.pass_obj
def command(screen: Screen, where: str, every: bool, queue: str, user: str, span: str, lend: bool) -> None:
    """Set workers aside for a queue, a user, or a user in a queue. Others' tasks that run there run to their end.

    Of several reservations of a worker the earliest counts. They end by themselves; `tercel reserve end ID` ends one
    before its time.

    \b
    tercel reserve --where 'worker.site == "lab1"' --queue vision --for 12h
    """
    if not queue and not user:
        raise UsageError(
            "for whom? give --queue, --user or both (`tercel reserve list` shows what is)", "queue"
        )
    for_s = parse_time(span, "for")
    if for_s <= 0:
        raise UsageError("--for must be longer than that", "for")
    if where and every:
        raise UsageError("--all and --where: choose one", "where")
    if not where and not every:
        raise UsageError("this would reserve all workers: say --all, or which with --where", "where")
    if where:
        late("tercel.core.cel", "where")(where)  # what is wrong is found here, and shown as it was typed
    new = NewReservation(where=where, queue=queue, user=user, for_s=for_s, lend=lend)

    async def ask(client: AsyncClient) -> None:
        made = await client.reserve(new)
        screen.emit(made)
        which = (
            f": {short(', '.join(made.workers), 80)}" if made.workers else " is connected that it covers yet"
        )
        number = count(len(made.workers), "worker") if made.workers else "no worker"
        for note in made.notes:
            screen.warn(note)
        left = duration(made.until - time.time())
        screen.tell(f"reservation {made.id} for {left}; {number}{which}")

    talk(screen, ask)
