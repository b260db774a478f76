"""tercel status"""

import time

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count, cpus, duration, pairs, states
from tercel.sdk.client import AsyncClient


@click.command(cls=Command)
@click.pass_obj
def command(screen: Screen) -> None:
    """Show how the manager is doing."""

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
