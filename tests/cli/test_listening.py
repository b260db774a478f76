"""What can be said to `up` and `manager` about what they keep, and what is refused."""

from typing import Any

import pytest

from tercel.manager.options import ManagerOptions
from tests.cli.conftest import Tercel

DAY_S = 86_400.0
GIB = 2**30


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ManagerOptions]:
    """With what managers would have been started."""
    options: list[ManagerOptions] = []

    def run(_: Any, asked: ManagerOptions, *__: Any) -> int:
        options.append(asked)
        return 0

    for command in ("up", "manager"):
        monkeypatch.setattr(f"tercel.cli.commands.{command}.run_manager", run)
    return options


@pytest.mark.parametrize("command", ["up", "manager"])
@pytest.mark.parametrize(
    ("words", "every_s", "kept", "most_bytes"),
    [
        ((), DAY_S, 10, 4 * GIB),
        (("--snapshot-every", "6h"), DAY_S / 4, 10, 4 * GIB),
        (("--snapshot-every", "off", "--keep-snapshots", "3"), 0.0, 3, 4 * GIB),
        (("--keep-snapshot-bytes", "500M"), DAY_S, 10, 500 * 2**20),
    ],
)
def test_how_many_snapshots_are_taken_and_kept(
    tercel: Tercel,
    started: list[ManagerOptions],
    command: str,
    words: tuple[str, ...],
    every_s: float,
    kept: int,
    most_bytes: int,
) -> None:
    assert tercel(command, *words).code == 0
    (options,) = started
    assert (options.snapshot_every_s, options.snapshots_kept, options.snapshots_bytes) == (
        every_s,
        kept,
        most_bytes,
    )


@pytest.mark.parametrize("command", ["up", "manager"])
@pytest.mark.parametrize(
    ("words", "history_s"),
    [((), 0.0), (("--keep-history", "off"), 0.0), (("--keep-history", "90d"), 90 * DAY_S)],
)
def test_how_long_histories_are_kept(
    tercel: Tercel, started: list[ManagerOptions], command: str, words: tuple[str, ...], history_s: float
) -> None:
    assert tercel(command, *words).code == 0
    assert started[0].history_s == history_s


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--snapshot-every", "5s"), "--snapshot-every is at least 60 s, or off"),
        (("--keep-history", "0"), "--keep-history is at least 1h, or off"),
        (("--heartbeat", "99999999d"), "--heartbeat is longer than nothing, and at most an hour"),
        (("--heartbeat", "0s"), "--heartbeat is longer than nothing, and at most an hour"),
        (("--keep-history", "59m"), "--keep-history is at least 1h, or off"),
        (("--keep-history", "long"), "keep-history 'long' is not a time"),
        (("--keep-snapshots", "0"), "0 is not in the range"),
        (("--keep-snapshots", "many"), "'many' is not a valid integer"),
        (("--keep-snapshot-bytes", "0G"), "--keep-snapshot-bytes is more than nothing"),
        (("--keep-snapshot-bytes", "4000"), "with a unit: write 500M or 4G"),
        (("--keep-snapshot-bytes", "much"), "keep-snapshot-bytes 'much' is not a size; write 500M or 2G"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_started(
    tercel: Tercel, started: list[ManagerOptions], words: tuple[str, ...], says: str
) -> None:
    done = tercel("manager", *words)
    assert (done.code, started) == (2, [])
    assert says in done.err
