"""Workers that speak the real protocol over the real link and start nothing: URL COUNT CPUS SECONDS [OUTAGE].

While the file OUTAGE exists all tasks end with exit code 75, and no tester finds anything.

Like real ones they outlive their manager: they dial again after the same pauses, say what they hold, and keep a report until it is
acknowledged. They are told on stdin, and end with it:

    end 3   three of those that each of them runs end; what they take from now on ends at once
    runs    answered with how many tasks they have begun, and how often in all (if SECONDS is `inf`: until they are told)

`joined` is printed whenever all of them are welcome.
"""

import asyncio
import gc
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import uvloop

from tercel.core.conditions import Verdict
from tercel.core.errors import Unreachable
from tercel.core.model import Needs
from tercel.core.presence import Held, WorkerInfo, WorkerState
from tercel.core.reports import End, Report
from tercel.links.contract import LinkClosed, WorkerEnd
from tercel.links.websocket import WebSocketDialer
from tercel.wire.messages import (
    PROTOCOL,
    Ack,
    FromManager,
    FromWorker,
    Hello,
    Offer,
    Ping,
    Presence,
    Probe,
    Probed,
    Reports,
    Returned,
    TakeBack,
    Welcome,
)
from tercel.worker.options import WorkerOptions
from tercel.worker.redial import Redial

Tried = tuple[int, int, int]
"""Job, task, attempt."""


class Crowd:
    """What all of them share."""

    def __init__(self, dialer: WebSocketDialer, count: int, seconds: float, outage: Path | None) -> None:
        self.dialer = dialer
        self.count = count
        self.seconds = seconds
        self.outage = outage
        self.door = asyncio.Semaphore(32)
        self.joined = 0
        self.runs: Counter[tuple[int, int]] | None = Counter() if seconds == math.inf else None
        """By task. Of millions that end at once it would take more than they do."""
        self.sending: set[asyncio.Future[None]] = set()

    @property
    def is_out(self) -> bool:
        return self.outage is not None and self.outage.exists()

    def has_joined(self) -> None:
        self.joined += 1
        if self.joined == self.count:
            gc.freeze()  # they stand for as many processes: none would stop for the garbage of all
            gc.disable()
            print("joined", flush=True)

    def begin(self, tasks: Iterable[Tried]) -> None:
        if self.runs is not None:
            self.runs.update((job, task) for job, task, _ in tasks)

    def send(self, end: WorkerEnd, messages: list[FromWorker]) -> None:
        self.sending.add(sending := asyncio.ensure_future(self._send(end, messages)))
        sending.add_done_callback(self.sending.discard)

    async def _send(self, end: WorkerEnd, messages: list[FromWorker]) -> None:
        try:
            await end.send(messages)
        except LinkClosed:
            pass  # it is owed, and said again on the next link


