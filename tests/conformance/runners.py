"""What tests of runners share: a listener, lifelines, launches.

Nothing sleeps in them: they wait for reports, and for lifelines. A lifeline is a FIFO that a task and all that
descends from it hold open; its reader sees the end of the file exactly when the last of them is gone.
"""

import asyncio
import contextlib
import io
import os
import pickle
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from tercel.core.model import Call, Function, Program
from tercel.core.reports import Output, Report
from tercel.runners import trees
from tercel.runners.contract import Launch
from tercel.runners.hierarchies import CONTROLLERS, own_groups
from tercel.runners.pool import SpawnerPool
from tercel.wire.messages import SEGMENT_BYTES

WAIT_S = 60.0


class Recorder:
    """A listener that keeps what it is told and lets tests wait for it."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.reports: dict[int, Report] = {}
        self.order: list[int] = []
        self.tails: dict[tuple[int, str], list[tuple[int, bytes]]] = {}
        self._news = asyncio.Event()

    def started(self, attempts: list[int]) -> None:
        self.running += attempts
        self._news.set()

    def ended(self, reports: list[Report]) -> None:
        for report in reports:
            assert report.attempt not in self.reports, "a second report"
            self.reports[report.attempt] = report
            self.order.append(report.attempt)
        self._news.set()

    def tail(self, attempt: int, stream: str, offset: int, data: bytes) -> None:
        assert attempt not in self.reports, "output after the end"
        self.tails.setdefault((attempt, stream), []).append((offset, data))
        self._news.set()

    def told(self, attempt: int, stream: str = "out") -> bytes:
        return b"".join(data for _, data in self.tails.get((attempt, stream), []))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def report(self, attempt: int) -> Report:
        await self.until(lambda: attempt in self.reports)
        return self.reports[attempt]


class Lifeline:
    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._reader: asyncio.StreamReader | None = None

    async def held(self) -> bytes:
        """Until somebody holds it and has written a line to it; returns the line."""
        loop = asyncio.get_running_loop()
        # Open without waiting for a writer: the first thing read is the line.
        file = os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        self._hold = os.open(
            self.path, os.O_WRONLY
        )  # or there would be an end of file before the first writer
        self._reader = asyncio.StreamReader()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), file
        )
        async with asyncio.timeout(WAIT_S):
            line = await self._reader.readline()
        os.close(self._hold)
        return line

    async def dropped(self) -> None:
        """Until nobody holds it any more."""
        assert self._reader is not None
        async with asyncio.timeout(WAIT_S):
            await self._reader.read()
        self._transport.close()


def spawners(program: bytes = b"tercel.runners.spawner") -> list[int]:
    found = []
    for pid in trees.descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if program in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def interpreters() -> list[int]:
    return spawners(b"tercel.runners.interpreter")


def may_use_cgroups() -> bool:
    groups = own_groups(Path("/"))
    return len(groups) == len(CONTROLLERS) and all(os.access(path, os.W_OK) for _, path in groups.values())


def groups_left(directory: Path) -> list[Path]:
    """Control groups of that worker."""
    record = directory / "cgroups"
    made = record.read_text().split() if record.exists() else []
    return [Path(path) for path in made if Path(path).exists()]


def shell(line: str, attempt: int = 1, lane: int = 0, **program: object) -> Launch:
    return Launch(lane, 3, 14, attempt, Program(line=line, **program))


def python(source: str, *args: str, attempt: int = 1, lane: int = 0, **program: object) -> Launch:
    return Launch(lane, 3, 14, attempt, Program(argv=(sys.executable, "-c", source, *args), **program))


def function_of(function: Callable[..., object], **fields: Any) -> Function:
    values = {"python": f"{sys.version_info.major}.{sys.version_info.minor}", "name": function.__name__}
    return Function(**{"code": cloudpickle.dumps(function)} | values | fields)


def call(
    function: Callable[..., object] | Function,
    *args: object,
    attempt: int = 1,
    lane: int = 0,
    job: int = 3,
    inputs: dict[str, bytes | str] | None = None,
    **program: Any,
) -> Launch:
    """Arguments of type Ref stand for the inputs of that key."""
    made = function if isinstance(function, Function) else function_of(function)
    pickle_of_arguments = io.BytesIO()
    _Pickler(pickle_of_arguments, 5).dump((args, {}))
    arguments = Call(pickle_of_arguments.getvalue(), tuple(inputs or ()))
    return Launch(lane, job, 14, attempt, Program(function=made, **program), "", arguments, inputs or {})


class Ref(str):
    """The key of a value, in the place of the value."""


class _Pickler(cloudpickle.Pickler):
    def persistent_id(self, obj: object) -> str | None:
        return str(obj) if isinstance(obj, Ref) else None


def value(runner: SpawnerPool, report: Report) -> Any:
    """What the call returned; or (what it raised, the traceback)."""
    return pickle.loads(whole(runner, report, "value"))


async def run(runner: SpawnerPool, recorder: Recorder, launch: Launch) -> Report:
    runner.launch([launch])
    return await recorder.report(launch.attempt)


def text(output: Output | None) -> str:
    assert output is not None
    return output.inline.decode()


def whole(runner: SpawnerPool, report: Report, stream: str) -> bytes:
    output = getattr(report, stream)
    assert output is not None
    pieces = list(runner.segments(report.attempt, stream))
    assert len(pieces) == output.segments
    data = b"".join(map(zlib.decompress, pieces)) or output.inline
    assert all(len(zlib.decompress(piece)) == SEGMENT_BYTES for piece in pieces[:-1])
    assert len(data) == output.kept_bytes
    return data
