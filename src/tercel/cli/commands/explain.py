"""tercel explain"""

import click

from tercel.cli.completing import unfinished_job
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.selecting import one_task, resolve_one
from tercel.cli.talking import talk
from tercel.cli.words import plain
from tercel.core.errors import UsageError
from tercel.sdk.client import AsyncClient
from tercel.wire.api import Explanation


@click.command(cls=Command)
@click.argument("select", metavar="SELECT", shell_complete=unfinished_job)
@click.pass_obj
def command(screen: Screen, select: str) -> None:
    """Say why a task (37.5), or the tasks of a job (37, last), are where they are."""

    async def ask(client: AsyncClient) -> None:
        choice = await resolve_one(client, select)
        if choice.tasks is not None and one_task(choice) is None:
            raise UsageError(f"{select!r} are several tasks: choose one, or the job", "select")
        explanation = await client.explain(str(choice))
        screen.emit(explanation)
        screen.tell(f"{explanation.id}: {plain(_headline(explanation))}")
        if len(explanation.reasons) > 1:
            width = max(len(f"{reason.count:,}") for reason in explanation.reasons)
            screen.tell(
                f"  {reason.count:>{width},} {screen.state(reason.state)}: {plain(reason.text)}"
                for reason in explanation.reasons
            )

    talk(screen, ask)


def _headline(explanation: Explanation) -> str:
    """Its summary; without the reasons, where those follow line by line."""
    reasons = explanation.reasons
    if len(reasons) < 2:
        return explanation.summary
    if explanation.summary.startswith(f"{reasons[0].count:,} {reasons[0].state}: "):
        counts: dict[str, int] = {}
        for reason in reasons:
            counts[reason.state] = counts.get(reason.state, 0) + reason.count
        return ", ".join(f"{number:,} {state}" for state, number in counts.items())
    return explanation.summary.removesuffix("; " + "; ".join(reason.text for reason in reasons))
