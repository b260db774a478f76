"""tercel blocked test"""

import click

from tercel.cli.completing import condition
from tercel.cli.conditions import change_each, names
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen


@click.command(cls=Command)
@click.argument("conditions", metavar="CONDITION...", nargs=-1, required=True, shell_complete=condition)
@click.pass_obj
def command(screen: Screen, conditions: tuple[str, ...]) -> None:
    """Test conditions now, also paused ones. What follows from that, follows: `tercel blocked` shows it."""

    def tell(ids: list[int], counts: list[int]) -> None:
        tested = [id for id, number in zip(ids, counts, strict=True) if number]
        screen.emit({"tested": tested})
        if tested:
            screen.tell(f"{names(tested)}: being tested")
        if unasked := [id for id in ids if id not in tested]:
            screen.note(f"{names(unasked)}: no worker is connected that could test it; one that comes will")

    change_each(screen, conditions, lambda client, id: client.test_condition(id), tell)
