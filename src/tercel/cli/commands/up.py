"""tercel up"""

from pathlib import Path
from typing import Unpack

import click

from tercel.cli.giving import capacity_options, read_capacity
from tercel.cli.lazy import Command
from tercel.cli.listening import Listening, listen_options, manager_options, run_manager
from tercel.cli.logbook import LogOptions, log_options
from tercel.cli.screen import Screen
from tercel.worker.options import WorkerOptions


@click.command(cls=Command)
@listen_options
@capacity_options
@log_options
@click.pass_obj
def command(
    screen: Screen,
    /,
    cpus: float | None,
    mem: str | None,
    keep_free: float | None,
    log_file: Path | None,
    log_level: str,
    **listening: Unpack[Listening],
) -> int:
    """Start a manager and a worker on this machine, in the foreground, and say how others join.

    The first Ctrl-C or SIGTERM lets running tasks end, the second stops at once; nothing is lost either way. The
    token for workers is written to worker.token in the data directory (mode 0600) and never printed.
    """
    giving = read_capacity(cpus, mem, keep_free)
    options = manager_options(**listening)
    worker = WorkerOptions(dir=options.data / "worker", **giving)
    return run_manager(screen, options, worker, LogOptions(log_file, log_level))
