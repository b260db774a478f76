"""A job like another one, with some things changed."""

from collections.abc import Iterable

import msgspec

from tercel.cli.sweeping import outside
from tercel.core.commands import check_spec
from tercel.core.errors import UsageError
from tercel.core.grids import Grid
from tercel.core.gridtext import parse_axis
from tercel.core.rules import check_rules
from tercel.sdk.files import Draft
from tercel.sdk.files.directories import SANDBOX
from tercel.sdk.files.drafts import field_of
from tercel.sdk.files.keys import BY_NAME
from tercel.sdk.files.kinds import Flag
from tercel.sdk.files.options import Option, add_option
from tercel.sdk.files.sources import OptionSource, Words
from tercel.wire.api import Submission

FIELDS = [name for name, key in BY_NAME.items() if key.field and not isinstance(key.kind, Flag)]
"""What may be set beside a sweep's parameters: as options of `submit`, by their names in job files."""


def changed(job: Submission, settings: Iterable[str]) -> Draft:
    """The same, less its key, with NAME=VALUE set. A sweep's parameter of that name goes before a field."""
    job = msgspec.structs.replace(job, key="")
    words: Words = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {setting!r}: write NAME=VALUE", "set")
        names = job.grid.names if job.grid is not None else ()
        if job.grid is not None and name in names:
            job = msgspec.structs.replace(job, grid=_with_axis(job, job.grid, setting))
        elif name in FIELDS:
            add_option(words, BY_NAME[name], Option(f"--set {name}", value), OptionSource())
        else:
            raise UsageError(f"--set {name}: there is {', '.join([*names, *FIELDS])}, and no {name!r}", "set")
    fields = {field: value for name, given in words.items() for field, value in field_of(name, given).items()}
    job = msgspec.structs.replace(job, **fields)
    ranges, _ = check_spec(job, job.lines, items=job.items, calls=job.calls, uploads=True)
    check_rules(job)
    return Draft(job, ranges)


def _with_axis(job: Submission, grid: Grid, setting: str) -> Grid:
    axis = parse_axis(setting, outside(job.cwd or SANDBOX))
    return msgspec.structs.replace(
        grid, axes=tuple(axis if old.name == axis.name else old for old in grid.axes)
    )
