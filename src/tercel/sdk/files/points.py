"""The points of a job whose command has holes: a file's [sweep], or items from a file of JSON."""

from collections.abc import Mapping
from decimal import Decimal
from glob import glob
from math import isfinite
from pathlib import Path

import msgspec

from tercel.core.errors import UsageError
from tercel.core.grids import Axis, Grid, plain_number
from tercel.core.gridtext import Outside, parse_axis
from tercel.core.points import one_line
from tercel.sdk.files.kinds import Mistake, without_field
from tercel.sdk.files.kinds import Path as KeyPath
from tercel.sdk.files.lines import Lines, read_lines, read_source


def read_grid(table: Mapping[str, object], zipped: bool, base: Path, path: KeyPath) -> Grid:
    """Of a checked [sweep] table. Raises Mistake."""
    axes = [_axis(name, values, base, (*path, name)) for name, values in table.items()]
    return Grid(axes=tuple(axes), zipped=zipped)


def _axis(name: str, values: object, base: Path, path: KeyPath) -> Axis:
    if "=" in name:
        raise Mistake(path, f"{name!r} is not a name")
    if isinstance(values, list):
        return Axis(name=name, values=tuple(_text(value) for value in values))
    if not isinstance(values, str):
        return Axis(name=name, values=(_text(values),))
    # File names go into commands, which do not run where the job file is: they are as seen from here.
    outside = Outside(lines=lambda file: read_lines(file, base).lines, names=glob)
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


def read_items(source: str, base: Path) -> Lines:
    """JSON objects, one per line, or as the members of one list. Raises UsageError."""
    name, text = read_source(source, base)
    if text.lstrip().startswith("["):
        try:
            members = msgspec.json.decode(text, type=list[msgspec.Raw])
        except msgspec.DecodeError as error:
            raise UsageError(f"{name} is not valid JSON: {error}") from None
        items = [one_line(bytes(member).decode()) for member in members]
        numbers: list[int] = []
    else:
        found = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        items = [line.strip() for _, line in found]
        numbers = [number for number, _ in found]
    if not items:
        raise UsageError(f"{name} has no items")
    return Lines(items, numbers, 0, name)
