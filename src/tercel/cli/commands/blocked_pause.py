"""tercel blocked pause"""

import click

from tercel.cli.completing import condition
from tercel.cli.conditions import change_each, names
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen


@click.command(cls=Command)
@click.argument("conditions", metavar="CONDITION...", nargs=-1, required=True, shell_complete=condition)
@click.pass_obj
def command(screen: Screen, conditions: tuple[str, ...]) -> None:
    """Neither test conditions nor give them up until they are resumed."""

    def tell(ids: list[int], counts: list[int]) -> None:
        screen.emit({"paused": ids, "changed": sum(counts)})
        screen.tell(
            f"{names(ids)}: paused; `tercel blocked resume {' '.join(f'C{id}' for id in ids)}` goes on"
        )

    change_each(screen, conditions, lambda client, id: client.pause_condition(id), tell)
