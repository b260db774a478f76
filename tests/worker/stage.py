"""A stage for the worker: a clock that jumps, a runner that does what the script says, a manager that fails on surprises.

Nothing here waits for real time. When all tasks wait, the clock jumps to the next timer; a test that waits for what never
happens runs out of (virtual) time at once.
"""

import asyncio
import functools
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from tercel.core.errors import TercelError
from tercel.core.model import Needs, Program
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Output, Report
from tercel.links.contract import Dialer, LinkClosed, ManagerEnd, WorkerEnd
from tercel.links.local import local_pair
from tercel.runners.contract import Launch, Listener
from tercel.testers.contract import Asks
from tercel.wire.messages import (
    Brief,
    Cached,
    FromManager,
    FromWorker,
    Hello,
    Offer,
    Presence,
    Reports,
    Segment,
    Welcome,
)
from tercel.worker.options import WorkerOptions
from tercel.worker.pressure import Pressure, Reading
from tercel.worker.service import Worker

M = TypeVar("M")
ENOUGH_S = 100_000.0


class _JumpingSelector(selectors.DefaultSelector):
    jump: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            assert timeout is not None, "everything waits and no timer is set: this would never end"
            self.jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        selector = _JumpingSelector()
        selector.jump = self._jump
        super().__init__(selector)

    def time(self) -> float:
        return self._now

    def _jump(self, seconds: float) -> None:
        self._now += seconds


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test on a loop whose clock jumps."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(asyncio.wait_for(test(*args, **fixtures), ENOUGH_S))

    return run


def now() -> float:
    return asyncio.get_running_loop().time()


def report(attempt: int, *, job: int = 1, task: int | None = None, **fields: Any) -> Report:
    values: dict[str, Any] = {
        "end": End.EXITED,
        "code": 0,
        "started_at": 1.0,
        "wall_s": 1.0,
        "cpu_s": 0.5,
        "max_rss_bytes": 1000,
    }
    return Report(job=job, task=attempt - 100 if task is None else task, attempt=attempt, **(values | fields))


class FakeRunner:
    """Attempts run until the script ends them."""

    def __init__(self) -> None:
        self.running: dict[int, Launch] = {}
        self.launched: list[int] = []
        self.killed: list[int] = []
        self.withdrawn: list[int] = []
        self.warned: list[int] = []
        self.forgotten: list[int] = []
        self.followed: list[tuple[int, bool]] = []
        self.pieces: dict[tuple[int, str], list[bytes]] = {}
        self.sandboxes: dict[int, Path] = {}
        self.pieces_read = 0
        self.stopped = False
        self.listener: Listener
        self._changed = asyncio.Event()

    async def start(self, listener: Listener) -> None:
        self.listener = listener

    def launch(self, launches: list[Launch]) -> None:
        for launch in launches:
            self.running[launch.attempt] = launch
            self.launched.append(launch.attempt)
        self._changed.set()

    def kill(self, attempts: list[int]) -> None:
        self.killed += attempts
        self._changed.set()

    def withdraw(self, attempts: list[int]) -> None:
        self.withdrawn += attempts
        self._changed.set()

    def warn(self, attempts: list[int]) -> None:
        self.warned += attempts
        self._changed.set()

    def follow(self, attempt: int, on: bool) -> None:
        self.followed.append((attempt, on))
        self._changed.set()

    def directories(self) -> dict[int, Path]:
        return self.sandboxes

    def segments(self, attempt: int, stream: str) -> Iterable[bytes]:
        for piece in self.pieces.get((attempt, stream), []):
            self.pieces_read += 1
            yield piece

    def kept(self) -> set[int]:
        return {attempt for attempt, _ in self.pieces}

    def forget(self, attempts: list[int]) -> None:
        self.forgotten += attempts
        self._changed.set()

    async def stop(self) -> None:
        self.stopped = True
        await asyncio.sleep(0)
        self.end(*self.running, end=End.INTERRUPTED)
        self._changed.set()

    def end(self, *attempts: int, **fields: Any) -> None:
        """These end, as the fields of their reports say."""
        reports = []
        for attempt in attempts:
            launch = self.running.pop(attempt)
            reports.append(report(attempt, job=launch.job, task=launch.task, **fields))
        if reports:
            self.listener.ended(reports)

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._changed.clear()
            await self._changed.wait()

    async def until_running(self, *attempts: int) -> None:
        await self.until(lambda: set(attempts) <= set(self.running))


