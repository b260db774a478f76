"""A worker's node: the real Agent, with a runner, a spool and a link that are simulated.

What is on its disk (name, spool, parcels) outlives its process. The process may be killed at any moment; what ran then is
gone, what had ended is in the spool.
"""

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from tercel.core.conditions import Verdict
from tercel.core.errors import PeerError
from tercel.core.model import Needs
from tercel.core.presence import Facts, Gpu, WorkerInfo, WorkerState
from tercel.core.reports import End, Report
from tercel.runners.contract import Launch
from tercel.wire.messages import (
    PROTOCOL,
    Ack,
    Brief,
    Bye,
    Cancel,
    Drain,
    Forget,
    FromManager,
    FromWorker,
    Hello,
    Offer,
    Park,
    Presence,
    Probe,
    Probed,
    Reports,
    Resume,
    Returned,
    Scattered,
    Started,
    TakeBack,
    Undo,
    Welcome,
)
from tercel.worker.agent import Agent

from .files import SimFiles
from .network import Link

if TYPE_CHECKING:
    from .world import World

ANNOUNCED_AFTER_S = 0.1
"""Attempts that last longer are announced as started."""
KILL_S = 2.0


class Run:
    """One attempt at the runner."""

    __slots__ = ("began_at", "gone", "launch")

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.began_at = 0.0
        self.gone = False
        """Ended, killed or withdrawn: what was planned for it is off."""


