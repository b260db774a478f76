"""Random histories, put into a snapshot at any moment and restored: every answer must be the same, whichever store it is."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import precondition, rule

from tercel.stores.contract import Store
from tercel.stores.memory import MemoryStore
from tercel.stores.sqlite import SqliteStore
from tests.conformance.snapshots import restored_into, saved, told
from tests.conformance.stores import KEYS
from tests.conformance.test_stores_agree import StoresAgree


class SnapshotsAgree(StoresAgree):
    gaps = False

    @precondition(lambda self: not self.batch and any(planned.id == 1 for planned in self.plan.jobs))
    @rule()
    def save_and_restore(self) -> None:
        """From each store into the other kind. (Job 1 is there: calls refer to it.)"""
        directory = Path(self.directory.name)
        expected, values = told(self.memory.store), _values(self.memory.store)
        for kept in (self.memory, self.sqlite):
            path = saved(kept.store, directory / "one.tercel")
            other = directory / "other.db"
            target: Store = SqliteStore(other) if kept is self.memory else MemoryStore()
            target.load()
            restored_into(target, path)
            assert told(target) == expected
            again = saved(target, directory / "two.tercel")
            second = MemoryStore()
            second.load()
            restored_into(second, again, attempt=5)
            assert told(second) == expected
            assert _values(second) == {key: values[key] for key in _values(second)}
            target.close()
            other.unlink(missing_ok=True)


def _values(store: Store) -> dict[str, list[bytes]]:
    """Those that are whole."""
    counts = {key: store.value_piece_count(key) for key in KEYS}
    return {key: store.value_pieces(key, 0, count - 1) for key, count in counts.items() if count}


TestSnapshotsAgree = SnapshotsAgree.TestCase
TestSnapshotsAgree.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestSnapshotsAgree.pytestmark = [pytest.mark.C(8), pytest.mark.must("c")]  # type: ignore[attr-defined]
