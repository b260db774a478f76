"""What Python programs say about where and how tasks run, read as job files are."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tercel.core.errors import UsageError
from tercel.sdk.asks import NAMES, Asks
from tercel.sdk.files.keys import BY_NAME
from tercel.sdk.files.kinds import Mistake, check, without_field

_PLAIN = {"mem", "disk", "time", "cleanup_limit"}
"""Whose numbers are bytes, or seconds."""


def fields_of(asks: Mapping[str, Any] | Asks) -> dict[str, Any]:
    """Fields of a submission. Raises UsageError."""
    fields: dict[str, Any] = {}
    for name, value in cast(Mapping[str, Any], asks).items():
        if name not in NAMES and name not in ("cpus", "mem", "time"):
            raise UsageError(f"there is no {name!r}; there are {', '.join(sorted(NAMES))}", name)
        fields[BY_NAME[name].field] = _read(name, value)
    return fields


def _read(name: str, value: Any) -> Any:
    key = BY_NAME[name]
    if name in _PLAIN and isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if name in ("mem", "disk") else float(value)
    if isinstance(value, Mapping):
        value = dict(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        value = list(value)
    try:
        check(key.kind, value, (name,))
        return key.read(value)
    except Mistake as mistake:
        raise UsageError(f"{'.'.join(map(str, mistake.path))}: {mistake.text}", name) from None
    except UsageError as error:
        raise UsageError(f"{name}: {without_field(error)}", name) from None
