"""What attempts left is delivered: each file to the first of its destinations that takes it, checked there, before its end is told.

ended --> saved as a parcel --> all delivered --> reported, with where each file is
                            \\--> not for now, after a few tries --> reported so, and parked until the manager says `Resume`
                            \\--> never --> reported as that
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from tercel.core.declared import Leaving
from tercel.core.faults import PASSING
from tercel.core.files import Hitch, Made, Trouble
from tercel.core.reports import Report
from tercel.core.states import Stage
from tercel.data.contract import Deliver, TransferFailed
from tercel.data.moving import Mover
from tercel.data.urls import shown
from tercel.worker.addressing import Address, Undeliverable, addresses
from tercel.worker.agent import Agent
from tercel.worker.asking import Asking
from tercel.worker.errands import Errands
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
        on_made: Callable[[Sequence[Made], Path], Awaitable[None]],
        on_moving: Callable[[int], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """`on_owed`: reports for the manager. `on_made`: files that were delivered, and where they still are. `on_moving`: an attempt
        that the manager should know of."""
        self._outgoing = outgoing
        self._agent = agent
        self._mover = mover
        self._asking = asking
        self._on_owed = on_owed
        self._on_made = on_made
        self._on_moving = on_moving
        self._parcels: dict[int, Parcel] = {}
        """By attempt, of all that are here, parked or not."""
        self._errands = Errands(on_error)

    def prepare(self) -> list[Report]:
        """Those that an earlier process had not delivered. Raises OSError."""
        parcels = self._outgoing.load()
        self._parcels = {parcel.report.attempt: parcel for parcel in parcels}
        return [parcel.report for parcel in parcels]

    def begin(self, report: Report, leavings: Sequence[Leaving], lost: Sequence[int] = ()) -> None:
        """An attempt has ended, and is the agent's to deliver. `lost`: earlier ones of its task."""
        try:
            found = addresses(report, leavings)
        except Undeliverable as error:
            self.discard([report.attempt])
            self._on_owed(self._agent.on_undelivered(report.attempt, error.hitch))
            return
        if not found:
            self._on_owed(self._agent.on_delivered(report.attempt, ()))
            return
        parcel = self._parcels[report.attempt] = Parcel(report, found, list(lost))
        self._start(parcel, fresh=True)

    def resume(self, attempts: list[int]) -> list[int]:
        """Returns those of which nothing is here any more: its disk was lost, or had no room for the parcel when it was killed."""
        for report in self._agent.parcels.resume(attempts):
            if (parcel := self._parcels.get(report.attempt)) is not None:
                self._start(parcel, fresh=False)
            elif report.files:  # they were delivered by an earlier process, which could not save where to
                self._on_owed(self._agent.on_delivered(report.attempt, report.files))
            else:
                self._agent.parcels.drop([report.attempt])
        return self._agent.unknown(attempts)

    def drop(self, attempts: list[int]) -> None:
        """Nobody wants them any more, or the manager has what they are about."""
        for attempt in attempts:
            self._errands.end(attempt)
            if self._parcels.pop(attempt, None) is not None:
                self.discard([attempt])

    def discard(self, attempts: Sequence[int]) -> None:
        """Remove what they left."""
        for attempt in attempts:
            asyncio.get_running_loop().run_in_executor(None, self._outgoing.remove, attempt)

    async def close(self) -> None:
        """What is not delivered is found by the next process."""
        await self._errands.close()

    def _start(self, parcel: Parcel, fresh: bool) -> None:
        self._errands.begin(parcel.report.attempt, self._deliver_all(parcel, fresh))

    async def _deliver_all(self, parcel: Parcel, fresh: bool) -> None:
        """It may be dropped on the way: what is here of it is not looked for again."""
        attempt = parcel.report.attempt
        moving = asyncio.get_running_loop().call_later(MOMENT_S, self._on_moving, attempt)
        try:
            if fresh:
                await self._save(parcel)
            room = asyncio.Semaphore(AT_ONCE)
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._deliver(parcel, address, again, room))
                    for address, again in _counted(parcel.addresses)
                ]
            made = tuple(task.result() for task in tasks)
            await self._on_made(made, self._outgoing.files_of(attempt))
            self._on_owed(self._agent.on_delivered(attempt, made))
        except* TransferFailed as failures:
            failed = failures.exceptions[0]
            assert isinstance(failed, TransferFailed)
            if failed.errno:
                self._on_owed(self._agent.on_spoilt(attempt, failed.note, failed.errno))
            else:
                self._on_owed(self._agent.on_undelivered(attempt, hitch_of(failed)))
        finally:
            moving.cancel()

    async def _save(self, parcel: Parcel) -> None:
        """Where there is no room for that, a worker that is killed now has to run it again: nothing worse."""
        try:
            await asyncio.to_thread(self._outgoing.save, parcel)
        except OSError as error:
            report = parcel.report
            log.warning("Cannot save where %d.%d delivers to: %s.", report.job, report.task, error)

    async def _deliver(self, parcel: Parcel, address: Address, again: int, room: asyncio.Semaphore) -> Made:
        async with room:
            for pause_s in (*PAUSES_S, None):
                try:
                    return await self._deliver_once(parcel, address, again)
                except TransferFailed as failed:
                    if pause_s is None or failed.trouble not in AGAIN or failed.not_before_s > pause_s:
                        raise
                    log.info("Delivering %s again in %g s: %s.", address.path, pause_s, failed)
                await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    async def _deliver_once(self, parcel: Parcel, address: Address, again: int) -> Made:
        """To the first that takes it; what is told is why the best did not."""
        first: TransferFailed | None = None
        report = parcel.report
        path = str(self._outgoing.files_of(report.attempt) / address.path)
        for url in address.to:
            await self._asking.turn([url])
            what = Deliver(
                path=path,
                url=url,
                tag=_tag(report, report.attempt, again),
                stale=tuple(_tag(report, attempt, again) for attempt in parcel.lost),
            )
            try:
                done = await self._mover.deliver(what, report.attempt)
            except TransferFailed as failed:
                failed.url = failed.url or shown(url)
                first = first or failed
                if failed.errno:
                    raise  # this node's own disk: no other place helps
                continue
            return Made(address.path, done.url, done.size_bytes, done.digest, address.name)
        assert first is not None
        raise first


def _counted(addresses: Sequence[Address]) -> Iterator[tuple[Address, int]]:
    """Each, and how many before it are of the same file: it may go to one place under two names, at the same time."""
    before: Counter[str] = Counter()
    for address in addresses:
        yield address, before[address.path]
        before[address.path] += 1


def _tag(report: Report, attempt: int, again: int) -> str:
    return f"{report.job}.{report.task}-{attempt:x}{f'.{again}' if again else ''}"


def hitch_of(failed: TransferFailed) -> Hitch:
    """What waits can go on later: what was left is kept."""
    kept = failed.trouble in AGAIN
    return Hitch(Stage.STAGE_OUT, failed.trouble, failed.url, failed.note, failed.not_before_s, kept=kept)
