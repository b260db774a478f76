"""tercel token: a group"""

import click

from tercel.cli.lazy import Entry, LazyGroup

_HERE = "tercel.cli.commands"


@click.group(
    cls=LazyGroup,
    entries=(
        Entry("create", f"{_HERE}.token_create", "Make a token and print it."),
        Entry("list", f"{_HERE}.token_list", "Tokens by id; never their secrets."),
        Entry("revoke", f"{_HERE}.token_revoke", "Make a token useless."),
    ),
    default="list",
)
def command() -> None:
    """Make, list and revoke access tokens.

    On the manager's own machine nobody needs one. Others use one by TERCEL_TOKEN_FILE. Roles: admin (everything),
    user (its own jobs), worker (to join as a worker).
    """
