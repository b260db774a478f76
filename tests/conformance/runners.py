"""What tests of runners share: a listener, lifelines, launches.

Nothing sleeps in them: they wait for reports, and for lifelines. A lifeline is a FIFO that a task and all that
descends from it hold open; its reader sees the end of the file exactly when the last of them is gone.
"""

import asyncio
import contextlib
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

from tercel.core.model import Output, Program, Report
from tercel.runners import trees
from tercel.runners.contract import Launch
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


def spawners() -> list[int]:
    found = []
    for pid in trees.descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if b"tercel.runners.spawner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def shell(line: str, attempt: int = 1, lane: int = 0, **program: object) -> Launch:
    return Launch(lane, 3, 14, attempt, Program(line=line, **program))


def python(source: str, *args: str, attempt: int = 1, lane: int = 0, **program: object) -> Launch:
    return Launch(lane, 3, 14, attempt, Program(argv=(sys.executable, "-c", source, *args), **program))


async def run(runner: SpawnerPool, recorder: Recorder, launch: Launch) -> Report:
    runner.launch([launch])
    return await recorder.report(launch.attempt)


def text(output: Output | None) -> str:
    assert output is not None
    return output.inline.decode()


def whole(runner: SpawnerPool, report: Report, stream: str) -> bytes:
    output = report.out if stream == "out" else report.err
    assert output is not None
    pieces = list(runner.segments(report.attempt, stream))
    assert len(pieces) == output.segments
    data = b"".join(map(zlib.decompress, pieces)) or output.inline
    assert all(len(zlib.decompress(piece)) == SEGMENT_BYTES for piece in pieces[:-1])
    assert len(data) == output.kept_bytes
    return data
