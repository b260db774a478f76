"""tercel manager"""

from pathlib import Path
from typing import Unpack

import click

from tercel.cli.lazy import Command
from tercel.cli.listening import Listening, listen_options, manager_options, run_manager
from tercel.cli.logbook import LogOptions, log_options
from tercel.cli.screen import Screen


@click.command(cls=Command)
@listen_options
@log_options
@click.pass_obj
def command(
    screen: Screen,
    /,
    log_file: Path | None,
    log_level: str,
    **listening: Unpack[Listening],
) -> int:
    """Start a manager without a worker, in the foreground.

    It listens on this machine only, unless --host says otherwise, for which a token must exist (`tercel token
    create`). Ctrl-C or SIGTERM stops it; workers go on with what they run and return when it is back.
    """
    options = manager_options(**listening)
    return run_manager(screen, options, None, LogOptions(log_file, log_level))
