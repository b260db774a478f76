"""tercel token list"""

import time
from pathlib import Path

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.tokens import ask_manager_or_data, data_option
from tercel.cli.words import table


@click.command(cls=Command)
@data_option
@click.pass_obj
def command(screen: Screen, data: Path | None) -> None:
    """List tokens by id; never their secrets."""

    tokens = ask_manager_or_data(screen, data, lambda client: client.tokens(), lambda tokens: tokens.list())
    found = tokens if isinstance(tokens, list) else tokens.tokens
    screen.emit({"tokens": found})
    if not found:
        screen.note("there are no tokens")
        return
    rows = (
        (t.id, t.role, t.user, time.strftime("%Y-%m-%d %H:%M", time.localtime(t.created_at)), t.note)
        for t in found
    )
    screen.tell(table(("ID", "ROLE", "USER", "CREATED", "NOTE"), rows))
