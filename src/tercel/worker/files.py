"""A worker's files: what its tasks read is brought, what they left is delivered. Between the agent and those who do it.

offered --> bringing --> launched --> ended --> delivering --> reported --> acknowledged: nothing of it is left here
"""

from collections.abc import Callable, Sequence

from tercel.core.errors import UsageError
from tercel.core.files import Hitch, Trouble
from tercel.core.presence import WorkerInfo
from tercel.core.reports import Report
from tercel.core.states import Stage
from tercel.data.cache import Cache
from tercel.data.moving import Mover
from tercel.wire.messages import (
    Booked,
    FromManager,
    FromWorker,
    Located,
    Park,
    Resume,
    Returned,
    Stages,
    Undo,
)
from tercel.worker.agent import Agent
from tercel.worker.asking import Asking
from tercel.worker.bringing import Bringing
from tercel.worker.delivering import Delivering
from tercel.worker.options import WorkerOptions
from tercel.worker.outgoing import Outgoing

OUTGOING = "outgoing"
CACHE = "cache"

Way = Callable[[], tuple[str, str]]
"""Where the manager is, and a token for it."""


class Files:
    def __init__(
        self,
        options: WorkerOptions,
        info: WorkerInfo,
        instance: str,
        agent: Agent,
        way: Way | None,
        *,
        say: Callable[[FromWorker], None],
        on_owed: Callable[[list[Report]], None],
        on_brought: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """`instance`: what no other process of this node calls itself."""
        self._agent = agent
        self._say = say
        self._on_owed = on_owed
        self._mover = Mover(manager=way)
        self._asking = Asking(say)
        self._bringing = Bringing(
            Cache(options.cache_dir or options.dir / CACHE, options.cache_bytes, instance),
            agent,
            self._mover,
            self._asking,
            info.node,
            say=say,
            on_owed=on_owed,
            on_brought=on_brought,
            on_moving=lambda attempt: say(Stages([attempt], [])),
            on_error=on_error,
        )
        self._delivering = Delivering(
            Outgoing(options.dir / OUTGOING),
            agent,
            self._mover,
            self._asking,
            on_owed=on_owed,
            on_made=self._bringing.keep,
            on_moving=lambda attempt: say(Stages([], [attempt])),
            on_error=on_error,
        )

    def prepare(self) -> list[Report]:
        """Of attempts whose files an earlier process had not delivered. Raises OSError."""
        return self._delivering.prepare()

    def linked(self, throttled: bool) -> None:
        self._asking.throttled = throttled
        self._asking.ask_again()

    def take(self, message: FromManager) -> None:
        match message:
            case Located() | Booked():
                self._asking.on_answer(message)
            case Park(attempts):
                self._agent.on_park(attempts)
            case Resume(attempts):
                if gone := self._delivering.resume(attempts):
                    self._say(Returned(gone))  # or it would be waited for as long as this worker is there
            case Undo(job, task, urls, lost):
                self._agent.on_undo(job, task, urls, lost)

    def look(self) -> None:
        """Begin with what is newly wanted, and with what is newly left; let go of what no longer is wanted."""
        self._bringing.look()
        for report, held in self._agent.take_left():
            try:
                leavings = held.job.leavings(report.task, held.line)
            except UsageError as error:
                self._delivering.discard([report.attempt])
                hitch = Hitch(Stage.STAGE_OUT, Trouble.REFUSED, "", str(error))
                self._on_owed(self._agent.on_undelivered(report.attempt, hitch))
                continue
            self._delivering.begin(report, leavings, held.lost)
        if undelivered := self._agent.take_undelivered():
            self._delivering.discard(undelivered)

    def cache_news(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Names of files that came into the cache, with their sizes, and those that went."""
        return self._bringing.news()

    def cached(self) -> list[tuple[str, int]]:
        """All of them, for a manager that knows of none."""
        return self._bringing.kept()

    def settled(self, attempts: Sequence[int]) -> None:
        """The manager has what it needs of these; what is parked stays."""
        parcels = self._agent.parcels
        self._delivering.drop([attempt for attempt in attempts if attempt not in parcels])

    def drop(self, attempts: list[int], *, tell: bool) -> list[int]:
        """They are not wanted any more. Returns those that nothing more is heard of: they were parked, or nobody is to be told."""
        gone, owed = self._agent.drop_parcels(attempts, tell=tell)
        self._delivering.drop(gone)
        if owed:
            self._on_owed(owed)
        return [attempt for attempt in gone if attempt not in self._agent.owed]

    async def close(self) -> None:
        try:
            await self._delivering.close()
            await self._bringing.close()
        finally:
            await self._mover.close()
