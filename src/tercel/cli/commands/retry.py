"""tercel retry"""

import click

from tercel.cli.completing import any_job
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import split
from tercel.cli.talking import talk
from tercel.cli.words import count
from tercel.core.commands import parse_size, parse_time
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("select", metavar="SELECT...", nargs=-1, required=True, shell_complete=any_job)
@click.option("--failed", is_flag=True, help="Of whole jobs, the failed tasks.  [default]")
@click.option("--all", "every", is_flag=True, help="All that has ended: finished and cancelled tasks too.")
@click.option("--with-mem", metavar="SIZE", help="From now on the job's tasks ask for so much memory: 2G.")
@click.option("--with-time", metavar="TIME", help="From now on the job's tasks have so much time: 2h.")
@click.pass_obj
def command(
    screen: Screen,
    select: tuple[str, ...],
    failed: bool,
    every: bool,
    with_mem: str | None,
    with_time: str | None,
) -> None:
    """Run failed tasks again, under the same ids. Finished ones are left alone, unless --all is given.

    SELECT is 37, 37.99, 37.0-9, 1-5, last or all. Of a whole job the failed tasks are run again; tasks that are
    named (37.0-9) also if they were cancelled. What was skipped because of them waits for them again.
    """
    if failed and every:
        raise UsageError("--failed and --all exclude each other", "all")
    chosen = split(select)
    mem_bytes = None if with_mem is None else parse_size(with_mem, "with-mem")
    time_limit_s = None if with_time is None else parse_time(with_time, "with-time")

    async def ask(client: AsyncClient) -> None:
        done = await client.retry(chosen, all=every, mem_bytes=mem_bytes, time_limit_s=time_limit_s)
        screen.emit({"retried": done.count})
        screen.tell(f"{count(done.count, 'task')} will run again")
        if not done.count and every:
            screen.note("no chosen task has ended")
        elif not done.count:
            screen.note("no chosen task has failed; cancelled ones run again if they are named, as in 37.0-9")

    talk(screen, ask)
