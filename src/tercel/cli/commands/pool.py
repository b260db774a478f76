"""tercel pool, which is also tercel worker list"""

import time

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import Cell, count, cpus, duration, short, size, table
from tercel.core.presence import WorkerState
from tercel.sdk.client import AsyncClient
from tercel.wire.api import WorkerView

HEADERS = ("WORKER", "NODE", "STATE", "FOR", "CPUS", "MEMORY", "RUNNING", "QUEUED", "DONE", "NOTE")


@click.command(cls=Command)
@click.option("-a", "--all", "every", is_flag=True, help="Workers that are gone, too.")
@click.pass_obj
def command(screen: Screen, every: bool) -> None:
    """Show the workers and what they do."""

    async def ask(client: AsyncClient) -> None:
        pool = await client.pool()
        workers = [w for w in pool.workers if every or w.state is not WorkerState.OFFLINE]
        screen.emit({"workers": workers, "online": pool.online, "cpus": pool.cpus})
        gone = len(pool.workers) - len(workers)
        if workers:
            now = time.time()
            screen.tell(table(HEADERS, (_row(worker, now) for worker in workers)))
        screen.note(
            (
                f"{count(pool.online, 'worker')} with {cpus(pool.cpus)} cpus"
                if pool.online
                else "no workers: start one with `tercel worker`"
            )
            + (f"; {gone:,} gone (--all shows them)" if gone else "")
        )

    talk(screen, ask)


def _row(worker: WorkerView, now: float) -> list[Cell]:
    return [
        worker.id,
        short(worker.node, 32),
        worker.state,
        duration(max(0.0, now - worker.since)),
        cpus(worker.cpus),
        size(worker.mem_bytes),
        worker.running,
        worker.queued,
        worker.completed,
        short(worker.note, 60),
    ]
