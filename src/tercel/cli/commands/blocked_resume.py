"""tercel blocked resume"""

import click

from tercel.cli.completing import condition
from tercel.cli.conditions import change_each, names
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen


@click.command(cls=Command)
@click.argument("conditions", metavar="CONDITION...", nargs=-1, required=True, shell_complete=condition)
@click.pass_obj
def command(screen: Screen, conditions: tuple[str, ...]) -> None:
    """Test paused conditions again, and at once. The time they were paused does not count."""

    def tell(ids: list[int], counts: list[int]) -> None:
        screen.emit({"resumed": ids, "changed": sum(counts)})
        screen.tell(f"{names(ids)}: tested again")

    change_each(screen, conditions, lambda client, id: client.resume_condition(id), tell)
