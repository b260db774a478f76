"""tercel blocked release"""

import click

from tercel.cli.completing import condition
from tercel.cli.conditions import change_each
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.words import count


@click.command(cls=Command)
@click.argument("conditions", metavar="CONDITION...", nargs=-1, required=True, shell_complete=condition)
@click.option(
    "--count",
    "most",
    type=click.IntRange(1, 10**9),
    metavar="N",
    help="At most so many of each.  [default: all]",
)
@click.pass_obj
def command(screen: Screen, conditions: tuple[str, ...], most: int | None) -> None:
    """Let tasks go without a test. Those that meet the same fault again are blocked again."""

    def tell(ids: list[int], counts: list[int]) -> None:
        screen.emit({"released": sum(counts), "conditions": ids})
        screen.tell(f"{count(sum(counts), 'task')} released")

    change_each(screen, conditions, lambda client, id: client.release_condition(id, count=most or 0), tell)
