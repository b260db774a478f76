"""What can be said about how a function's calls are run."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from tercel.core.errors import UsageError
from tercel.core.model import DEFAULT_PRIORITY, BlockRule, Keep
from tercel.sdk.asks import NAMES, asked_fields


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
    gpus: float = 0.0
    resources: tuple[tuple[str, float], ...] = ()
    requires: tuple[str, ...] = ()
    where: str = ""
    rank: str = ""
    mem_growth: float = 0.0
    pids: int = 0
    disk_bytes: int = 0
    isolate: str = ""
    container: str = ""
    sandbox: Keep = Keep.REMOVE
    cleanup: str = ""
    cleanup_limit_s: float = 600.0
    warn_signal: str = ""
    block_on: tuple[BlockRule, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Those that are not as by default: an older manager may not know them all."""
        defaults = CallOptions()
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        changed = {name: value for name, value in given.items() if value != getattr(defaults, name)}
        return changed | {"resources": dict(self.resources)} if self.resources else changed


class Gathering(msgspec.Struct, frozen=True):
    """How long single calls are gathered into one job: until there are so many, or the first has waited so long."""

    calls: int = 1000
    seconds: float = 0.003

    def __post_init__(self) -> None:
        if self.calls < 1 or not 0 <= self.seconds <= 3600:
            raise UsageError("gather: at least 1 call, and 0 to 3600 seconds", "gather")


def with_resources(options: CallOptions, resources: Mapping[str, Any] | None) -> CallOptions:
    """`{"cpus": 2, "mem": "4G", "gpus": 1, "licence.matlab": 1, "where": …}` on top of what there is."""
    known: dict[str, Any] = {}
    others = dict(options.resources)
    for name, value in (resources or {}).items():
        if name == "resources" and isinstance(value, Mapping):
            others |= value
        elif name in NAMES or name in ("cpus", "mem", "time"):
            known[name] = value
        elif "." in name:
            others[name] = value
        else:
            near = get_close_matches(name, ["cpus", "mem", "time", *NAMES], n=1)
            hint = f"did you mean {near[0]!r}? There" if near else "there"
            raise UsageError(
                f"{name!r} is not a resource; {hint} are cpus, mem (4G, or bytes), time, {', '.join(sorted(NAMES))}; "
                "name your workers' own with a dot, as in licence.matlab, or write "
                f'{{"resources": {{{name[:40]!r}: 1}}}}',
                "resources",
            )
    if others:
        known["resources"] = others
    if not known:
        return options
    fields = asked_fields(known)
    if others:
        fields["resources"] = tuple(sorted(fields["resources"].items()))
    return msgspec.structs.replace(options, **fields)
