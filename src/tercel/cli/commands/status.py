"""tercel status"""

import time

import click

from tercel.cli.completing import any_job
from tercel.cli.lazy import Command, late
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count, cpus, duration, pairs, states
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.argument("what", metavar="[JOB|pool]", required=False, shell_complete=any_job)
@click.pass_context
def command(context: click.Context, what: str | None) -> None:
    """Show how the manager is doing; or a job, as `show` does; or the pool."""
    screen: Screen = context.obj
    if what == "pool":
        context.invoke(late("tercel.cli.commands.pool", "command"), every=False)
        return
    if what is not None:
        context.invoke(late("tercel.cli.commands.show", "command"), select=(what,))
        return

    async def ask(client: AsyncClient) -> None:
        status = await client.status()
        screen.emit(status, url=client.url)
        up_s = max(0.0, time.time() - status.started_at)
        jobs = (
            f"{count(status.jobs, 'job')} under way: {states(status.counts)}"
            if status.jobs
            else "none under way"
        )
        facts = [
            ("manager", f"{client.url}, version {status.version}, up for {duration(up_s)}"),
            ("you", f"{status.user} ({status.role})"),
            (
                "workers",
                f"{status.workers:,} with {cpus(status.cpus)} cpus"
                if status.workers
                else "none: start one with `tercel worker`",
            ),
            ("jobs", jobs),
            ("trouble", status.trouble),
        ]
        screen.tell(pairs(facts))

    talk(screen, ask)