class FakeWorker:
    def __init__(self, number: int, cpus: int, crowd: Crowd) -> None:
        self.crowd = crowd
        self.name = f"fake-{number}"
        self.cpus = cpus
        self.capacity = Needs(cpus * 1000, 2**40)
        self.queue: list[Tried] = []
        self.running: dict[int, tuple[Tried, float]] = {}
        """By attempt, and since when."""
        self.owed: dict[int, Report] = {}
        """Reports that are not acknowledged, by attempt."""
        self.link: WorkerEnd | None = None

    async def run(self) -> None:
        now = asyncio.get_running_loop().time
        redial = Redial(WorkerOptions(dir=Path()), random.Random(self.name), now())
        while True:
            try:
                async with self.crowd.door:
                    end = await self.crowd.dialer.dial()
                    messages = await self.greet(end)
                joined_at = now()
                await self.converse(end, messages)
            except (LinkClosed, Unreachable) as trouble:
                if self.link is not None:
                    await self.part(self.link)
                    redial.lost(joined_at, now())
                await asyncio.sleep(redial.pause_s(trouble, now()))

    async def part(self, end: WorkerEnd) -> None:
        self.link = None
        self.crowd.joined -= 1
        await end.close()

    async def greet(self, end: WorkerEnd) -> list[FromManager]:
        info = WorkerInfo(node="bench", capacity=self.capacity)
        await end.send([Hello(PROTOCOL, self.name, "1", info, self.held())])
        welcome, *messages = await end.receive()
        assert isinstance(welcome, Welcome), welcome
        self.drop(welcome.drop)
        self.link = end
        if self.owed:
            await end.send([Reports(list(self.owed.values()))])
        self.crowd.has_joined()
        return messages

    def held(self) -> list[Held]:
        """All that the manager may believe is here."""
        ended = [Held(r.job, r.task, r.attempt, True, True) for r in self.owed.values()]
        begun = [Held(*tried, True, False) for tried, _ in self.running.values()]
        return ended + begun + [Held(*tried, False, False) for tried in self.queue]

    def drop(self, attempts: list[int]) -> None:
        """They are not wanted any more."""
        for attempt in attempts:
            self.owed.pop(attempt, None)
            self.running.pop(attempt, None)
        if attempts:
            self.queue = [tried for tried in self.queue if tried[2] not in attempts]
            self.start()

    async def converse(self, end: WorkerEnd, messages: list[FromManager]) -> None:
        while True:
            answers: list[FromWorker] = []
            for message in messages:
                self.hear(message, answers)
            if answers:
                await end.send(answers)
            messages = await end.receive()

    def hear(self, message: FromManager, answers: list[FromWorker]) -> None:
        if isinstance(message, Offer):
            self.take(message, answers)
        elif isinstance(message, Ack):
            for attempt in message.attempts:
                self.owed.pop(attempt, None)
        elif isinstance(message, Ping):
            answers.append(Presence(WorkerState.AVAILABLE, self.capacity))
        elif isinstance(message, Probe):
            answers.append(Probed(message.number, Verdict(not self.crowd.is_out)))
        elif isinstance(message, TakeBack):
            back = set(message.attempts)
            answers.append(Returned([tried[2] for tried in self.queue if tried[2] in back]))
            self.queue = [tried for tried in self.queue if tried[2] not in back]

    def take(self, offer: Offer, answers: list[FromWorker]) -> None:
        tasks = [
            (offer.job, t, offer.first_attempt + t - offer.first) for t in range(offer.first, offer.last + 1)
        ]
        if self.crowd.seconds:
            self.queue += tasks
            self.start()
            return
        self.crowd.begin(tasks)
        now, code = time.time(), 75 if self.crowd.is_out else 0
        reports = [
            Report(job, task, attempt, End.EXITED, code, now, 0.001, 0.0, 0) for job, task, attempt in tasks
        ]
        self.owed.update((report.attempt, report) for report in reports)
        answers.append(Reports(reports))

    def start(self) -> None:
        while self.queue and len(self.running) < self.cpus:
            tried = self.queue.pop(0)
            self.crowd.begin([tried])
            self.running[tried[2]] = tried, time.time()
            if self.crowd.seconds < math.inf:
                asyncio.get_running_loop().call_later(self.crowd.seconds, self.finish, [tried[2]])

    def finish(self, attempts: list[int]) -> None:
        """But for those that were dropped meanwhile."""
        now, reports = time.time(), []
        for attempt in attempts:
            if attempt in self.running:
                (job, task, _), began = self.running.pop(attempt)
                reports.append(Report(job, task, attempt, End.EXITED, 0, began, now - began, 0.0, 0))
        self.start()
        self.owed.update((report.attempt, report) for report in reports)
        if self.link is not None and reports:
            self.crowd.send(self.link, [Reports(reports)])


def obey(line: str, crowd: Crowd, workers: list[FakeWorker]) -> None:
    match line.split():
        case ["end", count]:
            crowd.seconds = 0.0
            for worker in workers:
                worker.finish(list(worker.running)[: int(count)])
        case ["runs"]:
            assert crowd.runs is not None
            print(len(crowd.runs), crowd.runs.total(), flush=True)
        case _:
            raise SystemExit(f"{line!r} is nothing that these workers understand")


async def main() -> None:
    url, count, cpus, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    outage = Path(sys.argv[5]) if len(sys.argv) > 5 else None
    crowd = Crowd(WebSocketDialer(url, os.environ["TERCEL_TOKEN"]), count, seconds, outage)
    workers = [FakeWorker(number, cpus, crowd) for number in range(count)]
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(worker.run()) for worker in workers]
        while line := (await told.readline()).decode():
            obey(line, crowd, workers)
        for run in runs:
            run.cancel()


uvloop.run(main())
