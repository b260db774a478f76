"""How much a worker gives to tasks: the options of `up` and `worker`."""

from collections.abc import Callable
from typing import TypeVar

import click

from tercel.core.commands import parse_size
from tercel.core.errors import UsageError

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
)


def capacity_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_capacity(cpus: float | None, mem: str | None) -> tuple[float | None, int | None]:
    """(cpus, bytes of memory), None where the node decides. Raises UsageError."""
    if cpus is not None and not 0 < cpus <= MOST_CPUS:
        raise UsageError(f"--cpus {cpus:g}: a worker gives more than none, and at most {MOST_CPUS:,}", "cpus")
    return cpus, None if mem is None else parse_size(mem, "mem")
