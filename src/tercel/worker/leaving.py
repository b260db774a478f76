"""How a worker leaves: drained, stopped, or because its time is up.

drain     take nothing new; finish what runs; deliver; say good-bye
stop      end what runs; deliver what can be delivered in a moment; say good-bye
in_time   warn what wants to be warned, drain, and at last stop: what was ended then is nobody's fault
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from tercel.core.reports import End, Report
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
        self._timed_out = False
        self._overdue: set[int] = set()
        """Attempts that were asked to end because there is no more time."""
        self._idle = asyncio.Event()
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
        if self._agent.idle:
            self._idle.set()
        if self._agent.draining and self._agent.idle and not self._agent.owed:
            self.settled.set()

    def told(self, reports: list[Report]) -> list[Report]:
        """What is told of attempts that ended: of those that were ended for want of time, that they were."""
        return [self._told(report) for report in reports] if self._timed_out else reports

    def _told(self, report: Report) -> Report:
        ended = report.end is End.CANCELLED and report.attempt in self._overdue
        if not ended and report.end is not End.INTERRUPTED:
            return report
        return msgspec.structs.replace(report, end=End.INTERRUPTED, code=0, note=walltime.WHY)

    # -- duties -------------------------------------------------------------------------------------------

    async def when_settled(self) -> None:
        await self.settled.wait()
        if (talk := self._talk()) is not None:
            talk.bye("its time was up" if self._timed_out else "it was drained")
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
            due = timetable.due(self._agent.lanes.warnings(), loop.time())
            if due.warn:
                self._runner.warn(due.warn)
            if due.drain and not self._agent.draining:
                log.info("This worker's time is nearly up.")
                self.drain()
            if due.stop:
                break
            await asyncio.sleep(due.pause_s)
        await self._end_all(timetable.grace_s)
        self.stop()
        await asyncio.Event().wait()

    async def _end_all(self, grace_s: float) -> None:
        """Ask what runs to end, as a cancellation does; who takes longer than that is stopped."""
        self._timed_out = True
        self._overdue = set(self._agent.lanes.launched())
        log.info("This worker's time is up: ending what runs (%d).", self._agent.running_count)
        self._runner.kill(list(self._overdue))
        self._idle.clear()
        self.look()
        try:
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        except TimeoutError:
            pass  # they are ended all the same

    async def stop_runner(self) -> None:
        """Whoever asks waits for the same stop. One who is cancelled does not end it: reports still come from it."""
        if self._runner_stop is None:
            self._agent.drain()  # or the reports of what is ended now would make room for the next
            self._runner_stop = asyncio.ensure_future(self._runner.stop())
        await asyncio.shield(self._runner_stop)


def what_waits(agent: Agent) -> str:
    return f" {len(agent.owed)} results wait to be delivered." if agent.owed else ""