class FakeLink:
    """The manager's end of one link. Presences are only seen by who asks for them; other surprises fail the test."""

    def __init__(self, end: ManagerEnd) -> None:
        self.end = end
        self._waiting: deque[FromWorker] = deque()

    async def send(self, *messages: FromManager) -> None:
        await self.end.send(list(messages))

    async def frame(self) -> list[FromWorker]:
        return await self.end.receive()

    async def expect(self, kind: type[M]) -> M:
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                if isinstance(message, kind):
                    return message
                # Neither is an answer to anything.
                assert isinstance(message, Presence | Cached), f"expected {kind.__name__}, got {message}"
            self._waiting += await self.end.receive()

    async def expect_reports(self, count: int) -> list[Report]:
        reports: list[Report] = []
        while len(reports) < count:
            reports += (await self.expect(Reports)).reports
        assert len(reports) == count
        return reports

    async def expect_segments(self, count: int) -> list[Segment]:
        return [await self.expect(Segment) for _ in range(count)]

    async def expect_closed(self) -> None:
        try:
            while True:
                for message in [*self._waiting, *await self.end.receive()]:
                    assert isinstance(message, Presence), message
                self._waiting.clear()
        except LinkClosed:
            pass

    async def welcome(self, *drop: int, heartbeat_s: float = 10.0) -> Hello:
        hello = await self.expect(Hello)
        await self.send(Welcome(1, heartbeat_s, list(drop)))
        return hello

    async def offer(self, first: int, last: int, *, job: int = 1, **needs: int) -> None:
        """Tasks first..last of a job as attempts 100 + task, with the job's brief."""
        await self.send(
            Brief(job, Program(argv=("true",)), Needs(**needs)), Offer(job, first, last, 100 + first)
        )


class FakeManager:
    """What the worker dials: links it opens, or the trouble the script has it meet."""

    def __init__(self) -> None:
        self.trouble: TercelError | None = None
        self.dialled_at: list[float] = []
        self._links: asyncio.Queue[FakeLink] = asyncio.Queue()
        self._dialled = asyncio.Event()

    async def dial(self) -> WorkerEnd:
        self.dialled_at.append(now())
        self._dialled.set()
        if self.trouble is not None:
            raise self.trouble
        worker_end, manager_end = local_pair()
        self._links.put_nowait(FakeLink(manager_end))
        return worker_end

    async def dialled(self, count: int) -> None:
        """Until it was dialled so often in all."""
        while len(self.dialled_at) < count:
            self._dialled.clear()
            await self._dialled.wait()

    async def link(self) -> FakeLink:
        return await self._links.get()


class FakeSenses:
    """A node that does what the script says."""

    def __init__(self, cores: float) -> None:
        self.reading = Reading(cores=cores, busy=None)
        self.ill = ""
        self.checks = 0

    async def measure(self) -> Reading:
        return self.reading

    async def check(self) -> str:
        self.checks += 1
        return self.ill


class Stage:
    """One worker with its runner and its manager, in a directory that outlives it."""

    def __init__(
        self,
        dir: Path,
        *,
        cpus: int = 2,
        seed: int = 0,
        dialer: Dialer | None = None,
        ill: str = "",
        minds: bool = False,
        testers: Asks | None = None,
        **options: Any,
    ) -> None:
        """`ill`: why its node is not fit for tasks. `minds`: it minds what others do there."""
        self.dir = dir
        self._cpus = cpus
        self.runner = FakeRunner()
        self.manager = FakeManager()
        self.senses = FakeSenses(cpus)
        self.senses.ill = ill
        whole = Needs(1000 * cpus, 2**30)
        self.worker = Worker(
            WorkerOptions(dir=dir, cpus=cpus, mem_bytes=2**30, **options),
            WorkerInfo(node="node", capacity=whole),
            dialer or self.manager,
            self.runner,
            rng=random.Random(seed),
            senses=self.senses,
            pressure=Pressure(
                whole, cores=cpus, mem_bytes=2**30, keep_free=0, minds_cpus=minds, minds_mem=False
            ),
            testers=testers,
        )
        self.task = asyncio.ensure_future(self.worker.run())

    async def joined(self, *drop: int, heartbeat_s: float = 10.0) -> FakeLink:
        link = await self.manager.link()
        await link.welcome(*drop, heartbeat_s=heartbeat_s)
        return link

    async def at_work(self, last: int) -> FakeLink:
        """It has joined and was offered tasks 0 to `last`; as many as fit run (as attempts 100, 101…)."""
        link = await self.joined()
        await link.offer(0, last)
        await self.runner.until_running(*range(100, 100 + min(last + 1, self._cpus)))
        return link

    async def killed(self) -> None:
        """As kill -9 would: nothing more is done or said. (The lock falls with the process, so it is released.)"""
        self.runner.running.clear()
        self.task.cancel()
        try:
            await self.task
        except asyncio.CancelledError:
            pass

    async def left(self) -> None:
        """Until it returned; raises what it raised."""
        await self.task

    @property
    def spool_size(self) -> int:
        return (self.dir / "spool").stat().st_size


LARGE = Output(600_000, 600_000, b"", 3)
"""An output in three segments."""
