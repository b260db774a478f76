"""tercel up"""

from pathlib import Path

import click

from tercel.cli.lazy import Command
from tercel.cli.listening import listen_options, manager_options, run_manager
from tercel.cli.screen import Screen
from tercel.core.commands import parse_size
from tercel.core.errors import UsageError
from tercel.worker.options import WorkerOptions


@click.command(cls=Command)
@listen_options
@click.option(
    "--cpus", type=float, metavar="N", help="Cores given to tasks.  [default: all but one, or both of two]"
)
@click.option("--mem", metavar="SIZE", help="Memory given to tasks.  [default: all of it]")
@click.pass_obj
def command(
    screen: Screen,
    host: str,
    port: int,
    data: Path | None,
    grace: str,
    heartbeat: str,
    cpus: float | None,
    mem: str | None,
) -> int:
    """Start a manager and a worker on this machine, in the foreground, and say how others join.

    The first Ctrl-C or SIGTERM lets running tasks end, the second stops at once; nothing is lost either way. The
    token for workers is written to worker.token in the data directory (mode 0600) and never printed.
    """
    if cpus is not None and not 0 < cpus <= 1_000_000:
        raise UsageError(f"--cpus {cpus:g}: a worker needs more than none", "cpus")
    options = manager_options(host, port, data, grace, heartbeat)
    worker = WorkerOptions(
        dir=options.data / "worker",
        cpus=cpus,
        mem_bytes=None if mem is None else parse_size(mem, "mem"),
    )
    return run_manager(screen, options, worker)
