"""A job like another one, with some things changed."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tercel.cli.sweeping import outside
from tercel.core.commands import parse_size, parse_time
from tercel.core.errors import UsageError
from tercel.core.grids import Grid
from tercel.core.gridtext import parse_axis
from tercel.wire.api import Submission


def _number(kind: Callable[[str], Any], name: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise UsageError(f"--set {name}={text}: a number is needed", "set") from None

    return read


_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "name": ("name", str),
    "array": ("array", str),
    "queue": ("queue", str),
    "max_fails": ("max_fails", str),
    "cpus": ("cpus", _number(float, "cpus")),
    "priority": ("priority", _number(int, "priority")),
    "retries": ("retries", _number(int, "retries")),
    "mem": ("mem_bytes", lambda text: parse_size(text, "mem")),
    "time": ("time_limit_s", lambda text: parse_time(text, "time")),
}
"""What may be set beside a sweep's parameters: the field of a submission, and how its text is read."""


def changed(job: Submission, settings: Iterable[str]) -> Submission:
    """The same, less its key, with NAME=VALUE set. A sweep's parameter of that name goes before a field."""
    job = msgspec.structs.replace(job, key="")
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {setting!r}: write NAME=VALUE", "set")
        if job.grid is not None and name in {axis.name for axis in job.grid.axes}:
            job = msgspec.structs.replace(job, grid=_with_axis(job.grid, setting))
        elif name in _FIELDS:
            field, read = _FIELDS[name]
            job = msgspec.structs.replace(job, **{field: read(value)})
        else:
            known = [axis.name for axis in job.grid.axes] if job.grid is not None else []
            raise UsageError(
                f"--set {name}: there is {', '.join([*known, *_FIELDS])}, and no {name!r}", "set"
            )
    return job


def _with_axis(grid: Grid, setting: str) -> Grid:
    axis = parse_axis(setting, outside("."))
    return msgspec.structs.replace(
        grid, axes=tuple(axis if old.name == axis.name else old for old in grid.axes)
    )
