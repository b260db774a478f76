"""The worker's loop: link <-> agent <-> runner.

    run       claim the directory -> start the runner -> see whether the node is fit -> stay linked until it leaves
    linked    every message moves the agent; then what can be launched is launched
    unlinked  the runner goes on, reports gather in the spool, dialling is tried again with jittered pauses

Nothing is done per task but the agent's bookkeeping: one spool record and one frame serve a whole batch.

Who decides when it ends: the manager (Refused, Drain), the user (`drain`, `stop`), or time (`time_limit_s`,
`leave_when_unreachable_s`); how it leaves is in `leaving`. A token that is not accepted ends a worker that was never welcomed. One that was
welcomed before goes on and asks again, slowly: tokens may be put right at the manager, and hundreds of workers
need not be started anew for that. An error nobody foresaw ends `run` after the runner was stopped.
"""

import asyncio
import logging
import random
import time

import msgspec

from tercel.core.errors import Forbidden, PassingFault, PeerError, TercelError
from tercel.core.presence import WorkerInfo, WorkerState
from tercel.core.reports import Report
from tercel.links.contract import Dialer
from tercel.runners.contract import Runner
from tercel.testers.contract import Asks
from tercel.wire.messages import (
    LOOK,
    PROTOCOL,
    SCATTERED,
    Ack,
    Booked,
    Brief,
    Cancel,
    Drain,
    Fetch,
    Forget,
    FromManager,
    FromWorker,
    Hello,
    Located,
    Look,
    Offer,
    Park,
    Piece,
    Ping,
    Presence,
    Probe,
    Probed,
    Refused,
    Resume,
    Scattered,
    Seen,
    Tail,
    TailData,
    TakeBack,
    Undo,
    Welcome,
)
from tercel.worker import health
from tercel.worker.agent import Agent
from tercel.worker.cleaning import last_words
from tercel.worker.conversation import Conversation, first_to_end
from tercel.worker.fetching import StageIn
from tercel.worker.files import OUTGOING, Files, Way
from tercel.worker.leaving import Leaving, what_waits
from tercel.worker.options import WorkerOptions
from tercel.worker.pressure import Pressure
from tercel.worker.probing import Probing
from tercel.worker.redial import Redial
from tercel.worker.showing import Showing
from tercel.worker.spool import Home, unusable
from tercel.worker.walltime import Timetable
from tercel.worker.watching import Senses, Watch

log = logging.getLogger("tercel.worker")


