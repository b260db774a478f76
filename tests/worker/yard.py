"""A worker's files without the rest of it: the real cache, the real mover, a real server; a manager that a test plays."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from blake3 import blake3

from tercel.core.files import Input, Location
from tercel.core.model import Needs, Program
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report
from tercel.wire.messages import Brief, FromWorker, Locate, Located, Offer
from tercel.worker import delivering, fetching_files
from tercel.worker.agent import Agent
from tercel.worker.files import Files
from tercel.worker.options import WorkerOptions
from tests.data.servers import WebServer

M = TypeVar("M")
PATIENCE_S = 30.0


def digest(data: bytes) -> str:
    return f"blake3:{blake3(data).hexdigest()}"


class Yard:
    def __init__(self, dir: Path, name: str, cache_dir: Path | None, cache_bytes: int) -> None:
        self.dir = dir
        self.said: list[FromWorker] = []
        self.owed: list[Report] = []
        self.errors: list[Exception] = []
        self.launched: dict[int, list[tuple[str, str]]] = {}
        self.known: dict[str, Location] | None = {}
        """What the manager answers at once; None: nothing."""
        self.agent = Agent(Needs(64_000, 0), outgoing=str(dir / "outgoing"))
        self.files = Files(
            WorkerOptions(dir=dir, cache_dir=cache_dir, cache_bytes=cache_bytes),
            WorkerInfo(node="node", capacity=Needs(64_000, 0)),
            name,
            self.agent,
            None,
            say=self._hear,
            on_owed=self._owe,
            on_brought=self.look,
            on_error=self.errors.append,
        )
        dir.mkdir(exist_ok=True)
        self.restored = self.files.prepare()
        self.agent.restore([], self.restored)
        self._attempts = 0

    def _hear(self, message: FromWorker) -> None:
        self.said.append(message)
        if isinstance(message, Locate) and self.known is not None:
            files = [self.known.get(name, Location(name)) for name in message.names]
            self.files.take(Located(message.number, files))

    def _owe(self, reports: list[Report]) -> None:
        self.owed += reports
        self.look()

    def look(self) -> None:
        """As the service does, whenever something has happened."""
        self.files.look()
        for launch in self.agent.launches():
            self.launched[launch.attempt] = launch.links

    def offer(self, job: int = 1, *, tasks: int = 1, line: str | None = None, **program: Any) -> list[int]:
        """Attempts of a job; its inputs may be given as their sources."""
        inputs = tuple(
            one if isinstance(one, Input) else Input(source=one) for one in program.pop("inputs", ())
        )
        self.agent.on_brief(Brief(job, Program(argv=("true",), inputs=inputs, **program), Needs(1000, 0)))
        first = self._attempts
        self._attempts += tasks
        lines = None if line is None else [line] * tasks
        assert self.agent.on_offer(Offer(job, 0, tasks - 1, first, lines)) == []
        self.look()
        return list(range(first, first + tasks))

    def end(self, attempt: int, files: dict[str, bytes] | None = None, **fields: Any) -> None:
        """It ends, and leaves these."""
        left = files or {}
        for name, data in left.items():
            path = self.dir / "outgoing" / str(attempt) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        gathered = tuple((name, len(data)) for name, data in left.items())
        values: dict[str, Any] = {"end": End.EXITED, "code": 0, "gathered": gathered}
        report = Report(
            1, attempt, attempt, started_at=1.0, wall_s=1.0, cpu_s=0.0, max_rss_bytes=0, **(values | fields)
        )
        self.owed += self.agent.on_ended([report])
        self.look()

    async def until(self, true: Callable[[], M]) -> M:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := true()):
                assert not self.errors, self.errors
                await asyncio.sleep(0.002)
        return found

    async def brought(self, *attempts: int) -> list[dict[str, bytes]]:
        """What each of them finds, by name, once it is launched."""
        failed = await self.until(lambda: set(attempts) <= self.launched.keys() or self._failed(attempts))
        assert failed is True, failed
        return [
            {name: Path(path).read_bytes() for path, name in self.launched[attempt]} for attempt in attempts
        ]

    def _failed(self, attempts: tuple[int, ...]) -> list[Report]:
        return [report for report in self.owed if report.attempt in attempts]

    async def report(self, which: int = 0) -> Report:
        await self.until(lambda: len(self.owed) > which)
        return self.owed[which]

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.said if isinstance(message, kind)]

    @property
    def outgoing(self) -> set[str]:
        return {path.name for path in (self.dir / "outgoing").iterdir()}

    @property
    def pins(self) -> int:
        return len(list(self.dir.parent.glob("**/pins/*/*"))) - len(
            list(self.dir.parent.glob("**/pins/*/*lock*"))
        )


@asynccontextmanager
async def yard(
    dir: Path, name: str = "one", *, cache_dir: Path | None = None, cache_bytes: int = 2**20
) -> AsyncIterator[Yard]:
    one = Yard(dir / name, name, cache_dir, cache_bytes)
    try:
        yield one
        assert one.errors == []
    finally:
        await one.files.close()
        deadline = time.monotonic() + PATIENCE_S
        while others := [task for task in asyncio.all_tasks() if "tercel" in repr(task.get_coro())]:
            assert time.monotonic() < deadline, others
            await asyncio.sleep(0)


def hasten(patch: Any) -> None:
    """No time passes between tries but what they take."""
    patch.setattr(fetching_files, "PAUSES_S", (0.0, 0.0))
    patch.setattr(delivering, "PAUSES_S", (0.0, 0.0))
    patch.setattr(fetching_files, "FULL_S", 0.01)
    patch.setattr(fetching_files, "ELSEWHERE_S", 0.01)


def asked(web: WebServer, method: str) -> list[str]:
    return [path for how, path, _ in web.asked if how == method]