class SimWorker:
    def __init__(
        self, world: "World", name: str, capacity: Needs, tags: tuple[str, ...] = (), gpus: int = 0
    ) -> None:
        self.world = world
        self.base = name
        self.name = name
        self.tags = tags
        self.indices = {"gpus": tuple(map(str, range(gpus)))} if gpus else {}
        self.resources = (("gpus", gpus * 1000),) if gpus else ()
        self.whole = self.capacity = msgspec.structs.replace(capacity, resources=self.resources)
        """What it has, and what it gives of that at this time."""
        self.unhealthy = ""
        self.spool: dict[int, Report] = {}
        self.up = False
        self.link: Link | None = None
        self.welcomed = False
        self.agent = Agent(self.whole, self.indices)
        self.files = SimFiles(world, self)
        self.life = 0
        """Counts processes: what was planned in an earlier one is off."""
        self._lives = 0
        self._names = 1
        self._lanes: dict[int, deque[Run]] = {}
        self._runs: dict[int, Run] = {}
        self._outbox: list[FromWorker] = []
        self._flushing = False

    # -- its process --------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.up:
            return
        self.up = True
        self.life += 1
        self._lives += 1
        self.agent = Agent(self.whole, self.indices)
        self.agent.set_capacity(self.capacity)
        if self.unhealthy:
            self.agent.pause()
        self.agent.restore(self.spool.values(), self.files.prepare())
        self._lanes, self._runs, self._outbox = {}, {}, []
        self.world.note("worker starts", self.name, "owes", list(self.agent.owed))
        self._dial_after(0.01)

    def kill(self) -> None:
        """As kill -9: what runs is gone, what is on disk stays."""
        if not self.up:
            return
        self.world.note("worker killed", self.name, "spool", list(self.spool))
        self._exit()
        if self.link is not None:
            link = self.link
            if self.world.rng.random() < 0.3:
                link.go_dark()  # the whole node went: nobody closes its connections
            else:
                link.close_at_worker()

    def lose_disk(self) -> None:
        """It comes back as somebody else, or under its old name without its spool."""
        self.world.note("worker loses its spool", self.name)
        self.spool.clear()
        self.files.lose_disk()
        if self.world.rng.random() < 0.7:
            self._names += 1
            self.name = f"{self.base}-{self._names}"

    def drain(self) -> None:
        if self.up and not self.agent.draining:
            self.world.note("worker drains", self.name)
            self._say_returned(self.agent.drain())
            self.say(self.presence())
            self._leave_if_settled()

    def change_capacity(self, capacity: Needs) -> None:
        """The node's owner is back at the keyboard, or has left."""
        millicpus = min(capacity.millicpus, self.whole.millicpus)
        mem_bytes = min(capacity.mem_bytes, self.whole.mem_bytes)
        self.capacity = capacity = Needs(millicpus, mem_bytes, "", self.resources)
        if self.up:
            returned = self.agent.set_capacity(capacity)
            self.say(self.presence())
            self._say_returned(returned)
            self._launch()

    def feel(self, unhealthy: str) -> None:
        """Unwell, or well again."""
        if unhealthy != self.unhealthy:
            self.unhealthy = unhealthy
            if not self.up:
                return
            returned: list[int] = []
            if unhealthy:
                returned = self.agent.pause()
                self._withdraw(self.agent.lanes.unbegun())
            else:
                self.agent.resume()
            self.say(self.presence())
            self._say_returned(returned)
            self._launch()

    def _leave_if_settled(self) -> None:
        if self.agent.draining and self.agent.idle and not self.agent.owed and self.link and self.welcomed:
            self.say(Bye("drained"))
            self._flush(self.life)
            self.world.note("worker leaves", self.name)
            self.world.after(self.world.rng.uniform(1.0, 30.0), self.start)
            link = self.link
            self._exit()
            if link is not None:
                link.close_at_worker()

    def _exit(self) -> None:
        self.up = False
        self.life += 1
        for run in self._runs.values():
            run.gone = True

    def presence(self) -> Presence:
        state = WorkerState.CLEANING if self.agent.only_cleans else WorkerState.AVAILABLE
        state = WorkerState.DRAINING if self.agent.draining else state
        return Presence(state, self.agent.offered, Facts(unhealthy=self.unhealthy))

    def holds(self, attempt: int) -> bool:
        """Whether this node could still report the attempt."""
        if attempt in self.spool or attempt in self.files.parcels:
            return True
        return self.up and any(held.attempt == attempt for held in self.agent.held())

    # -- its link -----------------------------------------------------------------------------------------

    def dial_soon(self) -> None:
        """Its line is up again."""
        self._dial_after(self.world.rng.uniform(0.1, self.world.reconnect_s))

    def _dial_after(self, delay_s: float) -> None:
        self.world.after(delay_s, self._dial, self.life)

    def _dial(self, life: int) -> None:
        if life != self.life or not self.up or self.link is not None:
            return
        manager = self.world.manager
        down_s = self.world.unreachable_s(self)
        if manager is None or down_s:
            self._dial_after(down_s + self.world.rng.uniform(0.1, self.world.reconnect_s))
            return
        self.link = Link(self.world, self, manager)
        self.welcomed = False
        self._outbox = []
        info = WorkerInfo(
            node=self.base,
            capacity=self.whole,
            tags=self.tags,
            indices=self.indices,
            gpus=tuple(Gpu(piece) for piece in self.indices.get("gpus", ())),
        )
        hello = Hello(PROTOCOL, self.name, f"{self.base}#{self._lives}", info, self.agent.held())
        self.link.send_up([hello, self.presence()])
        self.world.after(10.0, self._welcome_overdue, self.link)

    def _welcome_overdue(self, link: Link) -> None:
        if self.link is link and not self.welcomed:
            link.close_at_worker()

    def unlinked(self, link: Link) -> None:
        if self.link is link:
            self.link, self.welcomed, self._outbox = None, False, []
            self._dial_after(self.world.rng.uniform(0.01, self.world.reconnect_s))

    def receive(self, link: Link, messages: list[FromManager]) -> None:
        if self.link is not link or not self.up:
            return
        try:
            for message in messages:
                self._take(message)
                if self.link is not link:
                    return
        except PeerError as error:
            self.world.witness.broken(f"worker {self.name}: {error}")
        self.go_on()

    def _take(self, message: FromManager) -> None:
        if not self.welcomed and not isinstance(message, Welcome):
            raise PeerError(f"was sent {type(message).__name__} before Welcome")
        match message:
            case Welcome(_, _, drop):
                self.welcomed = True
                self.files.drop(drop, tell=False)
                self._kill_runs(self.agent.on_welcome(drop))
                for attempt in drop:
                    self.spool.pop(attempt, None)
                self.files.settled(drop)
                self.say(self.presence())
                if self.agent.owed:
                    self.say(Reports(list(self.agent.owed.values())))
            case Brief():
                self.agent.on_brief(message)
            case Offer() | Scattered():
                self._say_returned(self.agent.on_offer(message))
            case TakeBack(attempts):
                self._say_returned(self.agent.on_take_back(attempts))
            case Cancel(attempts):
                self.files.drop(attempts, tell=True)
                kill, returned = self.agent.on_cancel(attempts)
                self._kill_runs(kill)
                self._say_returned(returned)
            case Ack(attempts):
                self.agent.on_ack(attempts)
                for attempt in attempts:
                    # The real spool notes acknowledgements along with the next reports: a kill may undo them.
                    if self.world.rng.random() < 0.8:
                        self.spool.pop(attempt, None)
                self.files.settled(attempts)
            case Park() | Resume() | Undo():
                self.files.take(message)
            case Forget(job):
                self.agent.on_forget(job)
            case Drain():
                self.drain()
            case Probe(number, tester):
                link = self.link
                self.world.probe(tester, lambda verdict: self._say_probed(link, number, verdict))

    def _say_probed(self, link: Link | None, number: int, verdict: Verdict) -> None:
        if link is not None and self.link is link:
            self.say(Probed(number, verdict))

    def _say_returned(self, attempts: list[int]) -> None:
        if attempts:
            self.say(Returned(attempts))

    def say(self, message: FromWorker) -> None:
        """What is said in one moment goes in one frame. Unlinked: the next Hello says it all anew."""
        if self.link is None:
            return
        self._outbox.append(message)
        if not self._flushing:
            self._flushing = True
            self.world.after(0.0, self._flush, self.life)

    def _flush(self, life: int) -> None:
        self._flushing = False
        if life == self.life and self.link is not None and self.welcomed and self._outbox:
            messages, self._outbox = self._outbox, []
            self.link.send_up(messages)

    # -- its runner ---------------------------------------------------------------------------------------

    def owe(self, owed: list[Report]) -> None:
        """Reports for the manager."""
        for one in owed:
            self.world.witness.ended(one)
            self.spool[one.attempt] = one
        if owed and self.welcomed:
            self.say(Reports(owed))

    def owe_late(self, owed: list[Report]) -> None:
        """Of attempts whose files were moved."""
        self.owe(owed)
        self.go_on()

    def go_on(self) -> None:
        self._launch()
        self._leave_if_settled()

    def _launch(self) -> None:
        self.files.look()
        for launch in self.agent.launches():
            run = self._runs[launch.attempt] = Run(launch)
            lane = self._lanes.setdefault(launch.lane, deque())
            if lane and (launch.program.line or lane[0].launch.program.line):
                self.world.witness.broken(f"{self.name}: an attempt and a cleanup share lane {launch.lane}")
            lane.append(run)
            if len(lane) == 1:
                self._begin(run)

    def _begin(self, run: Run) -> None:
        launch = run.launch
        run.began_at = self.world.now
        if launch.program.line:
            self.world.witness.cleans(launch)
        else:
            self.world.witness.began(self, launch)
        lasts_s, end, code = self.world.play(self, launch)
        self.world.after(lasts_s, self._ends, self.life, run, end, code)
        if lasts_s > ANNOUNCED_AFTER_S:
            self.world.after(ANNOUNCED_AFTER_S, self._announce, self.life, run)

    def _announce(self, life: int, run: Run) -> None:
        if life != self.life or run.gone:
            return
        attempt = run.launch.attempt
        if news := self.agent.on_started([attempt]):
            self.say(Started(news))
        self._withdraw(self.agent.stuck([attempt]))

    def _ends(self, life: int, run: Run, end: End, code: int) -> None:
        if life == self.life and not run.gone:
            self._conclude(run, end, code)

    def _conclude(self, run: Run, end: End, code: int) -> None:
        launch = run.launch
        run.gone = True
        del self._runs[launch.attempt]
        lane = self._lanes[launch.lane]
        lane.remove(run)
        wall_s = self.world.now - run.began_at if run.began_at else 0.0
        ids, what = (launch.job, launch.task, launch.attempt), "memory" if end is End.EXCEEDED else ""
        gathered = tuple((pattern, 1) for pattern, _ in launch.gathers) if run.began_at else ()
        report = Report(*ids, end, code, run.began_at, wall_s, 0.0, 0, exceeded=what, gathered=gathered)
        owed = self.agent.on_ended([report])
        if self.welcomed and (launch.program.cleanup or launch.program.line):
            self.say(self.presence())  # before the report: nothing is offered into what is being cleaned
        self.owe(owed)
        if lane and not lane[0].began_at:
            self._begin(lane[0])
        self.go_on()

    def _kill_runs(self, attempts: list[int]) -> None:
        for attempt in attempts:
            run = self._runs[attempt]
            delay_s = self.world.rng.uniform(0.0, KILL_S) if run.began_at else 0.0
            self.world.after(delay_s, self._ends, self.life, run, End.CANCELLED, 15)

    def _withdraw(self, attempts: list[int]) -> None:
        for attempt in attempts:
            run = self._runs[attempt]
            if not run.began_at:
                self.world.after(0.0, self._withdrawn, self.life, run)

    def _withdrawn(self, life: int, run: Run) -> None:
        if life == self.life and not run.gone and not run.began_at:
            self._conclude(run, End.INTERRUPTED, 0)
