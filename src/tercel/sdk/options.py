"""What can be said about how a function's calls are run."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tercel.core.commands import parse_size, parse_time
from tercel.core.errors import UsageError
from tercel.core.model import DEFAULT_PRIORITY


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Calls with the same ones may be tasks of one job. Fields as in JobSpec."""

    cpus: float = 1.0
    mem_bytes: int = 0
    time_limit_s: float = 0.0
    retries: int = 0
    priority: int = DEFAULT_PRIORITY
    name: str = ""
    queue: str = ""
    cwd: str = ""

    def fields(self) -> dict[str, Any]:
        """Those that are not as by default: an older manager may not know them all."""
        defaults = CallOptions()
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in given.items() if value != getattr(defaults, name)}


class Gathering(msgspec.Struct, frozen=True):
    """How long single calls are gathered into one job: until there are so many, or the first has waited so long."""

    calls: int = 1000
    seconds: float = 0.003

    def __post_init__(self) -> None:
        if self.calls < 1 or not 0 <= self.seconds <= 3600:
            raise UsageError("gather: at least 1 call, and 0 to 3600 seconds", "gather")


def with_resources(options: CallOptions, resources: Mapping[str, Any] | None) -> CallOptions:
    """`{"cpus": 2, "mem": "4G", "time": "1h"}` on top of what there is."""
    fields: dict[str, Any] = {}
    for name, value in (resources or {}).items():
        match name:
            case "cpus":
                fields["cpus"] = _number(name, value)
            case "mem":
                fields["mem_bytes"] = (
                    parse_size(value, "mem") if isinstance(value, str) else int(_number(name, value))
                )
            case "time":
                fields["time_limit_s"] = (
                    parse_time(value, "time") if isinstance(value, str) else _number(name, value)
                )
            case _:
                raise UsageError(
                    f"{name!r} is not a resource; there are cpus, mem (4G, or bytes) and time", "resources"
                )
    return msgspec.structs.replace(options, **fields) if fields else options


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"resources: {name} is {value!r}, which is no number", "resources")
    return value
