"""One connected worker: reads its frames into the machine, sends it what the effects say.

Sending is gathered: whatever was posted since the last frame goes out as one. A worker that does not take what
it is sent is not read from either, so neither side's backlog grows without bound: what can be posted is bounded by
what the worker reported and by its credit.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tercel.core.changes import OutputKept
from tercel.core.errors import PassingFault, PeerError
from tercel.core.reports import Report
from tercel.links.contract import LinkClosed, ManagerEnd
from tercel.manager import blocking, hearing, moving, sightings, values
from tercel.manager.frames import frames
from tercel.manager.looks import Looks
from tercel.wire.messages import (
    LOOK,
    SCATTERED,
    Ack,
    Book,
    Bye,
    Cached,
    Fetch,
    FromManager,
    FromWorker,
    Hello,
    Locate,
    Marked,
    Park,
    Piece,
    Ping,
    Presence,
    Probed,
    Refused,
    Removed,
    Reports,
    Returned,
    Seen,
    Segment,
    Stages,
    Started,
    TailData,
    Welcome,
)

if TYPE_CHECKING:
    from tercel.manager.service import Manager

log = logging.getLogger("tercel.manager")

HELLO_S = 10.0
MISSED_BEATS = 3
OUTBOX_MOST = 10_000
OWED_MOST = 100_000
"""Reports not yet acknowledged: beyond that the worker is not read from, whether it or the disk is slow."""

PIECES_MOST = 16
"""Of values, on their way to it: up to 4 MiB. It is not read from until they are gone."""


class Conversation:
    def __init__(self, manager: "Manager", end: ManagerEnd) -> None:
        self.worker = ""
        self.hello = -1
        """The number of its Hello, once it is said."""
        self.welcomed = False
        self.said_bye = False
        self.takes_scattered = False
        """Offers of tasks that are no neighbours."""
        self.briefed: set[int] = set()
        """Jobs whose brief was sent on this link."""
        self._values: dict[int, set[str]] = {}
        """By job: the keys in what was offered on this link."""
        self.looks = Looks(self.post)
        self._manager = manager
        self._end = end
        self._outbox: list[FromManager] = []
        self._owed = 0
        """Acknowledgements not yet sent."""
        self._pieces = 0
        """Pieces of values not yet sent."""
        self._posted = asyncio.Event()
        self._emptied = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._parting = ""
        self._clock = asyncio.get_running_loop().time
        self._listening_since: float | None = None
        """None while nothing is expected: what was read is being worked on."""
        self._sending_since: float | None = None
        self._sent_at = self._clock()

    # -- what the manager calls ---------------------------------------------------------------------------

    def post(self, message: FromManager) -> None:
        """Before its Welcome nothing is sent: what was decided for an earlier link, this link's Hello has settled."""
        if type(message) is Welcome:
            self.welcomed = True
        elif not self.welcomed:
            return
        self._outbox.append(message)
        self._posted.set()

    def allow(self, job: int, keys: Iterable[str]) -> None:
        """Values that the worker may ask for until the job is forgotten."""
        self._values.setdefault(job, set()).update(keys)

    def forget(self, job: int) -> None:
        self.briefed.discard(job)
        self._values.pop(job, None)

    def may_fetch(self, key: str) -> bool:
        return bool(key) and any(key in keys for keys in self._values.values())

    def abandon(self, why: str) -> None:
        """Close the link; the machine is not told, since the worker is (or was) elsewhere."""
        self._parting = why
        if self._main is not None:
            self._main.cancel()

    # -- the conversation ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """From Hello until the link is closed."""
        self._main = asyncio.current_task()
        try:
            await self._converse()
        except asyncio.CancelledError:
            if not self._parting:
                raise
        finally:
            self.looks.close()
            if self.worker:
                log.info("worker %s is gone: %s", self.worker, self._parting or "its link was cut")
                self._manager.parted(self)
            await self._end.close()

    async def _converse(self) -> None:
        try:
            async with asyncio.timeout(HELLO_S):
                first = await self._end.receive()
            hello = first[0]
            if not isinstance(hello, Hello):
                raise PeerError(f"a worker begins with Hello, not {type(hello).__name__}")
            if await self._admit(hello):
                async with asyncio.TaskGroup() as group:
                    others = [group.create_task(self._send_all()), group.create_task(self._watch())]
                    await self._read_all(first[1:])
                    for other in others:
                        other.cancel()
        except* TimeoutError:
            self._parting = "it did not say Hello"
        except* PeerError as faults:
            self._parting = "; ".join(str(fault) for fault in faults.exceptions)
            if self.worker:
                self._manager.machine.workers[self.worker].note = f"its link was cut: {self._parting}"
        except* (
            PassingFault
        ) as faults:  # the link, or the disk: what was not taken is said again on the next one
            self._parting = "; ".join(str(fault) for fault in faults.exceptions)

    async def _admit(self, hello: Hello) -> bool:
        machine = self._manager.machine
        reason = hearing.refusal(hello, known=hello.worker in machine.workers or hello.worker in machine.rows)
        if reason:
            await self._end.send([Refused(reason)])
            return False
        self.worker = hello.worker
        self.looks.understood = LOOK in hello.knows
        self.takes_scattered = SCATTERED in hello.knows
        self._manager.telling.joined(self)
        now = self._manager.clock()
        self.hello = machine.on_hello(hello.worker, hello.instance, hello.info, hello.held, now)
        self._manager.wake()
        log.info("worker %s joined from %s", hello.worker, hello.info.node)
        return True

    async def _read_all(self, messages: list[FromWorker]) -> None:
        while True:
            await self._take(messages)
            if self.said_bye:
                return
            while len(self._outbox) > OUTBOX_MOST or self._owed > OWED_MOST:
                await self._some_sent()
            self._listening_since = self._clock()
            messages = await self._end.receive()
            self._listening_since = None

    async def _take(self, messages: list[FromWorker]) -> None:
        manager, machine = self._manager, self._manager.machine
        now = manager.clock()
        segments: list[OutputKept] = []
        fetches: list[Fetch] = []
        for message in messages:
            match message:
                case Reports(reports):
                    if segments:
                        await self._keep(segments)
                        segments = []
                    await self._take_reports(reports, now)
                case Stages(bringing, delivering):
                    machine.on_stages(self.worker, bringing, delivering, now)
                case Locate() | Book() | Marked() | Removed():
                    moving.take(manager, self, message, now)
                case Started(attempts):
                    machine.on_started(self.worker, attempts, now)
                case Presence(state, capacity, facts):
                    hearing.check_facts(facts)
                    machine.on_presence(self.worker, state, hearing.capacity(capacity), now, facts)
                case Cached(kept, gone):
                    hearing.check_cached(kept, gone, machine.workers[self.worker].cached)
                    machine.on_cached(self.worker, kept, gone)
                case Returned(attempts):
                    machine.on_returned(self.worker, attempts)
                case Probed(number, verdict):
                    if hearing.is_awaited(self.worker, machine.asked_of(number)):
                        machine.on_tested(number, hearing.verdict(verdict), now)
                case Seen(number, found):
                    if self.looks.awaits(message):
                        self.looks.answered(number, sightings.seen(found))
                case Segment(attempt, stream, number, data):
                    hearing.check_segment(message)
                    if machine.knows(self.worker, attempt):
                        segments.append(OutputKept(attempt, stream, number, data))
                case TailData(attempt, stream, offset, data):
                    hearing.check_tail(message)
                    if attempt in machine.workers[self.worker].flights:
                        manager.hub.tailed(attempt, stream, offset, data)
                case Fetch():
                    fetches.append(message)
                case Bye():
                    self.said_bye, self._parting = True, "it said good-bye"
                case Hello():
                    raise PeerError("a second Hello on one link")
        manager.wake()
        if segments:
            await self._keep(segments)
        while fetches:
            while self._pieces >= PIECES_MOST:
                await self._some_sent()
            room = PIECES_MOST - self._pieces
            asked, fetches = fetches[:room], fetches[room:]
            self._pieces += len(asked)
            for piece in await values.answer(manager, self, asked):
                self.post(piece)
        await manager.not_swamped()

    async def _take_reports(self, reports: list[Report], now: float) -> None:
        manager, machine = self._manager, self._manager.machine
        self._owed += len(reports)
        reports, corrected = hearing.believed(reports, now)
        if corrected:
            machine.workers[self.worker].note = "reported numbers that cannot be"
        have_files = any(report.files for report in reports)
        if have_files:
            reports = manager.declarations.believed(reports)
        known = await blocking.known(manager.examiners, machine, self.worker, reports)
        if have_files:
            manager.catalogue.foresee(reports)
        machine.on_reports(self.worker, reports, now, known)
        if have_files:
            manager.catalogue.forget_foreseen()
        if reports and not machine.workers[self.worker].flights:
            manager.ran_out(self.worker)

    async def _some_sent(self) -> None:
        self._emptied.clear()
        await self._emptied.wait()

    async def _keep(self, segments: list[OutputKept]) -> None:
        """Outputs go to disk before more is read: a flood of output waits in its own link."""
        await self._manager.save(list(segments))

    async def _send_all(self) -> None:
        while True:
            await self._posted.wait()
            self._posted.clear()
            messages, self._outbox = self._outbox, []
            for frame in frames(messages):
                self._sending_since = self._clock()
                await self._end.send(frame)
                self._sending_since = None
            self._sent_at = self._clock()
            self._owed -= sum(len(m.attempts) for m in messages if isinstance(m, Ack | Park))
            self._pieces -= sum(isinstance(message, Piece) for message in messages)
            self._emptied.set()

    async def _watch(self) -> None:
        """Beats; and ends the link when the worker was silent, or took nothing, for three beats.

        One timer for the link: arming one for every frame would cost more than the frame.
        """
        beat_s = self._manager.options.heartbeat_s
        while True:
            now = self._clock()
            silent_since = min(self._listening_since or now, self._sending_since or now)
            gives_up_at = silent_since + beat_s * MISSED_BEATS
            if now >= gives_up_at:
                raise LinkClosed(
                    "it was silent for too long" if self._sending_since is None else "it took nothing"
                )
            beat_at = self._sent_at + beat_s
            if now >= beat_at:
                self.post(Ping())
                beat_at = now + beat_s
            await asyncio.sleep(min(beat_at, gives_up_at) - now)


async def converse(manager: "Manager", end: ManagerEnd) -> None:
    """Serve one link to its end, whatever comes."""
    try:
        await Conversation(manager, end).run()
    except PassingFault as fault:
        log.info("a worker's link ended: %s", fault)
