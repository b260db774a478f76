"""tercel reserve list"""

import time

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import Cell, duration, short, table
from tercel.sdk.client import AsyncClient
from tercel.wire.api import ReservationView

HEADERS = ("ID", "QUEUE", "USER", "LEFT", "LENT", "BY", "WORKERS", "WHERE")


@click.command(cls=Command)
@click.pass_obj
def command(screen: Screen) -> None:
    """The reservations, and how many connected workers are under each."""

    async def ask(client: AsyncClient) -> None:
        found = (await client.reservations()).reservations
        screen.emit({"reservations": found})
        if found:
            now = time.time()
            screen.tell(table(HEADERS, (_row(reservation, now) for reservation in found)))
        else:
            screen.note("no workers are reserved")

    talk(screen, ask)


def _row(reservation: ReservationView, now: float) -> list[Cell]:
    return [
        reservation.id,
        reservation.queue or "any",
        reservation.user or "any",
        duration(max(0.0, reservation.until - now)),
        "while idle" if reservation.lend else "no",
        reservation.owner,
        len(reservation.workers),
        short(reservation.where or "all workers", 80),
    ]
