"""A real manager in this process, on a free port of the loopback, with what tests attack it with.

    House      the manager, its tokens, and requests to its API
    Scripted   a worker that says exactly what a test tells it to, over the real link
    Raw        a bare TCP connection, for what no HTTP client would send

Waiting is for something to become true, never for time to pass.
"""

import asyncio
import io
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from tercel.core.errors import PassingFault
from tercel.core.invariants import violations
from tercel.core.model import Needs, Role
from tercel.core.presence import Held, WorkerInfo
from tercel.core.reports import End, Output, Report
from tercel.links.contract import LinkClosed
from tercel.links.websocket import WebSocketDialer, WebSocketWorkerEnd
from tercel.manager.options import ManagerOptions
from tercel.manager.service import Manager
from tercel.wire.api import IssuedToken, JobView, Pool, Problem, Status, Submitted, TaskList, TaskView
from tercel.wire.messages import PROTOCOL, Ack, Brief, FromManager, FromWorker, Hello, Offer, Reports, Welcome
from tercel.wiring import Serving, serving

T = TypeVar("T")
M = TypeVar("M", bound=FromManager)
PATIENCE_S = 30.0
GIB = 2**30

_names = itertools.count()


class Answer:
    """What the manager said to one request."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"

    def of(self, kind: type[T]) -> T:
        assert self.status < 300, self
        return msgspec.json.decode(self.body, type=kind)

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def problem(self) -> Problem:
        """Every error is one of these, whatever went wrong."""
        assert self.status >= 400, self
        assert self.headers["Content-Type"].split(";")[0] == "application/problem+json", self.headers
        problem = msgspec.json.decode(self.body, type=Problem)
        assert problem.status == self.status
        assert problem.detail and problem.title
        assert len(problem.detail) < 3000, "an error is to be read by people"
        return problem


class House:
    def __init__(self, served: Serving, data: Path, client: aiohttp.ClientSession) -> None:
        self.served = served
        self.data = data
        self.url = served.url
        self.admin = served.token
        self.client = client
        self._workers: list[Scripted] = []
        self._raws: list[Raw] = []

    @property
    def manager(self) -> Manager:
        return self.served._manager

    # -- requests -----------------------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = "",
        json: object = None,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request; as admin unless told otherwise (token=None: as nobody). `path` is sent as it is."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.admin}"
        if json is not None:
            body = io.BytesIO(msgspec.json.encode(json))
        url = URL(self.url + path, encoded=True)
        async with self.client.request(method, url, data=body, headers=sent) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    async def get(self, path: str, kind: type[T], token: str = "") -> T:
        return (await self.ask("GET", path, token=token)).of(kind)

    async def submit(self, token: str = "", **fields: Any) -> Submitted:
        if not {"argv", "line", "lines"} & set(fields):
            fields["argv"] = ["true"]
        return (await self.ask("POST", "/v1/jobs", token=token, json=fields)).of(Submitted)

    async def job(self, id: int) -> JobView:
        return await self.get(f"/v1/jobs/{id}", JobView)

    async def task(self, id: int, task: int) -> TaskView:
        return await self.get(f"/v1/jobs/{id}/tasks/{task}", TaskView)

    async def tasks(self, id: int, query: str = "") -> TaskList:
        return await self.get(f"/v1/jobs/{id}/tasks{query}", TaskList)

    async def pool(self) -> Pool:
        return await self.get("/v1/pool", Pool)

    async def status(self) -> Status:
        return await self.get("/v1/status", Status)

    async def token(self, role: Role, user: str) -> IssuedToken:
        answer = await self.ask("POST", "/v1/tokens", json={"role": role, "user": user})
        return answer.of(IssuedToken)

    async def explain(self, what: str) -> str:
        answer = await self.ask("GET", f"/v1/explain?task={what}")
        assert answer.status == 200, answer
        return str(answer.json["summary"])

    # -- others -------------------------------------------------------------------------------------------

    async def raw(self) -> "Raw":
        parts = urlsplit(self.url)
        return self.use(Raw(*await asyncio.open_connection(parts.hostname, parts.port)))

    def use(self, raw: "Raw") -> "Raw":
        """It is closed at the end, whatever happens."""
        self._raws.append(raw)
        return raw

    async def dial(self, token: str = "") -> WebSocketWorkerEnd:
        return await WebSocketDialer(self.url, token or self.served.worker_token).dial()

    async def worker(
        self, name: str = "", *, cpus: int = 1, mem_bytes: int = GIB, **hello: Any
    ) -> "Scripted":
        """One that has joined."""
        worker = Scripted(await self.dial(), name or f"w{next(_names)}")
        self._workers.append(worker)
        await worker.join(cpus=cpus, mem_bytes=mem_bytes, **hello)
        return worker

    def disk(self) -> "Disk":
        return Disk(self)

    async def until(self, true: Callable[[], T], what: str) -> T:
        """For what no message tells. The loop goes round; no time passes but what that takes."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := true()):
                await asyncio.sleep(0)
        assert found, what
        return found

    async def sound(self) -> None:
        """The manager answers, and its books are in order."""
        assert (await self.ask("GET", "/v1/health", token=None)).json["ok"] is True
        assert violations(self.manager.machine) == []
        status = await self.status()
        assert status.trouble == ""

    async def still_works(self) -> None:
        """Sound, and a task goes all the way through it: what was tried before has harmed nobody else."""
        await self.sound()
        # Before all others, and too large for the other workers of a test.
        job = await self.submit(array="0-2", cpus=4, priority=0)
        honest = await self.worker(cpus=4)
        for _ in range(3):
            offer = await honest.offered(job.id)
            await honest.report(offer)
        assert (await self.ended(job.id)).counts.finished == 3
        await honest.close()
        await self.sound()

    async def ended(self, job: int) -> JobView:
        """The job, once it has ended: told by its own events."""
        answer = await asyncio.wait_for(self.ask("GET", f"/v1/events?job={job}"), PATIENCE_S)
        assert b'"done":true' in answer.body, answer
        return await self.job(job)

    async def close(self) -> None:
        for raw in self._raws:
            raw.writer.transport.abort()
        for worker in self._workers:
            await worker.close()
        await asyncio.sleep(0)


