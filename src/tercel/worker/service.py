"""The worker's loop: link <-> agent <-> runner.

    run       claim the directory -> start the runner -> stay linked until drained, stopped or refused
    linked    every message moves the agent; then what can be launched is launched
    unlinked  the runner goes on, reports gather in the spool, dialling is tried again with jittered pauses

Nothing is done per task but the agent's bookkeeping: one spool record and one frame serve a whole batch.

Who decides when it ends: the manager (Refused, Drain), the user (`drain`, `stop`), or time
(`leave_when_unreachable_s`). A token that is not accepted ends a worker that was never welcomed. One that was
welcomed before goes on and asks again, slowly: tokens may be put right at the manager, and hundreds of workers
need not be started anew for that. An error nobody foresaw ends `run` after the runner was stopped.
"""

import asyncio
import logging
import random

from tercel.core.errors import Forbidden, PassingFault, PeerError, TercelError
from tercel.core.model import Report
from tercel.core.presence import WorkerState
from tercel.links.contract import Dialer
from tercel.runners.contract import Runner
from tercel.wire.messages import (
    PROTOCOL,
    Ack,
    Brief,
    Cancel,
    Drain,
    Fetch,
    Forget,
    FromManager,
    Hello,
    Offer,
    Piece,
    Ping,
    Presence,
    Refused,
    Tail,
    TailData,
    TakeBack,
    Welcome,
)
from tercel.worker import node
from tercel.worker.agent import Agent
from tercel.worker.conversation import Conversation, first_to_end
from tercel.worker.fetching import StageIn
from tercel.worker.options import WorkerOptions
from tercel.worker.redial import Redial
from tercel.worker.spool import Home, unusable

log = logging.getLogger("tercel.worker")

DELIVER_LIMIT_S = 5.0
"""How long a worker that was told to stop waits for its last reports to be acknowledged."""
FAREWELL_LIMIT_S = 2.0


