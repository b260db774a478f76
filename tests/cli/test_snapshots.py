"""tercel snapshot: what is asked for, and what is told."""

from tercel.wire.api_snapshots import Restoration
from tests.cli.conftest import Tercel
from tests.cli.fake_manager import FakeManager


def restoration(**more: object) -> Restoration:
    fields: dict[str, object] = {"id": "x", "jobs": [(37, 37)], "tasks": 10, "unfinished": 8}
    return Restoration(**fields | more)  # type: ignore[arg-type]


def test_numbers_that_are_other_ones_are_told(tercel: Tercel, manager: FakeManager) -> None:
    path = "/v1/snapshots/3/restore"
    manager.says("POST", path, restoration(conditions=[(2, 2)]))
    first = "1 job restored: 10 tasks, 2 of them ended, 8 to do"
    assert tercel("snapshot", "restore", "@3").out.splitlines() == [first]
    manager.says("POST", path, restoration(jobs=[(37, 40)], conditions=[(2, 1), (5, 5)]))
    words = [line.split() for line in tercel("snapshot", "restore", "@3").out.splitlines()[1:]]
    assert words == [["WAS", "IS"], ["37", "40"], ["WAS", "IS"], ["C2", "C1"], ["C5", "C5"]]