class Disk:
    """The manager's disk in the hands of a test: commits wait, one by one, or fail."""

    def __init__(self, house: House) -> None:
        self._store = house.manager.store
        self._commit = self._store.commit
        self._held = False
        self._permits = threading.Semaphore(0)
        self._fault: Exception | None = None
        self._once = False
        self._loop = asyncio.get_running_loop()
        self._waiting = asyncio.Event()
        self._store.commit = self._commit_when_let  # type: ignore[method-assign]

    def _commit_when_let(self) -> None:
        if self._held:
            self._loop.call_soon_threadsafe(self._waiting.set)
            assert self._permits.acquire(timeout=PATIENCE_S)
        fault = self._fault  # read once: the test's thread may set it meanwhile
        if fault is not None:
            if self._once:
                self._fault = None
            self._store._roll_back()  # type: ignore[attr-defined]
            raise fault
        self._commit()

    def hold(self) -> None:
        self._held = True

    async def reached(self) -> None:
        """Until a commit waits."""
        async with asyncio.timeout(PATIENCE_S):
            await self._waiting.wait()

    def step(self) -> None:
        """Let the one commit go that waits."""
        self._waiting.clear()
        self._permits.release()

    def release(self) -> None:
        """Let it go, and all that follow."""
        self._held = False
        self._permits.release()

    def fail(self, fault: Exception | None, *, once: bool = False) -> None:
        """Every commit from now on, or the next one alone."""
        self._once = once
        self._fault = fault


