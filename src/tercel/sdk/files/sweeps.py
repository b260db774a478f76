"""The points of a sweep: the [sweep] of a file, with values from files of names and of lines."""

import glob
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from pathlib import Path

from tercel.core.errors import UsageError
from tercel.core.grids import Axis, Grid, plain_number
from tercel.core.gridtext import Outside, parse_axis
from tercel.sdk.files.directories import SANDBOX
from tercel.sdk.files.kinds import Mistake, without_field
from tercel.sdk.files.kinds import Path as KeyPath
from tercel.sdk.files.lines import read_lines


def read_grid(table: Mapping[str, object], zipped: bool, outside: Outside, path: KeyPath) -> Grid:
    """Of a checked [sweep] table. Raises Mistake."""
    axes = [_axis(name, values, outside, (*path, name)) for name, values in table.items()]
    return Grid(axes=tuple(axes), zipped=zipped)


def values_of(base: Path, cwd: str) -> Outside:
    """Files of values are looked for in `base`; names of files are as tasks find them, from where they run."""
    return Outside(lines=lambda file: _values(file, base), names=lambda pattern: _fitting(pattern, cwd))


def _values(file: str, base: Path) -> list[str]:
    try:
        return read_lines(file, base).lines
    except UsageError as error:
        raise UsageError(str(error), "grid") from None


def _axis(name: str, values: object, outside: Outside, path: KeyPath) -> Axis:
    if "=" in name:
        raise Mistake(path, f"{name!r} is not a name")
    if isinstance(values, list):
        return Axis(name=name, values=tuple(_text(value) for value in values))
    if not isinstance(values, str):
        return Axis(name=name, values=(_text(values),))
    try:
        return parse_axis(f"{name}={values}", outside)
    except UsageError as error:
        raise Mistake(path, without_field(error)) from None


def _text(value: object) -> str:
    """As people write it: 0.00001 rather than 1e-05."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and isfinite(value):
        return plain_number(Decimal(repr(value)))
    return str(value)


def _fitting(pattern: str, cwd: str) -> list[str]:
    if "\0" in pattern:
        return []
    if pattern.startswith("~/"):
        pattern = str(Path.home() / pattern[2:])
    if cwd == SANDBOX:
        return glob.glob(str(Path.cwd() / pattern), recursive=True)  # noqa: PTH207 - it may begin with /
    return glob.glob(pattern, root_dir=cwd, recursive=True)  # noqa: PTH207
