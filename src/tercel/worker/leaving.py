"""How a worker leaves: drained, stopped, or because its time is up.

drain     take nothing new; finish what runs; deliver; say good-bye
stop      end what runs; deliver what can be delivered in a moment; say good-bye
in_time   warn what wants to be warned, drain, and at last stop: what was ended then is nobody's fault
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from tercel.core.model import End, Report
from tercel.runners.contract import Runner
from tercel.worker import walltime
from tercel.worker.agent import Agent
from tercel.worker.conversation import Conversation
from tercel.worker.walltime import Timetable

log = logging.getLogger("tercel.worker")

DELIVER_LIMIT_S = 5.0
"""How long a worker that was told to stop waits for its last reports to be acknowledged."""
FAREWELL_LIMIT_S = 2.0


class Leaving:
    def __init__(
        self,
        agent: Agent,
        runner: Runner,
        *,
        talk: Callable[[], Conversation | None],
        give_back: Callable[[list[int]], None],
    ) -> None:
        """`talk` is the conversation while there is a link; `give_back` tells the manager what is not kept."""
        self._agent = agent
        self._runner = runner
        self._talk = talk
        self._give_back = give_back
        self._why = ""
        """What those that are ended by a stop are told, if not simply that."""
        self._runner_stop: asyncio.Future[None] | None = None
        self._stop_asked = asyncio.Event()
        self.settled = asyncio.Event()
        """Draining, and nothing is held or owed any more."""

    def drain(self) -> None:
        if not self._agent.draining:
            log.info("Draining: finishing what runs (%d), taking nothing new.", self._agent.running_count)
            self._give_back(self._agent.drain())
            if (talk := self._talk()) is not None:
                talk.wake()
            self.look()

    def stop(self) -> None:
        self._stop_asked.set()

    def look(self) -> None:
        """Whether it may go."""
        if self._agent.draining and self._agent.idle and not self._agent.owed:
            self.settled.set()

    def told(self, reports: list[Report]) -> list[Report]:
        """What is told of attempts that ended, if they were ended for want of time."""
        if not self._why:
            return reports
        return [
            msgspec.structs.replace(report, note=self._why) if report.end is End.INTERRUPTED else report
            for report in reports
        ]

    # -- duties -------------------------------------------------------------------------------------------

    async def when_settled(self) -> None:
        await self.settled.wait()
        if (talk := self._talk()) is not None:
            talk.bye("its time was up" if self._why else "it was drained")
            await asyncio.sleep(FAREWELL_LIMIT_S)  # the link's end comes before, unless the manager hangs

    async def when_stopped(self) -> None:
        await self._stop_asked.wait()
        log.info("Stopping: ending what runs (%d).", self._agent.running_count)
        self._give_back(self._agent.drain())
        await self.stop_runner()
        self.look()
        try:
            async with asyncio.timeout(DELIVER_LIMIT_S if self._talk() is not None else 0):
                await self.settled.wait()
            await asyncio.sleep(FAREWELL_LIMIT_S)
        except TimeoutError:
            log.warning("Leaving without an acknowledgement.%s", what_waits(self._agent))

    async def in_time(self, timetable: Timetable) -> None:
        """Never returns: `when_stopped` does, or `when_settled`."""
        loop = asyncio.get_running_loop()
        while True:
            due = timetable.due(self._agent.warnings(), loop.time())
            if due.warn:
                self._runner.warn(due.warn)
            if due.drain and not self._agent.draining:
                log.info("This worker's time is nearly up.")
                self.drain()
            if due.stop:
                break
            await asyncio.sleep(due.pause_s)
        self._why = walltime.WHY
        self.stop()
        await asyncio.Event().wait()

    async def stop_runner(self) -> None:
        """Whoever asks waits for the same stop. One who is cancelled does not end it: reports still come from it."""
        if self._runner_stop is None:
            self._agent.drain()  # or the reports of what is ended now would make room for the next
            self._runner_stop = asyncio.ensure_future(self._runner.stop())
        await asyncio.shield(self._runner_stop)


def what_waits(agent: Agent) -> str:
    return f" {len(agent.owed)} results wait to be delivered." if agent.owed else ""
