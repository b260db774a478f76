"""Saves or restores a snapshot, and kills itself with SIGKILL on the way.

save STORE FILE BLOCK           before so many blocks were written
restore STORE FILE CALL WHEN    before or after so many stagings and adoptings
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tercel.stores.snapshot import files
from tercel.stores.sqlite import SqliteStore
from tests.conformance.snapshots import restored_into, saved

files.BLOCK_BYTES = 200  # many blocks, of a small store


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def saving(path: Path, file: Path, block: int) -> None:
    put = files.Writer._put
    written = 0

    def dying(self: files.Writer, data: bytes) -> None:
        nonlocal written
        written += 1
        if written == block:
            self._file.flush()
            die()
        put(self, data)

    files.Writer._put = dying  # type: ignore[method-assign]
    store = SqliteStore(path)
    store.load()
    saved(store, file)
    store.close()


def restoring(path: Path, file: Path, count: int, when: str) -> None:
    class DyingStore(SqliteStore):
        calls = 0

        def stage(self, *given: Any) -> None:
            self._dying(super().stage, *given)

        def adopt(self, *given: Any) -> None:
            self._dying(super().adopt, *given)

        def _dying(self, act: Callable[..., None], *given: Any) -> None:
            self.calls += 1
            if self.calls == count and when == "before":
                die()
            act(*given)
            if self.calls == count and when == "after":
                die()

    store = DyingStore(path)
    store.load()
    restored_into(store, file)
    store.close()


if __name__ == "__main__":
    what, place, name, number, *more = sys.argv[1:]
    if what == "save":
        saving(Path(place), Path(name), int(number))
    else:
        restoring(Path(place), Path(name), int(number), more[0])
