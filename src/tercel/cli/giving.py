"""How much a worker gives to tasks, and what it says of itself: the options of `up` and `worker`."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

import click

from tercel.core.commands import parse_size, parse_time
from tercel.core.errors import UsageError
from tercel.worker.offering import read_resources, read_tags
from tercel.worker.walltime import slurm_time_left_s

F = TypeVar("F", bound=Callable[..., object])

MOST_CPUS = 1_000_000

_OPTIONS = (
    click.option(
        "--cpus",
        type=float,
        metavar="N",
        help="Cores given to tasks.  [default: all but one, or both of two]",
    ),
    click.option("--mem", metavar="SIZE", help="Memory given to tasks.  [default: all of it]"),
    click.option(
        "--keep-free",
        type=float,
        metavar="N",
        help="Cores left to people, beside what they use already.  [default: 1, or 0 of up to two]",
    ),
)

_DESCRIBING = (
    click.option("--site", default="", metavar="NAME", help="Machines that reach one another share a site."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="What tasks may require. Repeatable."),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME=AMOUNT",
        help="What tasks may ask for beside cores and memory: licence.matlab=2, port=[8000,8001], gpus=auto, "
        "gpus=2, gpus=[0,1]. Repeatable.  [default: gpus=auto]",
    ),
    click.option(
        "--time-limit",
        metavar="TIME",
        help="Leave after so long; what still runs then will run elsewhere.  [default: a Slurm job's end, else never]",
    ),
    click.option(
        "--health-check",
        default="",
        metavar="COMMAND",
        help="Run before joining and every minute; while it fails, no tasks are taken, and its last line says why.",
    ),
    click.option(
        "--cache-dir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Keep files that tasks read there, for the next ones. All workers of a node may share one.  "
        "[default: one for all of this user, if it is on the same disk as --dir, else one of its own]",
    ),
    click.option(
        "--cache-size",
        default="20G",
        metavar="SIZE",
        show_default=True,
        help="Disk for such files, at most; and as much again for values of Python calls.",
    ),
)


def capacity_options(function: F) -> F:
    return _with(function, _OPTIONS)


def describing_options(function: F) -> F:
    return _with(function, _DESCRIBING)


def _with(function: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


class Giving(TypedDict):
    """Fields of WorkerOptions; None where the node decides."""

    cpus: float | None
    mem_bytes: int | None
    keep_free: float | None


def read_capacity(cpus: float | None, mem: str | None, keep_free: float | None) -> Giving:
    """Raises UsageError."""
    if cpus is not None and not 0 < cpus <= MOST_CPUS:
        raise UsageError(f"--cpus {cpus:g}: a worker gives more than none, and at most {MOST_CPUS:,}", "cpus")
    if keep_free is not None and not 0 <= keep_free <= MOST_CPUS:
        raise UsageError(f"--keep-free {keep_free:g}: it is a number from 0 to {MOST_CPUS:,}", "keep-free")
    return Giving(cpus=cpus, mem_bytes=None if mem is None else parse_size(mem, "mem"), keep_free=keep_free)


class Describing(TypedDict):
    """Fields of WorkerOptions."""

    site: str
    tags: tuple[str, ...]
    resources: dict[str, int]
    pieces: dict[str, tuple[str, ...]]
    gpus: int | tuple[str, ...] | None
    time_limit_s: float | None
    health_check: str
    cache_dir: Path | None
    cache_bytes: int


def read_description(
    site: str,
    tags: Sequence[str],
    resources: Sequence[str],
    time_limit: str | None,
    health_check: str,
    cache_dir: Path | None,
    cache_size: str,
) -> Describing:
    """Raises UsageError."""
    offered = read_resources(resources)
    if time_limit is not None:
        time_limit_s: float | None = parse_time(time_limit, "time-limit")
    else:
        time_limit_s = slurm_time_left_s(os.environ, time.time())
    if time_limit_s is not None and time_limit_s <= 0:
        raise UsageError("--time-limit: a worker needs some time", "time-limit")
    return Describing(
        site=site,
        tags=read_tags(tags),
        resources=offered.amounts,
        pieces=offered.pieces,
        gpus=offered.gpus,
        time_limit_s=time_limit_s,
        health_check=health_check,
        cache_dir=cache_dir.absolute() if cache_dir is not None else None,
        cache_bytes=parse_size(cache_size, "cache-size"),
    )
