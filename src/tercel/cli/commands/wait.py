"""tercel wait"""

import asyncio

import click

from tercel.cli.completing import unfinished_job
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import resolve
from tercel.cli.talking import talk
from tercel.cli.waiting import exit_code, say_failures, wait_for
from tercel.cli.words import states
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("select", metavar="SELECT...", nargs=-1, required=True, shell_complete=unfinished_job)
@click.pass_obj
def command(screen: Screen, select: tuple[str, ...]) -> int:
    """Wait until jobs or tasks have ended, also through a restart of the manager.

    SELECT is 37, 37.99, 37.0-9, 1-5, last or all. The exit code is 1 if a task failed or was cancelled.
    """

    async def ask(client: AsyncClient) -> int:
        chosen = await resolve(client, select, ended=False)
        try:
            results = await wait_for(client, screen, chosen)
        except asyncio.CancelledError:
            screen.note("no longer waiting; the tasks go on (`tercel cancel` ends them)")
            raise
        screen.emit({"jobs": [{"id": str(choice), "counts": counts} for choice, counts in results]})
        for choice, counts in results:
            screen.tell(f"{choice}: {states(counts)}")
            if counts.failed and choice.tasks is None:
                await say_failures(client, screen, choice.job, counts.failed)
        return exit_code(counts for _, counts in results)

    return talk(screen, ask)
