"""tercel version"""

import platform

import click

from tercel import __version__
from tercel.cli.lazy import Command
from tercel.cli.screen import Screen


@click.command(cls=Command)
@click.pass_obj
def command(screen: Screen) -> None:
    """Print the version."""
    screen.emit({"version": __version__, "python": platform.python_version()})
    screen.tell(f"tercel {__version__}")
