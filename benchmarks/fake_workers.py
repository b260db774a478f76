"""Workers that speak the real protocol over the real link and start nothing: URL COUNT CPUS SECONDS [OUTAGE].

While the file OUTAGE exists all tasks end with exit code 75, and no tester finds anything.
"""

import asyncio
import gc
import os
import sys
import time
from pathlib import Path

import uvloop

from tercel.core.conditions import Verdict
from tercel.core.model import Needs
from tercel.core.presence import WorkerInfo, WorkerState
from tercel.core.reports import End, Report
from tercel.links.contract import WorkerEnd
from tercel.links.websocket import WebSocketDialer
from tercel.wire.messages import (
    PROTOCOL,
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
)


class FakeWorker:
    def __init__(self, number: int, cpus: int, seconds: float, outage: Path | None) -> None:
        self.outage = outage
        self.name = f"fake-{number}"
        self.cpus = cpus
        self.seconds = seconds
        self.queue: list[tuple[int, int, int]] = []
        self.running = 0
        self.busy_s = 0.0

    async def run(self, dialer: WebSocketDialer, door: asyncio.Semaphore, joined: asyncio.Semaphore) -> None:
        async with door:
            end = await dialer.dial()
            capacity = Needs(self.cpus * 1000, 2**40)
            info = WorkerInfo(node="bench", capacity=capacity)
            await end.send([Hello(PROTOCOL, self.name, "1", info, [])])
            messages = await end.receive()
        joined.release()
        while True:
            answers: list[FromWorker] = []
            for message in messages:
                if isinstance(message, Offer):
                    self.take(message, answers, end)
                elif isinstance(message, Ping):
                    answers.append(Presence(WorkerState.AVAILABLE, capacity))
                elif isinstance(message, Probe):
                    answers.append(Probed(message.number, Verdict(not self.is_out)))
                elif isinstance(message, TakeBack):
                    back = set(message.attempts)
                    gone = [q for q in self.queue if q[2] in back]
                    self.queue = [q for q in self.queue if q[2] not in back]
                    answers.append(Returned([q[2] for q in gone]))
            if answers:
                await end.send(answers)
            messages = await end.receive()

    @property
    def is_out(self) -> bool:
        return self.outage is not None and self.outage.exists()

    def take(self, offer: Offer, answers: list[FromWorker], end: WorkerEnd) -> None:
        tasks = [
            (offer.job, t, offer.first_attempt + t - offer.first) for t in range(offer.first, offer.last + 1)
        ]
        if not self.seconds:
            now, code = time.time(), 75 if self.is_out else 0
            reports = [
                Report(job, task, attempt, End.EXITED, code, now, 0.001, 0.0, 0)
                for job, task, attempt in tasks
            ]
            answers.append(Reports(reports))
            return
        self.queue += tasks
        self.start(end)

    def start(self, end: WorkerEnd) -> None:
        while self.queue and self.running < self.cpus:
            self.running += 1
            task = self.queue.pop(0)
            asyncio.get_running_loop().call_later(self.seconds, self.finish, task, time.time(), end)

    def finish(self, task: tuple[int, int, int], began: float, end: WorkerEnd) -> None:
        self.running -= 1
        self.start(end)
        job, number, attempt = task
        report = Report(job, number, attempt, End.EXITED, 0, began, time.time() - began, 0.0, 0)
        sending.add(task_ := asyncio.ensure_future(end.send([Reports([report])])))
        task_.add_done_callback(sending.discard)


sending: set[asyncio.Future[None]] = set()


async def main() -> None:
    url, count, cpus, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    outage = Path(sys.argv[5]) if len(sys.argv) > 5 else None
    dialer = WebSocketDialer(url, os.environ["TERCEL_TOKEN"])
    door, joined = asyncio.Semaphore(32), asyncio.Semaphore(0)
    tasks = [
        asyncio.create_task(FakeWorker(n, cpus, seconds, outage).run(dialer, door, joined))
        for n in range(count)
    ]
    for _ in range(count):
        await joined.acquire()
    gc.freeze()  # they stand for as many processes: none would stop for the garbage of all
    gc.disable()
    print("joined", flush=True)
    await asyncio.gather(*tasks)


uvloop.run(main())
