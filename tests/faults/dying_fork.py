"""A manager that kills itself with SIGKILL as it puts copies in: PORT DATA WHEN COUNT.

WHEN is before or after; COUNT, at which staging or adopting; 0: never. Every part is staged by itself, so that there are many.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tercel import wiring
from tercel.manager import restoring
from tercel.manager.options import ManagerOptions
from tercel.stores.sqlite import SqliteStore

PORT, DATA, WHEN, COUNT = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])


class DyingStore(SqliteStore):
    calls = 0

    def stage(self, *given: Any) -> None:
        self._dying(super().stage, *given)

    def adopt(self, *given: Any) -> None:
        self._dying(super().adopt, *given)

    def _dying(self, act: Callable[..., None], *given: Any) -> None:
        self.calls += 1
        if self.calls == COUNT and WHEN == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        act(*given)
        if self.calls == COUNT and WHEN == "after":
            os.kill(os.getpid(), signal.SIGKILL)


async def serve() -> None:
    async with wiring.serving(ManagerOptions(data=DATA, port=PORT)):
        await asyncio.Event().wait()


restoring._weight = lambda _: 1.0
wiring.SqliteStore = DyingStore  # type: ignore[misc]
wiring.run(serve())