class Scripted:
    """The worker's end of a link, in the hands of a test. All that the manager says is kept in `heard`."""

    def __init__(self, end: WebSocketWorkerEnd, name: str) -> None:
        self.end = end
        self.name = name
        self.heard: list[FromManager] = []
        self.over = asyncio.Event()
        self.why = ""
        self._news = asyncio.Condition()
        self._taken: set[int] = set()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            while True:
                messages = await self.end.receive()
                async with self._news:
                    self.heard += messages
                    self._news.notify_all()
        except PassingFault as fault:
            self.why = str(fault)
        finally:
            self.over.set()
            async with self._news:
                self._news.notify_all()

    async def until(self, true: Callable[[], T], what: str = "the manager says what is expected") -> T:
        async with asyncio.timeout(PATIENCE_S), self._news:
            while not (found := true()):
                assert not self.over.is_set(), f"the link is closed ({self.why}) before {what}"
                await self._news.wait()
            return found

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.heard if isinstance(message, kind)]

    async def next(self, kind: type[M], which: int = 0) -> M:
        return await self.until(
            lambda: self.all(kind)[which] if len(self.all(kind)) > which else None, kind.__name__
        )

    # -- what it says -------------------------------------------------------------------------------------

    async def say(self, *messages: FromWorker) -> None:
        await self.end.send(list(messages))

    async def throw(self, data: bytes) -> None:
        """Bytes that are not necessarily a frame."""
        await self.end._push(data)

    async def join(
        self,
        *,
        cpus: int = 1,
        mem_bytes: int = GIB,
        held: Iterable[Held] = (),
        instance: str = "1",
        info: WorkerInfo | None = None,
        knows: tuple[str, ...] = (),
    ) -> Welcome:
        info = info or WorkerInfo(
            node="n", capacity=Needs(cpus * 1000, mem_bytes), version="test", python="3.11.7"
        )
        await self.say(Hello(PROTOCOL, self.name, instance, info, list(held), knows))
        return await self.next(Welcome)

    async def offered(self, job: int = 0) -> Report:
        """The next task it is given (of a job, if one is named), as the report that it will be."""

        def next_one() -> Report | None:
            for offer in self.all(Offer):
                for task in range(offer.first, offer.last + 1):
                    attempt = offer.first_attempt + task - offer.first
                    if attempt not in self._taken and job in (0, offer.job):
                        self._taken.add(attempt)
                        return done(offer.job, task, attempt)
            return None

        return await self.until(next_one, "a task is offered")

    async def report(self, report: Report, **fields: Any) -> None:
        """Say it and hear the acknowledgement."""
        report = msgspec.structs.replace(report, **fields)
        await self.say(Reports([report]))
        await self.acknowledged(report.attempt)

    async def acknowledged(self, attempt: int) -> None:
        await self.until(lambda: any(attempt in ack.attempts for ack in self.all(Ack)), "the acknowledgement")

    async def hung_up(self) -> str:
        """Why the manager closed the link, which it must do."""
        async with asyncio.timeout(PATIENCE_S):
            await self.over.wait()
        return self.why

    async def settled(self) -> None:
        """What was said so far has been heard: a report that nobody wants is acknowledged all the same."""
        marker = 2**50 + next(_names)
        await self.report(done(2**40, 0, marker))

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self.end.close()


def done(job: int, task: int, attempt: int, **fields: Any) -> Report:
    """The report of a task that did what it should."""
    values: dict[str, Any] = {
        "end": End.EXITED,
        "code": 0,
        "started_at": 1.0,
        "wall_s": 6.0,  # long enough that nothing is offered ahead
        "cpu_s": 0.5,
        "max_rss_bytes": 1000,
    }
    return Report(job=job, task=task, attempt=attempt, **(values | fields))


def inline(data: bytes) -> Output:
    return Output(len(data), len(data), data)


class Raw:
    """Bytes to and from the manager's port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> Answer:
        """The next answer on this connection, by its Content-Length."""
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status, *lines = head.decode("latin-1").split("\r\n")
            headers = {k.title(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
            body = await self.reader.readexactly(int(headers.get("Content-Length", "0")))
        return Answer(int(status.split()[1]), headers, body)

    async def closed(self) -> bytes:
        """All that still comes, up to the end of the connection."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@asynccontextmanager
async def open_house(data: Path, **options: Any) -> AsyncIterator[House]:
    async with serving(ManagerOptions(data=data, port=0, **options)) as served:
        connector = aiohttp.TCPConnector(
            limit=0, force_close=True
        )  # no connection is found closed by the manager
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
            one = House(served, data, client)
            try:
                yield one
            finally:
                await one.close()


__all__ = ["Answer", "Brief", "House", "LinkClosed", "Raw", "Scripted", "done", "inline", "open_house"]
