"""tercel history"""

import click

from tercel.cli.asking import clock
from tercel.cli.completing import any_job
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import one_task, resolve_one
from tercel.cli.talking import talk
from tercel.cli.words import count, duration, plain, short
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient
from tercel.wire.api import HistoryEvent

PAGE = 1000


@click.command(cls=Command)
@click.argument("select", metavar="SELECT", shell_complete=any_job)
@click.option("--limit", type=click.IntRange(1), help="At most so many lines, the oldest.  [default: all]")
@click.pass_obj
def command(screen: Screen, select: str, limit: int | None) -> None:
    """What befell a task (37.4), or a job (37, last), oldest first: when, why, by whom, and whose fault it was.

    Of a job it is told what befell many of its tasks at once: held, released, rolled back, and so on. Attempts are told by
    their tasks. With --json a line for each event.
    """

    async def ask(client: AsyncClient) -> None:
        choice = await resolve_one(client, select)
        task = one_task(choice)
        if choice.tasks is not None and task is None:
            raise UsageError(f"{select!r} are several tasks: choose one, or the job", "select")
        left = limit
        skip = 0
        while left is None or left > 0:
            page = await client.history(choice.job, task, skip=skip, limit=min(PAGE, left or PAGE))
            for event in page.events if left is None else page.events[:left]:
                screen.emit(event, id=page.id)
                screen.tell(line(event))
            left = None if left is None else left - len(page.events)
            skip = page.next
            if not page.more:
                screen.note(f"now {plain(page.now)}")
                return

    talk(screen, ask)


def line(event: HistoryEvent) -> str:
    words = [clock(event.at), plain(event.what).ljust(11)]
    if event.count:
        tasks = f" ({short(event.tasks, 40)})" if event.tasks else ""
        words.append(f"{count(event.count, 'task')}{tasks}")
    if event.worker:
        words.append(f"on {plain(event.worker)}")
    if event.text:
        words.append(plain(event.text))
    if event.wall_s is not None:
        words.append(f"after {duration(event.wall_s)}")
    if event.until is not None:
        words.append(f"until {clock(event.until)}")
    if event.blame:
        words.append(f"[{event.blame}'s fault]" if event.blame != "outside" else "[fault outside]")
    return "  ".join(words[:2]) + ("  " + ", ".join(words[2:]) if words[2:] else "")
