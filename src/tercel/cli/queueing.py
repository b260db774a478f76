"""What the queue commands have in common."""

from collections.abc import Callable
from typing import TypedDict, TypeVar

import click

from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.cli.words import count, pairs
from tercel.core.errors import NotFound, UsageError
from tercel.core.rules import check_queue_name
from tercel.sdk.client import AsyncClient
from tercel.wire.api import QueueSettings, QueueView

F = TypeVar("F", bound=Callable[..., object])


class QueueFlags(TypedDict):
    """What click hands over, by the options' names; None where one is not given."""

    weight: float | None
    max_running: int | None
    max_queued: int | None
    user_max: int | None


_OPTIONS = (
    click.option(
        "--weight",
        type=float,
        metavar="W",
        help="Its share of a busy pool, relative to others.  [default: 1]",
    ),
    click.option(
        "--max-running", type=int, metavar="N", help="At most N of its tasks under way; 0: no limit."
    ),
    click.option(
        "--max-queued", type=int, metavar="N", help="Jobs beyond N queued tasks stand back; 0: no limit."
    ),
    click.option(
        "--user-max", type=int, metavar="N", help="At most N tasks of one user under way; 0: no limit."
    ),
)


def queue_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def change_queue(screen: Screen, name: str, settings: QueueSettings, *, new: bool) -> None:
    check_queue_name(name)

    async def ask(client: AsyncClient) -> None:
        names = {queue.name for queue in (await client.queues()).queues}
        if new and name in names:
            raise UsageError(
                f"there is a queue {name} already: `tercel queue set {name}` changes it", "queue"
            )
        if not new and name not in names and name != (await client.status()).user:
            raise NotFound(f"there is no queue {name}: see `tercel queue list`", "queue")
        view = await client.set_queue(name, settings)
        screen.emit(view)
        screen.tell(pairs(facts(view)))

    talk(screen, ask)


def facts(queue: QueueView) -> list[tuple[str, str]]:
    return [
        ("queue", queue.name),
        ("weight", f"{queue.weight:g}"),
        ("under way", _limited(queue.running, queue.max_running)),
        ("queued tasks", f"at most {queue.max_queued:,}" if queue.max_queued else ""),
        ("of one user", f"at most {queue.user_max:,} under way" if queue.user_max else ""),
        ("jobs", count(queue.jobs, "job") if queue.jobs else ""),
        ("paused", queue.paused),
    ]


def _limited(number: int, most: int) -> str:
    return f"{number:,} of at most {most:,}" if most else f"{number:,}"
