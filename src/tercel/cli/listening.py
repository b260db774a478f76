"""What `up` and `manager` have in common: where a manager listens and keeps its data."""

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import click

from tercel.cli.lazy import late
from tercel.cli.logbook import LogOptions
from tercel.cli.screen import Screen
from tercel.cli.services import run_service
from tercel.core.commands import parse_size, parse_time
from tercel.core.errors import UsageError
from tercel.core.throttles import parse_rates
from tercel.links.access import DEFAULT_PORT
from tercel.links.places import data_dir, private_dir
from tercel.manager.options import ManagerOptions
from tercel.worker.options import HEARTBEAT_MOST_S, WorkerOptions

F = TypeVar("F", bound=Callable[..., object])

SHORTEST_S = 60.0
"""Between two snapshots by schedule."""
YOUNGEST_S = 3600.0
"""What is told of tasks is kept at least so long: people look at it when something went wrong."""
MOST_SNAPSHOTS = 10_000
"""Of a kind: the header of each is read whenever one is taken, or they are listed."""

_OPTIONS = (
    click.option(
        "--host", default="127.0.0.1", metavar="ADDRESS", show_default=True, help="Where to listen."
    ),
    click.option(
        "-p",
        "--port",
        type=click.IntRange(0, 65535),
        default=DEFAULT_PORT,
        show_default=True,
        help="0 takes any free one.",
    ),
    click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Its directory.  [default: tercel in XDG_DATA_HOME]",
    ),
    click.option(
        "--grace",
        default="60s",
        metavar="TIME",
        show_default=True,
        help="How long a worker may be away before others get its tasks.",
    ),
    click.option(
        "--heartbeat",
        default="10s",
        metavar="TIME",
        show_default=True,
        help="How often workers are heard at least; a link that misses three beats is given up.",
    ),
    click.option(
        "--snapshot-every",
        default="1d",
        metavar="TIME",
        show_default=True,
        help="How often unfinished jobs are put into a snapshot; `off`: never.",
    ),
    click.option(
        "--keep-snapshots",
        type=click.IntRange(1, MOST_SNAPSHOTS),
        default=10,
        metavar="N",
        show_default=True,
        help="How many snapshots are kept: so many by schedule, and so many from before something was changed for good.",
    ),
    click.option(
        "--keep-snapshot-bytes",
        default="4G",
        metavar="SIZE",
        show_default=True,
        help="At most so much of all these together; the newest stays in any case.",
    ),
    click.option(
        "--keep-history",
        default="off",
        metavar="TIME",
        show_default=True,
        help="When what befell tasks is forgotten: notes, closed conditions, and the middle of very long histories; `off`: by "
        "`tercel clean`. Jobs and their results stay.",
    ),
    click.option(
        "--throttle",
        multiple=True,
        metavar="RATE",
        help="So many tasks at most: starts=10/2s in all, launches=8/2s on one node, releases=100/1s of one condition; files: "
        "transfers=10/1s from or to one endpoint; or `tapis`, its settings.  [default: none]",
    ),
)


def listen_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class Listening(TypedDict):
    """What these options were given, as their names are."""

    host: str
    port: int
    data: Path | None
    grace: str
    heartbeat: str
    snapshot_every: str
    keep_snapshots: int
    keep_snapshot_bytes: str
    keep_history: str
    throttle: tuple[str, ...]


def manager_options(**given: Unpack[Listening]) -> ManagerOptions:
    data = given["data"]
    directory = data_dir() if data is None else private_dir(data.absolute())
    heartbeat_s = parse_time(given["heartbeat"], "heartbeat")
    if not 0 < heartbeat_s <= HEARTBEAT_MOST_S:
        raise UsageError("--heartbeat is longer than nothing, and at most an hour", "heartbeat")
    every_s = _time_or_off(given["snapshot_every"], "snapshot-every")
    if every_s and every_s < SHORTEST_S:
        raise UsageError(f"--snapshot-every is at least {SHORTEST_S:g} s, or off", "snapshot-every")
    snapshots_bytes = parse_size(given["keep_snapshot_bytes"], "keep-snapshot-bytes")
    if snapshots_bytes <= 0 or given["keep_snapshot_bytes"].strip().isdigit():
        # Elsewhere a bare number is megabytes, as in sbatch: here it would be read as what the option is called.
        raise UsageError(
            "--keep-snapshot-bytes is more than nothing, with a unit: write 500M or 4G", "keep-snapshot-bytes"
        )
    history_s = _time_or_off(given["keep_history"], "keep-history")
    if history_s < YOUNGEST_S and given["keep_history"] != "off":
        raise UsageError("--keep-history is at least 1h, or off", "keep-history")
    return ManagerOptions(
        data=directory,
        host=given["host"],
        port=given["port"],
        grace_s=parse_time(given["grace"], "grace"),
        heartbeat_s=heartbeat_s,
        snapshot_every_s=every_s,
        snapshots_kept=given["keep_snapshots"],
        snapshots_bytes=snapshots_bytes,
        history_s=history_s,
        rates=parse_rates(given["throttle"]),
    )


def _time_or_off(text: str, option: str) -> float:
    return 0.0 if text == "off" else parse_time(text, option)


def run_manager(
    screen: Screen, options: ManagerOptions, worker: WorkerOptions | None, log: LogOptions
) -> int:
    host = late("tercel.cli.hosting", "host")
    code = run_service(host(screen, options, worker, log))
    assert isinstance(code, int)
    return code
