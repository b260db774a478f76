"""What attempts left is delivered: each file to the first of its destinations that takes it, checked there, before its end is told.

ended --> saved as a parcel --> all delivered --> reported, with where each file is
                            \\--> not for now, after a few tries --> reported so, and parked until the manager says `Resume`
                            \\--> never --> reported as that
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from tercel.core.declared import Leaving
from tercel.core.faults import PASSING
from tercel.core.files import Hitch, Made, Trouble
from tercel.core.reports import Report
from tercel.core.states import Stage
from tercel.data.contract import Deliver, TransferFailed
from tercel.data.moving import Mover
from tercel.worker.addressing import Address, Missing, addresses
from tercel.worker.agent import Agent
from tercel.worker.asking import Asking
from tercel.worker.outgoing import Outgoing, Parcel

log = logging.getLogger("tercel.worker")

PAUSES_S = (0.5, 2.0)
"""Between tries, before somebody else is asked to watch for what is broken."""
AT_ONCE = 8
"""Files of one attempt that are on their way at a time."""
MOMENT_S = 0.2
"""What takes no longer is nobody's business."""
AGAIN = PASSING | {Trouble.CORRUPT}


class Delivering:
    def __init__(
        self,
        outgoing: Outgoing,
        agent: Agent,
        mover: Mover,
        asking: Asking,
        *,
        on_owed: Callable[[list[Report]], None],
        on_moving: Callable[[int], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """`on_owed`: reports for the manager. `on_moving`: an attempt that it should know of."""
        self._outgoing = outgoing
        self._agent = agent
        self._mover = mover
        self._asking = asking
        self._on_owed = on_owed
        self._on_moving = on_moving
        self._on_error = on_error
        self._parcels: dict[int, Parcel] = {}
        """By attempt, of all that are here, parked or not."""
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def prepare(self) -> list[Report]:
        """Those that an earlier process had not delivered. Raises OSError."""
        parcels = self._outgoing.load()
        self._parcels = {parcel.report.attempt: parcel for parcel in parcels}
        return [parcel.report for parcel in parcels]

    def begin(self, report: Report, leavings: Sequence[Leaving], lost: Sequence[int] = ()) -> None:
        """An attempt has ended, and is the agent's to deliver. `lost`: earlier ones of its task."""
        try:
            found = addresses(report, leavings)
        except Missing as missing:
            self._on_owed(self._agent.on_undelivered(report.attempt, missing.hitch))
            return
        if not found:
            self._on_owed(self._agent.on_delivered(report.attempt, ()))
            return
        self._parcels[report.attempt] = Parcel(report, found, list(lost))
        self._start(report, fresh=True)

    def resume(self, attempts: list[int]) -> list[int]:
        """Returns those that are not here."""
        going, missing = self._agent.on_resume(attempts)
        for report in going:
            self._start(report, fresh=False)
        return missing

    def drop(self, attempts: list[int]) -> None:
        """Nobody wants them any more, or the manager has what they are about."""
        for attempt in attempts:
            if (task := self._tasks.pop(attempt, None)) is not None:
                task.cancel()
            if self._parcels.pop(attempt, None) is not None:
                asyncio.get_running_loop().run_in_executor(None, self._outgoing.remove, attempt)

    async def close(self) -> None:
        """What is not delivered is found by the next process."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, report: Report, fresh: bool) -> None:
        attempt = report.attempt
        task = asyncio.get_running_loop().create_task(self._deliver_all(report, fresh))
        self._tasks[attempt] = task
        task.add_done_callback(lambda done: self._done(attempt, done))

    def _done(self, attempt: int, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(attempt) is task:
            del self._tasks[attempt]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def _deliver_all(self, report: Report, fresh: bool) -> None:
        attempt = report.attempt
        moving = asyncio.get_running_loop().call_later(MOMENT_S, self._on_moving, attempt)
        try:
            if fresh:
                await self._save(report)
            room = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._deliver(report, address, room))
                    for address in self._parcels[attempt].addresses
                ]
            made = tuple(task.result() for task in tasks)
            self._on_owed(self._agent.on_delivered(attempt, made))
        except* TransferFailed as failures:
            failed = failures.exceptions[0]
            assert isinstance(failed, TransferFailed)
            self._on_owed(self._agent.on_undelivered(attempt, hitch_of(failed)))
        finally:
            moving.cancel()

    async def _save(self, report: Report) -> None:
        """Where there is no room for that, a worker that is killed now has to run it again: nothing worse."""
        try:
            await asyncio.to_thread(self._outgoing.save, self._parcels[report.attempt])
        except OSError as error:
            log.warning("Cannot save where %d.%d delivers to: %s.", report.job, report.task, error)

    async def _deliver(self, report: Report, address: Address, room: asyncio.Semaphore) -> Made:
        async with room:
            for pause_s in (*PAUSES_S, None):
                try:
                    return await self._deliver_once(report, address)
                except TransferFailed as failed:
                    if pause_s is None or failed.trouble not in AGAIN or failed.not_before_s > pause_s:
                        raise
                    log.info("Delivering %s again in %g s: %s.", address.path, pause_s, failed)
                await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    async def _deliver_once(self, report: Report, address: Address) -> Made:
        """To the first that takes it; what is told is why the best did not."""
        first: TransferFailed | None = None
        path = str(self._outgoing.files_of(report.attempt) / address.path)
        for url in address.to:
            await self._asking.turn([url])
            lost = self._parcels[report.attempt].lost
            what = Deliver(
                path=path,
                url=url,
                tag=_tag(report, report.attempt),
                stale=tuple(_tag(report, attempt) for attempt in lost),
            )
            try:
                done = await self._mover.deliver(what, report.attempt)
            except TransferFailed as failed:
                first = first or failed
                continue
            return Made(address.path, done.url, done.size_bytes, done.digest, address.name)
        assert first is not None
        raise first


def _tag(report: Report, attempt: int) -> str:
    return f"{report.job}.{report.task}-{attempt:x}"


def hitch_of(failed: TransferFailed) -> Hitch:
    """What waits can go on later: what was left is kept."""
    kept = failed.trouble in AGAIN
    return Hitch(Stage.STAGE_OUT, failed.trouble, failed.url, failed.note, failed.not_before_s, kept=kept)
