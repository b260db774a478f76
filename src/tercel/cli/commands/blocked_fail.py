"""tercel blocked fail"""

import click

from tercel.cli.completing import condition
from tercel.cli.conditions import change_each
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.words import count


@click.command(cls=Command)
@click.argument("conditions", metavar="CONDITION...", nargs=-1, required=True, shell_complete=condition)
@click.option("--why", default="", metavar="TEXT", help="For those who ask why their tasks failed.")
@click.pass_obj
def command(screen: Screen, conditions: tuple[str, ...], why: str) -> None:
    """Give conditions up: all tasks that wait for them fail, without blame. `tercel retry` runs them again.

    Before more than a thousand fail by one of them, a snapshot of their jobs is taken (see `tercel snapshot list`).
    """

    def tell(ids: list[int], counts: list[int]) -> None:
        screen.emit({"failed": sum(counts), "conditions": ids})
        screen.tell(f"{count(sum(counts), 'task')} failed")

    change_each(screen, conditions, lambda client, id: client.fail_condition(id, why=why), tell)