class Worker:
    def __init__(
        self,
        options: WorkerOptions,
        info: WorkerInfo,
        dialer: Dialer,
        runner: Runner,
        *,
        rng: random.Random,
        senses: Senses,
        pressure: Pressure,
        testers: Asks | None = None,
        way: Way | None = None,
    ) -> None:
        """`info`: how it describes itself. `senses` and `pressure`: how it learns of its node, and heeds it.

        `testers`: who is asked whether what tasks are blocked on has cleared; without them it never has. `way`: to the
        files that the manager keeps.
        """
        self._options = options
        self._dialer = dialer
        self._runner = runner
        self._rng = rng
        self._info = info
        self._agent = Agent(
            info.capacity, info.indices, options.cache_bytes, str(options.dir.absolute() / OUTGOING)
        )
        self._stage_in = StageIn(options.dir, self._info.node, self._agent, self._owe)
        self._home = Home(options.dir, self._info.node, rng)
        self._instance = f"{rng.getrandbits(64):016x}"
        self._files = Files(
            options,
            info,
            self._instance,
            self._agent,
            way,
            say=self._say,
            on_owed=self._owe_late,
            on_brought=self._launch,
            on_error=self._fail,
        )
        self._talk: Conversation | None = None
        """While there is a link, from its Hello on."""
        self._probing = Probing(testers, info.node, self._probed)
        self._showing = Showing(options.dir, options.log, self._agent, runner, self._seen)
        self._followed: set[int] = set()
        self._welcomed = False
        self._joined = False
        """Whether the manager welcomed it on this link, or the last one."""
        self._joined_at = 0.0
        self._clogged = False
        self._notes: dict[str, str] = {}
        """What people should know of it, by what that is about."""
        self._watch = Watch(senses, pressure, on_change=self._heed, spared=self._agent.lanes.contained_cpus)
        self._timetable: Timetable | None = None
        self._leaving = Leaving(self._agent, runner, talk=lambda: self._talk, give_back=self._give_back)
        self._failure: Exception | None = None
        self._failed = asyncio.Event()

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
                    self._join(),
                    self._leaving.when_settled(),
                    self._leaving.when_stopped(),
                    self._failed_in_a_callback(),
                )
            finally:
                try:
                    await self._leaving.stop_runner()
                finally:
                    await self._files.close()
            if self._failure is not None:
                raise self._failure  # while the runner was stopping

    async def _prepare(self) -> None:
        """Take over what an earlier process left."""
        self._stage_in.prepare()
        self._agent.restore(self._home.spool.load(), self._files.prepare())
        if self._agent.owed:
            log.info("Found %d results of an earlier run to deliver.", len(self._agent.owed))
        await self._runner.start(self)
        stale = self._runner.kept() - self._agent.owed.keys() - self._agent.parcels.parked.keys()
        if stale:
            self._runner.forget(list(stale))  # acknowledged, but killed before they were removed

    async def _join(self) -> None:
        """Returns when the worker has said good-bye."""
        loop = asyncio.get_running_loop()
        if self._options.time_limit_s is not None:
            self._timetable = Timetable(self._options.time_limit_s, loop.time())
        await self._watch.begin()
        duties = [self._stay_linked(), self._watch.run()]
        if self._timetable is not None:
            duties.append(self._leaving.in_time(self._timetable))
        await first_to_end(*duties)

    def drain(self) -> None:
        """Give back what has not started, finish what runs, deliver, leave."""
        self._leaving.drain()

    def stop(self) -> None:
        """End what runs at once, deliver what can be delivered in a moment, leave."""
        self._leaving.stop()

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
            owed = self._agent.on_ended(self._leaving.told(reports))
            self._tell_cleaned()
            if owed:
                self._owe(owed)
            if len(owed) < len(reports):
                wanted = {report.attempt for report in owed}
                parcels = self._agent.parcels
                self._runner.forget(
                    [r.attempt for r in reports if r.attempt not in wanted and r.attempt not in parcels]
                )
            if self._followed:
                self._followed.difference_update([report.attempt for report in reports])
            self._launch()
            self._leaving.look()
        except Exception as error:
            self._fail(error)

    def _tell_cleaned(self) -> None:
        for cleanup, end in self._agent.take_cleaned():
            fault = cleanup.fault(end)
            if fault:
                log.warning("%s%s.%s", fault[0].upper(), fault[1:], last_words(end))
            self._tell("cleanup", fault)

    def _tell(self, about: str, note: str) -> None:
        """People, in the pool."""
        self._notes[about] = note
        self._watch.note("; ".join(filter(None, self._notes.values())))
        if self._talk is not None:
            self._talk.wake()

    def _owe_late(self, reports: list[Report]) -> None:
        """Of attempts whose files were moved."""
        if reports:
            self._cached(*self._files.cache_news())  # first: who reads what they made is best off here
            self._owe(reports)
            self._launch()
            self._leaving.look()

    def _say(self, message: FromWorker) -> None:
        # Without a link there is nobody to hear it: what is still to be said is said on the next one.
        if self._talk is not None:
            self._talk.say(message)

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
            if self._leaving.settled.is_set():
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
            about, held = self._described(), self._agent.held()
            hello = Hello(PROTOCOL, self.name, self._instance, about, held, (LOOK, SCATTERED))
            self._on_welcome(await talk.greet(hello))
            await talk.run(list(self._agent.owed.values()))
        finally:
            self._talk = None
            self._probing.close()
            self._showing.close()
            for attempt in self._followed:
                self._runner.follow(attempt, False)
            self._followed.clear()
            await link.close()

    def _described(self) -> WorkerInfo:
        if self._timetable is None:
            return self._info
        left_s = self._timetable.left_s(asyncio.get_running_loop().time())
        return msgspec.structs.replace(self._info, time_left_s=left_s)

    def _what_waits(self) -> str:
        return what_waits(self._agent)

    # -- from the manager ---------------------------------------------------------------------------------

    def _on_welcome(self, welcome: Welcome) -> None:
        self._files.drop(welcome.drop, tell=False)
        kill = self._agent.on_welcome(welcome.drop)
        if kill:
            self._runner.kill(kill)
        if welcome.drop:
            killed = set(kill)
            self._forget([attempt for attempt in welcome.drop if attempt not in killed])
        self._fetch(self._stage_in.asks_again())
        self._cached(self._agent.kept_values() + self._files.cached(), [])
        self._files.linked(welcome.throttled)
        self._launch()
        self._tell("clock", skew := health.skew(welcome.now, time.time()))
        if skew:
            log.warning("Times will be told wrong: %s. Set this node's clock.", skew)
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
                case Offer() | Scattered():
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
                case Located() | Booked() | Park() | Resume() | Undo():
                    self._files.take(message)
                case Probe():
                    self._probing.ask(message)
                case Look():
                    self._showing.ask(message)
                case Drain():
                    self.drain()
                case Ping():
                    pass
                case Welcome() | Refused():
                    raise PeerError(f"the manager sent {type(message).__name__} in the middle of a link")
        self._launch()
        self._leaving.look()

    def _probed(self, probed: Probed) -> None:
        if self._talk is not None:
            self._talk.probed(probed)

    def _seen(self, seen: Seen) -> None:
        if self._talk is not None:
            self._talk.seen(seen)

    def _give_back(self, attempts: list[int]) -> None:
        if attempts:
            self._files.look()  # nothing is moved for them any more
        # Without a link there is nobody to tell: the next Hello will not name them.
        if attempts and self._talk is not None:
            self._talk.returned(attempts)

    def _cancel(self, attempts: list[int]) -> None:
        self._runner.forget(self._files.drop(attempts, tell=True))
        kill, unstarted = self._agent.on_cancel(attempts)
        if kill:
            self._runner.kill(kill)
        self._give_back(unstarted)

    def _forget(self, attempts: list[int]) -> None:
        self._home.spool.acknowledge(attempts, self._agent.owed.values())
        parcels = self._agent.parcels
        self._runner.forget([attempt for attempt in attempts if attempt not in parcels])
        self._files.settled(attempts)

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

    def _cached(self, kept: list[tuple[str, int]], gone: list[str]) -> None:
        # Without a link there is nobody to tell: the next one is told all that is kept.
        if (kept or gone) and self._talk is not None:
            self._talk.cached(kept, gone)

    def _heed(self) -> None:
        """The node has changed, or what is known of it."""
        agent = self._agent
        if self._watch.capacity is not None and self._watch.capacity != agent.capacity:
            given = self._watch.capacity
            log.info(
                "Giving %g cpus and %.1f GiB of memory to tasks now.",
                given.millicpus / 1000,
                given.mem_bytes / 2**30,
            )
            self._give_back(agent.set_capacity(given))
        if self._watch.facts.unhealthy and not agent.paused:
            self._give_back(agent.pause())
            self._runner.withdraw(agent.lanes.unbegun())
        elif not self._watch.facts.unhealthy and agent.paused:
            agent.resume()
        if self._talk is not None:
            self._talk.wake()
        self._launch()

    def _launch(self) -> None:
        self._fetch(self._stage_in.asks())
        self._files.look()
        if news := self._agent.cache_news():
            self._cached(*news)
        self._cached(*self._files.cache_news())
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
        if self._agent.only_cleans and state is WorkerState.BUSY:
            state = WorkerState.CLEANING
        return Presence(state, self._agent.offered, self._watch.facts)
