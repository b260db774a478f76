"""tercel token revoke"""

from pathlib import Path

import click

from tercel.cli.lazy import Command
from tercel.cli.screen import Screen
from tercel.cli.tokens import ask_manager_or_data, data_option
from tercel.core.errors import NotFound


@click.command(cls=Command)
@click.argument("token", metavar="ID")
@data_option
@click.pass_obj
def command(screen: Screen, token: str, data: Path | None) -> None:
    """Make the token of this id useless, at once."""
    done = ask_manager_or_data(
        screen, data, lambda client: client.revoke_token(token), lambda tokens: tokens.revoke(token)
    )
    if done is False:
        raise NotFound(f"there is no token {token!r}: `tercel token list` shows them", "token")
    screen.emit({"revoked": token})
    screen.tell(f"token {token} is revoked")
