"""tercel pool, which is also tercel worker list"""

import time
from collections.abc import Callable, Sequence

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import Cell, count, cpus, duration, short, size, table
from tercel.core.presence import WorkerState
from tercel.sdk.client import AsyncClient
from tercel.wire.api import WorkerView

Column = tuple[str, Callable[[WorkerView, float], Cell]]

ALWAYS: tuple[Column, ...] = (
    ("WORKER", lambda worker, _: worker.id),
    ("NODE", lambda worker, _: short(worker.node, 32)),
    ("STATE", lambda worker, _: _state(worker)),
    ("FOR", lambda worker, now: duration(max(0.0, now - worker.since))),
    ("CPUS", lambda worker, _: _cpus(worker)),
    ("MEMORY", lambda worker, _: size(worker.mem_bytes)),
)
WHAT_IT_IS: tuple[Column, ...] = (
    ("RESOURCES", lambda worker, _: _resources(worker)),
    ("SITE", lambda worker, _: short(worker.site, 20)),
    ("TAGS", lambda worker, _: short(",".join(worker.tags), 40)),
    ("LEFT", lambda worker, _: "" if worker.time_left_s is None else duration(worker.time_left_s)),
)
WHAT_IT_DOES: tuple[Column, ...] = (
    ("RUNNING", lambda worker, _: worker.running),
    ("QUEUED", lambda worker, _: worker.queued),
    ("DONE", lambda worker, _: worker.completed),
)
UNUSUAL: tuple[Column, ...] = (
    ("FAULTS", lambda worker, _: _faults(worker)),
    ("NOTE", lambda worker, _: short(worker.note, 60)),
)


@click.command(cls=Command)
@click.option("-a", "--all", "every", is_flag=True, help="Workers that are gone, too.")
@click.option("--why", is_flag=True, help="Say of each worker that takes no tasks, or not everybody's, why.")
@click.pass_obj
def command(screen: Screen, every: bool, why: bool) -> None:
    """Show the workers: what they are, what they do and since when, and what went wrong there.

    LEFT is the time until a worker's own end. FAULTS are counted since the manager started: tasks that failed there,
    that it interrupted or refused, and how often it was lost.
    """

    async def ask(client: AsyncClient) -> None:
        pool = await client.pool()
        workers = [w for w in pool.workers if every or w.state is not WorkerState.OFFLINE]
        screen.emit({"workers": workers, "online": pool.online, "cpus": pool.cpus})
        gone = len(pool.workers) - len(workers)
        if workers:
            screen.tell(_table(workers, time.time()))
        if why:
            _tell_why(screen, pool.workers)
        screen.note(
            (
                f"{count(pool.online, 'worker')} with {cpus(pool.cpus)} cpus"
                if pool.online
                else "no workers: start one with `tercel worker`"
            )
            + (f"; {gone:,} gone (--all shows them)" if gone else "")
        )

    talk(screen, ask)


def _table(workers: Sequence[WorkerView], now: float) -> list[str]:
    """Of what most workers have not, a column only if one has it."""

    def used(columns: Sequence[Column]) -> list[Column]:
        return [column for column in columns if any(column[1](worker, now) != "" for worker in workers)]

    columns = [*ALWAYS, *used(WHAT_IT_IS), *WHAT_IT_DOES, *used(UNUSUAL)]
    rows = ([cell(worker, now) for _, cell in columns] for worker in workers)
    return table([header for header, _ in columns], rows)


def _tell_why(screen: Screen, workers: Sequence[WorkerView]) -> None:
    """Also of those that are gone: who asks why nothing runs wants to know of them."""
    reasons = [(worker.id, worker.why) for worker in workers if worker.why]
    if reasons:
        screen.tell(["", *table(("WORKER", "WHY"), reasons)])
    else:
        screen.tell("all workers take tasks")


def _state(worker: WorkerView) -> str:
    if worker.state not in (WorkerState.OFFLINE, WorkerState.DRAINING):
        if worker.quarantined:
            return "quarantined"
        if worker.unhealthy:
            return "unhealthy"
        if worker.reservation is not None:
            return f"{worker.state}, reserved"
    return worker.state


def _cpus(worker: WorkerView) -> str:
    less = worker.cpus < worker.cpus_all and worker.state is not WorkerState.OFFLINE
    return f"{cpus(worker.cpus)} of {cpus(worker.cpus_all)}" if less else cpus(worker.cpus)


def _resources(worker: WorkerView) -> str:
    return short(" ".join(f"{name}={amount:g}" for name, amount in worker.resources.items()), 40)


def _faults(worker: WorkerView) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in worker.faults.items())