class Worker:
    def __init__(self, options: WorkerOptions, dialer: Dialer, runner: Runner, *, rng: random.Random) -> None:
        self._options = options
        self._dialer = dialer
        self._runner = runner
        self._rng = rng
        self._info = node.describe(options)
        self._agent = Agent(self._info.capacity)
        self._stage_in = StageIn(options.dir, self._info.node, self._agent, self._owe)
        self._home = Home(options.dir, self._info.node, rng)
        self._instance = f"{rng.getrandbits(64):016x}"
        self._talk: Conversation | None = None
        """While there is a link, from its Hello on."""
        self._followed: set[int] = set()
        self._welcomed = False
        self._joined = False
        """Whether the manager welcomed it on this link, or the last one."""
        self._joined_at = 0.0
        self._clogged = False
        self._runner_stop: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._failed = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._settled = asyncio.Event()
        """Draining, and nothing is held or owed any more."""

    @property
    def name(self) -> str:
        """Its lasting name; empty until it runs."""
        return self._home.worker

    # -- what its owner calls -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until drained or stopped. Raises UsageError (refused), Forbidden or Unreachable."""
        with self._home:
            try:
                await self._prepare()
            except OSError as error:
                raise unusable(self._options.dir, error) from error
            try:
                await first_to_end(
                    self._stay_linked(),
                    self._leave_when_settled(),
                    self._leave_when_stopped(),
                    self._failed_in_a_callback(),
                )
            finally:
                await self._stop_runner()
            if self._failure is not None:
                raise self._failure  # while the runner was stopping

    async def _prepare(self) -> None:
        """Take over what an earlier process left."""
        self._stage_in.prepare()
        self._agent.restore(self._home.spool.load())
        if self._agent.owed:
            log.info("Found %d results of an earlier run to deliver.", len(self._agent.owed))
        await self._runner.start(self)
        if stale := self._runner.kept() - self._agent.owed.keys():
            self._runner.forget(list(stale))  # acknowledged, but killed before they were removed

    def drain(self) -> None:
        """Give back what has not started, finish what runs, deliver, leave."""
        if not self._agent.draining:
            log.info("Draining: finishing what runs (%d), taking nothing new.", self._agent.running_count)
            self._give_back(self._agent.drain())
            if self._talk is not None:
                self._talk.wake()
            self._see_whether_settled()

    def stop(self) -> None:
        """End what runs at once, deliver what can be delivered in a moment, leave."""
        self._stop_asked.set()

    # -- runners.contract.Listener ------------------------------------------------------------------------

    def started(self, attempts: list[int]) -> None:
        try:
            news = self._agent.on_started(attempts)
            if news and self._talk is not None:
                self._talk.started(news)
            if stuck := self._agent.stuck(attempts):
                self._runner.withdraw(stuck)
        except Exception as error:
            self._fail(error)

    def ended(self, reports: list[Report]) -> None:
        try:
            owed = self._agent.on_ended(reports)
            if owed:
                self._owe(owed)
            if len(owed) < len(reports):
                wanted = {report.attempt for report in owed}
                self._runner.forget([r.attempt for r in reports if r.attempt not in wanted])
            if self._followed:
                self._followed.difference_update([report.attempt for report in reports])
            self._launch()
            self._see_whether_settled()
        except Exception as error:
            self._fail(error)

    def _owe(self, reports: list[Report]) -> None:
        self._home.spool.append(reports)
        if self._talk is not None:
            self._talk.reports(reports)

    def tail(self, attempt: int, stream: str, offset: int, data: bytes) -> None:
        if self._talk is not None:
            self._talk.tail(TailData(attempt, stream, offset, data))

    def _fail(self, error: Exception) -> None:
        """The runner that called must not suffer for it, nor may it be swallowed: `run` raises it."""
        if self._failure is not None:
            log.error("A further error after the one that ends this worker.", exc_info=error)
            return
        self._failure = error
        self._failed.set()

    async def _failed_in_a_callback(self) -> None:
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    # -- staying linked -----------------------------------------------------------------------------------

    async def _stay_linked(self) -> None:
        """Returns when the worker has said good-bye; raises if dialling again would be in vain."""
        loop = asyncio.get_running_loop()
        redial = Redial(self._options, self._rng, loop.time())
        while True:
            self._joined = False
            try:
                return await self._one_link()
            except (PassingFault, PeerError, Forbidden) as error:
                if isinstance(error, Forbidden) and not self._welcomed:
                    raise
                trouble: TercelError = error
            if self._settled.is_set():
                return None
            if self._joined:
                redial.lost(self._joined_at, loop.time())
            pause_s = redial.pause_s(trouble, loop.time())
            what = "Lost the link to the manager" if self._joined else "Cannot reach the manager"
            log.warning("%s: %s. Trying again in %.1f s.%s", what, trouble, pause_s, self._what_waits())
            await asyncio.sleep(pause_s)

    async def _one_link(self) -> None:
        """Returns after Bye; otherwise raises why it ended."""
        link = await self._dialer.dial()
        talk = Conversation(
            link, read_segments=self._runner.segments, presence=self._presence, take=self._take
        )
        try:
            # From here on whatever happens is either in Hello or said after it.
            self._talk = talk
            hello = Hello(PROTOCOL, self.name, self._instance, self._info, self._agent.held())
            self._on_welcome(await talk.greet(hello))
            await talk.run(list(self._agent.owed.values()))
        finally:
            self._talk = None
            for attempt in self._followed:
                self._runner.follow(attempt, False)
            self._followed.clear()
            await link.close()

    def _what_waits(self) -> str:
        return f" {len(self._agent.owed)} results wait to be delivered." if self._agent.owed else ""

    # -- leaving ------------------------------------------------------------------------------------------

    def _see_whether_settled(self) -> None:
        if self._agent.draining and self._agent.idle and not self._agent.owed:
            self._settled.set()

    async def _leave_when_settled(self) -> None:
        await self._settled.wait()
        if self._talk is not None:
            self._talk.bye("it was drained")
            await asyncio.sleep(FAREWELL_LIMIT_S)  # the link's end comes before, unless the manager hangs

    async def _leave_when_stopped(self) -> None:
        await self._stop_asked.wait()
        log.info("Stopping: ending what runs (%d).", self._agent.running_count)
        self._give_back(self._agent.drain())
        await self._stop_runner()
        self._see_whether_settled()
        try:
            async with asyncio.timeout(DELIVER_LIMIT_S if self._talk is not None else 0):
                await self._settled.wait()
            await asyncio.sleep(FAREWELL_LIMIT_S)
        except TimeoutError:
            log.warning("Leaving without an acknowledgement.%s", self._what_waits())

    async def _stop_runner(self) -> None:
        """Whoever asks waits for the same stop. One who is cancelled does not end it: reports still come from it."""
        if self._runner_stop is None:
            self._agent.drain()  # or the reports of what is ended now would make room for the next
            self._runner_stop = asyncio.ensure_future(self._runner.stop())
        await asyncio.shield(self._runner_stop)

    # -- from the manager ---------------------------------------------------------------------------------

    def _on_welcome(self, welcome: Welcome) -> None:
        kill = self._agent.on_welcome(welcome.drop)
        if kill:
            self._runner.kill(kill)
        if welcome.drop:
            killed = set(kill)
            self._forget([attempt for attempt in welcome.drop if attempt not in killed])
        self._fetch(self._stage_in.asks_again())
        self._launch()
        self._welcomed = self._joined = True
        self._joined_at = asyncio.get_running_loop().time()
        capacity = self._info.capacity
        log.info(
            "Joined the manager as %s with %g cpus and %.1f GiB of memory.%s",
            self.name,
            capacity.millicpus / 1000,
            capacity.mem_bytes / 2**30,
            self._what_waits(),
        )

    def _take(self, messages: list[FromManager]) -> None:
        for message in messages:
            match message:
                case Offer():
                    self._give_back(self._agent.on_offer(message))
                case Ack(attempts):
                    self._agent.on_ack(attempts)
                    self._forget(attempts)
                case Brief():
                    self._agent.on_brief(message)
                case Forget(job):
                    self._agent.on_forget(job)
                case TakeBack(attempts):
                    self._give_back(self._agent.on_take_back(attempts))
                case Cancel(attempts):
                    self._cancel(attempts)
                case Tail(attempt, on):
                    self._follow(attempt, on)
                case Piece():
                    self._fetch(self._stage_in.on_piece(message))
                case Drain():
                    self.drain()
                case Ping():
                    pass
                case Welcome() | Refused():
                    raise PeerError(f"the manager sent {type(message).__name__} in the middle of a link")
        self._launch()
        self._see_whether_settled()

    def _give_back(self, attempts: list[int]) -> None:
        # Without a link there is nobody to tell: the next Hello will not name them.
        if attempts and self._talk is not None:
            self._talk.returned(attempts)

    def _cancel(self, attempts: list[int]) -> None:
        kill, unstarted = self._agent.on_cancel(attempts)
        if kill:
            self._runner.kill(kill)
        self._give_back(unstarted)

    def _forget(self, attempts: list[int]) -> None:
        self._home.spool.acknowledge(attempts, self._agent.owed.values())
        self._runner.forget(attempts)

    def _follow(self, attempt: int, on: bool) -> None:
        if on and self._agent.in_lane(attempt):
            self._followed.add(attempt)
            self._runner.follow(attempt, True)
        elif not on and attempt in self._followed:
            self._followed.discard(attempt)
            self._runner.follow(attempt, False)

    # -- what it does by itself ---------------------------------------------------------------------------

    def _fetch(self, fetches: list[Fetch]) -> None:
        # Without a link there is nobody to ask: the next one is asked for all that has not come.
        if fetches and self._talk is not None:
            self._talk.fetch(fetches)

    def _launch(self) -> None:
        self._fetch(self._stage_in.asks())
        launches = self._agent.launches()
        if launches:
            self._runner.launch(launches)
        if self._agent.clogged != self._clogged:
            self._clogged = self._agent.clogged
            if self._clogged:
                log.warning("Starting nothing until the manager acknowledges results.%s", self._what_waits())

    def _presence(self) -> Presence:
        if self._agent.draining:
            state = WorkerState.DRAINING
        else:
            state = WorkerState.AVAILABLE if self._agent.idle else WorkerState.BUSY
        return Presence(state, self._agent.capacity)
