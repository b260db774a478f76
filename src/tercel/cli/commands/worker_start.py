"""tercel worker start"""

import os
import sys
from pathlib import Path

import click

from tercel.cli.giving import capacity_options, describing_options, read_capacity, read_description
from tercel.cli.lazy import Command, late
from tercel.cli.logbook import LogOptions, log_options
from tercel.cli.screen import Screen
from tercel.cli.services import run_service, worker_dir
from tercel.core.commands import parse_time
from tercel.links.access import find_server, read_token
from tercel.worker.options import WorkerOptions


@click.command(cls=Command)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE", help="Holds the token; mode 0600."
)
@click.option("--token", metavar="TOKEN", help="The token itself. --token-file is safer.")
@capacity_options
@describing_options
@click.option("--dir", "directory", type=click.Path(path_type=Path), metavar="DIR", help="Its own directory.")
@click.option(
    "--leave-after", metavar="TIME", help="Leave when the manager was away so long.  [default: never]"
)
@click.option(
    "--reconnect-most",
    default="30s",
    metavar="TIME",
    show_default=True,
    help="The longest pause between two tries to reach the manager.",
)
@log_options
@click.pass_obj
def command(
    screen: Screen,
    urls: tuple[str, ...],
    token_file: Path | None,
    token: str | None,
    cpus: float | None,
    mem: str | None,
    keep_free: float | None,
    site: str,
    tags: tuple[str, ...],
    resources: tuple[str, ...],
    time_limit: str | None,
    health_check: str,
    cache_dir: Path | None,
    cache_size: str,
    directory: Path | None,
    leave_after: str | None,
    reconnect_most: str,
    log_file: Path | None,
    log_level: str,
) -> int:
    """Join the manager at URL (or the one on this machine) and run its tasks until told to leave.

    Several URLs are ways to the same manager, tried in turn: tercel worker http://inside:7717 http://outside:7717

    The first Ctrl-C or SIGTERM lets running tasks end, the second leaves at once. The token comes from --token-file,
    TERCEL_TOKEN_FILE, TERCEL_TOKEN or, on the manager's own machine, from its access file.
    """
    if token is not None:
        _hide_token(token)
    giving = read_capacity(cpus, mem, keep_free)
    describing = read_description(site, tags, resources, time_limit, health_check, cache_dir, cache_size)
    given = read_token(token_file) if token_file is not None else None
    ways = [find_server(url or screen.server, given, worker=True) for url in urls or (None,)]
    options = WorkerOptions(
        dir=(directory or worker_dir(ways[0][0])).absolute(),
        **giving,
        **describing,
        reconnect_most_s=parse_time(reconnect_most, "reconnect-most"),
        leave_when_unreachable_s=0.0 if leave_after is None else parse_time(leave_after, "leave-after"),
    )
    join = late("tercel.cli.hosting", "join")
    code = run_service(join(screen, ways, options, LogOptions(log_file, log_level)))
    assert isinstance(code, int)
    return code


def _hide_token(token: str) -> None:
    """Everyone on the machine can read a process's arguments: start again with the token in the environment."""
    arguments = without_token(sys.orig_argv)
    environment = os.environ | {"TERCEL_TOKEN": token}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, arguments, environment)  # noqa: S606 - no shell wanted


def without_token(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--token":
            skip = True
        elif not argument.startswith("--token="):
            kept.append(argument)
    return kept
