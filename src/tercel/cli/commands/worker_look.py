"""tercel worker look"""

import os

import click

from tercel.cli.completing import worker as worker_id
from tercel.cli.directories import tell_directory, tell_sandbox, tell_tail
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import one_task, resolve_one
from tercel.cli.talking import talk
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("worker", metavar="ID", shell_complete=worker_id)
@click.argument("task", metavar="[TASK]", required=False)
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Of the task, instead of the last one.")
@click.option(
    "--read", "file", metavar="FILE", help="Print the end of this file of the task (64 KiB at most)."
)
@click.option("--log", is_flag=True, help="Print the end of the worker's own log file (64 KiB at most).")
@click.pass_obj
def command(
    screen: Screen, worker: str, task: str | None, attempt: int | None, file: str | None, log: bool
) -> None:
    """See what is in a worker's directory, wherever that is: what uses how much, and what is worth a look first.

    With a TASK (37.4, last.0): the files of its sandbox, while it runs there or if it was kept (--sandbox
    keep-on-failure). These are for the job's owner; all else is for admins.

    \b
    tercel worker look w07
    tercel worker look w07 37.4 --read run.log
    """
    if log and task is not None:
        raise UsageError("--log is the worker's, not a task's: `tercel logs` shows what a task wrote", "log")
    if task is None and (attempt is not None or file is not None):
        raise UsageError("of which task? Name it as 37.4", "task")

    async def ask(client: AsyncClient) -> None:
        if log:
            tell_tail(screen, await client.worker_log(worker))
        elif task is None:
            tell_directory(screen, await client.worker_directory(worker))
        else:
            await _ask_of_task(client, screen, worker, task, attempt, file)

    talk(screen, ask)


async def _ask_of_task(
    client: AsyncClient, screen: Screen, worker: str, select: str, attempt: int | None, file: str | None
) -> None:
    choice = await resolve_one(client, select)
    task = one_task(choice)
    if task is None:
        raise UsageError(f"{select!r} is not one task: write it as 37.4", "task")
    if file is None:
        tell_sandbox(screen, await client.sandbox_files(worker, choice.job, task, attempt=attempt))
    else:
        # A name that is no text can be sent only as it is shown; the worker knows it by that, too.
        name = os.fsencode(file).decode("utf-8", "backslashreplace")
        tell_tail(screen, await client.sandbox_file(worker, choice.job, task, name, attempt=attempt))
