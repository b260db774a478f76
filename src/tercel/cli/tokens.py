"""Tokens are the running manager's business, or, where none runs, of the data directory itself."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import click

from tercel.cli.lazy import late
from tercel.cli.screen import Screen
from tercel.cli.talking import talk
from tercel.core.errors import Unreachable
from tercel.core.model import Role
from tercel.links.access import find_server
from tercel.links.places import data_dir
from tercel.sdk.client import AsyncClient
from tercel.wire.api import IssuedToken, TokenView

TokenViews = list[TokenView]
A = TypeVar("A")
B = TypeVar("B")

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A manager's directory, to work on it while that manager is stopped.",
)


class OfflineTokens(Protocol):
    """What wiring gives for a data directory that no manager uses."""

    def create(self, role: Role, user: str, note: str) -> IssuedToken: ...
    def list(self) -> TokenViews: ...
    def revoke(self, id: str) -> bool: ...


def ask_manager_or_data(
    screen: Screen,
    data: Path | None,
    ask: Callable[[AsyncClient], Awaitable[A]],
    do: Callable[[OfflineTokens], B],
) -> A | B:
    """Ask the manager; where none is named and none runs, do it on the data directory."""
    if data is None:
        try:
            find_server(screen.server, None)
        except Unreachable:
            data = data_dir()
        else:
            return talk(screen, ask)
    offline: Callable[[Path], AbstractContextManager[OfflineTokens]] = late("tercel.wiring", "offline_tokens")
    with offline(data) as tokens:
        return do(tokens)
