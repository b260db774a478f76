"""A nursery of managers that kill themselves with SIGKILL at their n-th commit: PORT DATA.

Reads lines `before N`, `after N` or `never 0` and forks a manager for each; answers with its pid, and with `gone`
when it has ended. Forking saves the second that a fresh interpreter takes, for each of a hundred managers.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tercel import wiring
from tercel.manager.options import ManagerOptions
from tercel.stores.sqlite import SqliteStore

PORT, DATA = int(sys.argv[1]), Path(sys.argv[2])


def dying_store(when: str, count: int) -> type[SqliteStore]:
    class DyingStore(SqliteStore):
        commits = 0

        def commit(self) -> None:
            self.commits += 1
            if self.commits == count and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            super().commit()
            if self.commits == count and when == "after":
                os.kill(os.getpid(), signal.SIGKILL)

    return DyingStore


async def serve() -> None:
    options = ManagerOptions(data=DATA, port=PORT, heartbeat_s=1.0, grace_s=120.0)
    async with wiring.serving(options):
        await asyncio.Event().wait()


def main() -> None:
    for line in sys.stdin:
        when, count = line.split()
        pid = os.fork()
        if pid == 0:
            wiring.SqliteStore = dying_store(when, int(count))  # type: ignore[misc]
            wiring.run(serve())
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("gone", flush=True)


main()
