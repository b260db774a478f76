"""The manager that a `tercel run` uses: the one that is named or runs here, else one in this process.

    first run:   find -> host ------------------------> its own job ends -> stays for others -> leaves
    second run:          find (the first one's) -> ... the first is gone all the same -> hosts in its place

Several runs thus share one manager, which stays until the jobs of all are done. Should it go before (killed, told to
leave), whoever still waits for a job takes its place.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from tercel.cli.lazy import late
from tercel.cli.screen import Screen
from tercel.cli.services import Signals, first_of
from tercel.cli.waiting import STALLED_S
from tercel.cli.words import count
from tercel.core.errors import Unreachable, UsageError
from tercel.links.access import current_access
from tercel.sdk.client import AsyncClient

CHANGING_S = 10.0
"""How long the directory may be another manager's that does not answer: one that starts, or one that ends."""
READING_S = 10.0
"""How long those who were served by the manager in this process may take to read how their jobs ended."""
MOST_NAMED = 5
"""Jobs, in a note."""


class Embedded(Protocol):
    """See tercel.cli.hosting, which is loaded only where no manager runs."""

    url: str
    token: str
    resumed_jobs: list[int]
    resumed_tasks: int

    async def wait_idle(self) -> None: ...
    async def wait_stuck(self, patience_s: float) -> None: ...
    async def wait_unused(self, patience_s: float) -> None: ...


def named_server(screen: Screen) -> bool:
    return bool(screen.server or os.environ.get("TERCEL_SERVER"))


@asynccontextmanager
async def some_manager(screen: Screen) -> AsyncIterator["Served"]:
    served = Served(screen)
    try:
        await served.find()
        yield served
    finally:
        await served.leave()


class Served:
    """Which manager serves this run."""

    client: AsyncClient

    def __init__(self, screen: Screen) -> None:
        self.embedded: Embedded | None = None
        """The manager in this process, if it is that."""
        self._screen = screen
        self._hosting: asyncio.Task[None] | None = None
        """Holds the manager in this process: it must be left by the task that entered it."""
        self._leaving = asyncio.Event()
        self._away = asyncio.Event()
        self._of_a_run = False
        """Whether the manager is another run's, as far as is known, and ends with that."""

    async def find(self) -> None:
        """Sets `client`. Raises Unreachable if the named manager does not answer."""
        until = time.monotonic() + CHANGING_S
        while not await self._found():
            try:
                self.embedded = await self._host()
            except UsageError:
                # Most likely another `tercel run` has just started one (use that) or ends its own (take over).
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)
            else:
                self.client = AsyncClient(self.embedded.url, self.embedded.token)
                _say_what_comes_first(self._screen, self.embedded)
                return

    async def _found(self) -> bool:
        self.client = AsyncClient(self._screen.server)
        try:
            await self.client.health()
        except Unreachable:
            await self.client.aclose()
            if named_server(self._screen):
                raise
            return False
        self._look()
        return True

    async def _host(self) -> Embedded:
        """A manager in this process. Raises UsageError if its directory cannot be had."""
        ready: asyncio.Future[Embedded] = asyncio.get_running_loop().create_future()
        self._hosting = asyncio.create_task(self._hold(ready))
        either: list[asyncio.Future[Any]] = [ready, self._hosting]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            failed, self._hosting = self._hosting, None
            failed.result()
        return ready.result()

    async def _hold(self, ready: "asyncio.Future[Embedded]") -> None:
        make: Callable[[], AbstractAsyncContextManager[Embedded]]
        make = late("tercel.cli.hosting", "embedded_manager")
        async with make() as embedded:
            ready.set_result(embedded)
            await self._leaving.wait()

    async def leave(self) -> None:
        """Raises what went wrong with the manager in this process."""
        await self.client.aclose()
        self._leaving.set()
        if self._hosting is not None:
            await asyncio.wait([self._hosting])
            fault = self._hosting.exception()
            if fault is not None and self.embedded is not None:
                raise fault  # one that did not become ready before the run was over was not needed

    # -- if it goes ---------------------------------------------------------------------------------------

    def is_away(self) -> None:
        """To be told, again and again, while the manager does not answer."""
        self._away.set()

    async def mind(self) -> None:
        """Take the place of another run's manager that is gone. Ends only by a fault of the one in this process."""
        while self._hosting is None:
            await self._away.wait()
            self._away.clear()
            self._look()
            if self._of_a_run:
                await self._take_its_place()
        await asyncio.shield(self._hosting)

    def _look(self) -> None:
        """Whose it is, by the access file; a manager that ended in peace has removed that."""
        access = None if named_server(self._screen) else current_access()
        if access is not None:
            self._of_a_run = access.embedded

    async def _take_its_place(self) -> None:
        try:
            # The client looks the new address up by itself, as after any restart.
            self.embedded = await self._host()
        except UsageError:
            return  # it is there after all, or somebody was faster
        self._screen.note("that manager went with another `tercel run`: this one goes on in its place")

    # -- before leaving -----------------------------------------------------------------------------------

    async def stay_for_others(self, signals: Signals) -> None:
        """The manager in this process may have jobs of other commands and of earlier runs: it ends when they are done.

        What this machine cannot run (a leftover that needs more memory, or a directory that is gone) is not waited for:
        it would keep every later `run` from ending.
        """
        if (embedded := self.embedded) is None:
            return
        signals.forget()
        known = -1
        # Again if whoever was connected has handed in another one.
        while not signals.arrived and (newest := await self._newest_job()) > known:
            known = newest
            others = (await self.client.status()).jobs
            await self.client.aclose()  # so that whoever is connected now is somebody else
            if others:
                self._screen.warn(
                    f"{count(others, 'other job')} still under way in this manager: staying until done "
                    "(Ctrl-C leaves; they go on with the next one)"
                )
                ended = await first_of(embedded.wait_idle(), embedded.wait_stuck(STALLED_S), signals.wait(1))
                if ended == 1:
                    await self._say_what_is_stuck()
            await first_of(embedded.wait_unused(READING_S), signals.wait(1))

    async def _newest_job(self) -> int:
        page = await self.client.jobs(limit=1, all=True)
        return page.jobs[0].id if page.jobs else 0

    async def _say_what_is_stuck(self) -> None:
        page = await self.client.jobs(limit=MOST_NAMED)
        for job in page.jobs:
            summary = (await self.client.explain(str(job.id))).summary
            self._screen.warn(f"job {job.id} is left: {summary}")
        ids = " ".join(str(job.id) for job in page.jobs)
        self._screen.note(
            f"with `tercel up` running, `tercel cancel {'all' if page.more else ids}` gives up on that"
        )
        await self.client.aclose()


def _say_what_comes_first(screen: Screen, embedded: Embedded) -> None:
    if embedded.resumed_tasks:
        jobs = ", ".join(map(str, embedded.resumed_jobs[:MOST_NAMED]))
        more = ", …" if len(embedded.resumed_jobs) > MOST_NAMED else ""
        screen.note(
            f"{count(embedded.resumed_tasks, 'unfinished task')} of earlier jobs ({jobs}{more}) come first; "
            "to be rid of them: tercel cancel, from another terminal"
        )
