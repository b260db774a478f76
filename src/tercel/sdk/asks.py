"""What Python programs say about where and how tasks run: the keys of job files, by their names.

Beside what job files take, sizes may be given in bytes and times in seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class Asks(TypedDict, total=False):
    gpus: float
    resources: Mapping[str, float]
    """By name: {"licence.matlab": 1}."""
    requires: str | Sequence[str]
    where: str
    rank: str
    mem_growth: float
    pids: int
    disk: str | int
    isolate: str
    container: str
    sandbox: str
    cleanup: str
    cleanup_limit: str | float
    warn_signal: str
    block_on: str | Sequence[str | Mapping[str, str]]
    """"exit:75 -> tcp:licence.lab:27000", or {"on": "exit:75", "tester": "tcp:licence.lab:27000"}."""


NAMES = frozenset(Asks.__annotations__)


def asked_fields(asks: Mapping[str, Any] | Asks) -> dict[str, Any]:
    """Fields of a submission. Raises UsageError."""
    # The keys of job files take a while to import, and every command line imports this module.
    from tercel.sdk.asked import fields_of  # noqa: PLC0415

    return fields_of(asks)
