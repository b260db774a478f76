"""AsyncClient: everything a manager does for its users, one typed method per path of `tercel.wire.api`.

    async with AsyncClient() as client:
        job = await client.submit(Submission(argv=("./fit.sh",), array="0-99"))
        async for event in client.watch([job.id]):
            ...

The address and the token are those of the arguments, else of the environment, else of the access file; they are
looked up again after the manager was unreachable, because a restarted one may listen elsewhere.
Errors are those of `tercel.core.errors`; a task's failure is a value, never an exception.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from tercel.core.errors import (
    Forbidden,
    NotFound,
    PassingFault,
    PeerError,
    StoreFull,
    TercelError,
    Unreachable,
    UsageError,
)
from tercel.core.model import DEFAULT_PRIORITY, Role
from tercel.core.states import TaskState
from tercel.links.access import NoToken, find_server
from tercel.sdk.http import ANSWER_TIMEOUT_S, Answer, Broken, Transport
from tercel.sdk.jobs import AsyncJob, command_submission
from tercel.sdk.sse import SseParser
from tercel.wire import api

T = TypeVar("T")
R = TypeVar("R")
Query = dict[str, str | int | bool | None]

EVENT_SILENCE_S = 45.0
"""A manager sends something every 15 s at least; one that is silent for so long is taken for gone."""
MOST_JOBS_PER_STREAM = 200
"""Keeps the address of the request far below what servers accept."""
RECONNECT_MOST_S = 5.0


class AsyncClient:
    """Speaks to one manager from one event loop. Calls may run at the same time."""

    def __init__(self, server: str | None = None, token: str | None = None) -> None:
        self._server = server
        self._token = token
        self._transport: Transport | None = None
        self._doubtful = False
        """Whether address and token must be looked up again before anything is sent."""
        self._answered = False
        """Whether a manager ever did: then one that is gone is worth waiting for."""

    @property
    def url(self) -> str:
        """The manager's address."""
        return self._connected().url

    @property
    def answered(self) -> bool:
        """Whether a manager ever did."""
        return self._answered

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. The client may be used again."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    # -- jobs ---------------------------------------------------------------------------------------------

    async def submit(self, submission: api.Submission) -> api.Submitted:
        """Hand in a job; when this returns, it is durable.

        A submission without a key is given one, so that repeating it after a broken connection is safe.
        """
        if not submission.key:
            submission = msgspec.structs.replace(submission, key=os.urandom(16).hex())
        packed = submission.calls is not None  # in JSON, bytes would be a third larger, and slow
        return await self._ask("POST", "/jobs", api.Submitted, body=submission, packed=packed)

    async def submit_command(
        self,
        command: str | Sequence[str],
        *,
        name: str = "",
        cpus: float = 1.0,
        mem: str | int = 0,
        time_limit: str | float = 0.0,
        array: str = "",
        retries: int = 0,
        priority: int = DEFAULT_PRIORITY,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> AsyncJob:
        """Hand in a command: a shell line, or a program with its arguments.

        `mem` in bytes, or as in 4G; `time_limit` in seconds, or as in 1h30m; `array` as in 0-99:2%10.
        """
        submission = command_submission(
            command,
            name=name,
            cpus=cpus,
            mem=mem,
            time_limit=time_limit,
            array=array,
            retries=retries,
            priority=priority,
            cwd=cwd,
            env=env,
        )
        submitted = await self.submit(submission)
        return AsyncJob(self, submitted.id, submitted.tasks)

    def map(
        self,
        function: Callable[[Any], R],
        items: Iterable[Any],
        *,
        chunksize: int | str = "auto",
        progress: bool | None = None,
        resources: Mapping[str, Any] | None = None,
        retries: int = 0,
        name: str = "",
        queue: str = "",
        cwd: str = "",
    ) -> AsyncGenerator[R, None]:
        """Results of the function for each item, in order; the first exception ends it, and cancels the rest.

        With `chunksize` auto, quick items go together, so that a task takes about half a second. `progress`: a bar on
        stderr; by default on a terminal.
        """
        mapping = import_module("tercel.sdk.mapping")  # late: a command line has no use for picklers
        options = import_module("tercel.sdk.options").CallOptions(
            retries=retries, name=name, queue=queue, cwd=cwd
        )
        results: AsyncGenerator[R, None] = mapping.mapped(
            self,
            function,
            items,
            chunksize=chunksize,
            progress=progress,
            resources=resources,
            options=options,
        )
        return results

    async def submit_flow(self, jobs: Iterable[api.Submission], *, key: str = "") -> api.FlowSubmitted:
        """Hand in jobs that may wait for one another (After -1 is the first of them), all or none."""
        flow = api.Flow(jobs=list(jobs), key=key or os.urandom(16).hex())
        return await self._ask("POST", "/flows", api.FlowSubmitted, body=flow)

    async def jobs(self, *, before: int | None = None, limit: int = 100, all: bool = False) -> api.JobList:
        """Jobs, newest first: unfinished ones, or with `all` ended ones too."""
        query: Query = {"before": before, "limit": limit, "all": all or None}
        return await self._ask("GET", "/jobs", api.JobList, query)

    async def job(self, job: int) -> api.JobView:
        return await self._ask("GET", f"/jobs/{job}", api.JobView)

    async def submission(self, job: int) -> api.Submission:
        """The job as it was handed in: to be submitted again, perhaps changed."""
        return await self._ask("GET", f"/jobs/{job}/submission", api.Submission)

    async def tasks(
        self,
        job: int,
        *,
        tasks: str = "",
        state: TaskState | None = None,
        after: int | None = None,
        limit: int = 1000,
        outputs: bool = False,
    ) -> api.TaskList:
        """Tasks of a job by number; `tasks` (0-9,12) and `state` choose among them."""
        query: Query = {"tasks": tasks or None, "state": state, "after": after, "limit": limit}
        return await self._ask(
            "GET", f"/jobs/{job}/tasks", api.TaskList, query | {"outputs": outputs or None}
        )

    async def task(self, job: int, task: int) -> api.TaskView:
        """One task with every attempt at it."""
        return await self._ask("GET", f"/jobs/{job}/tasks/{task}", api.TaskView)

    async def logs(
        self, job: int, task: int, *, stream: str = "out", follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """What a task wrote to `out` or `err`; with `follow`, until it has ended."""
        target = _target(f"/jobs/{job}/tasks/{task}/logs", {"stream": stream, "follow": follow or None})
        async with self._connected().stream(target, None) as (status, chunks):
            if status != 200:
                raise _problem(Answer(status, b"".join([chunk async for chunk in chunks])))
            async for chunk in chunks:
                yield chunk

    async def values(self, job: int, tasks: str = "") -> list[api.ValueRow]:
        """How those of a function's tasks (0-9,12) that ended did, in order; of a large number the first part."""
        target = _target(f"/jobs/{job}/values", {"tasks": tasks or None})
        return _unpack((await self._fetch("GET", target)).body, list[api.ValueRow])

    async def upload(self, key: str, content: bytes) -> api.Stored:
        """Keep a value that calls refer to; its key is `b` and the SHA-256 of the content, in hex."""
        answer = await self._fetch(
            "PUT", _target(f"/values/{key}", {}), content, media="application/octet-stream"
        )
        return _decode(answer.body, api.Stored)

    async def value(self, key: str) -> AsyncGenerator[bytes, None]:
        """What was uploaded under a key, or what a task (t37.4) returned, pickled, as it arrives."""
        async with self._connected().stream(_target(f"/values/{key}", {}), ANSWER_TIMEOUT_S) as (
            status,
            chunks,
        ):
            if status != 200:
                raise _problem(Answer(status, b"".join([chunk async for chunk in chunks])))
            async for chunk in chunks:
                yield chunk

    async def cancel(
        self, select: Iterable[str], *, reason: str = "", unstarted: bool = False
    ) -> api.Counted:
        """End tasks; with `unstarted` only such as have not begun. The count is of those that ended by this."""
        selection = api.Selection(select=list(select), reason=reason, unstarted=unstarted)
        return await self._ask("POST", "/cancel", api.Counted, body=selection)

    async def retry(
        self,
        select: Iterable[str],
        *,
        reason: str = "",
        all: bool = False,
        mem_bytes: int | None = None,
        time_limit_s: float | None = None,
    ) -> api.Counted:
        """Run tasks again that failed or (if they are named) were cancelled; with `all`, finished ones too.

        The count is of those that will. From then on the job's tasks ask for as much memory and time as is said.
        """
        asked = api.Retry(
            select=list(select), reason=reason, all=all, mem_bytes=mem_bytes, time_limit_s=time_limit_s
        )
        # Not repeatable: a task that failed again in between would be run a third time.
        return await self._ask("POST", "/retry", api.Counted, body=asked, repeatable=False)

    async def hold(self, select: Iterable[str]) -> api.Counted:
        """Start nothing more of these until they are released; what runs goes on."""
        return await self._ask("POST", "/hold", api.Counted, body=api.Selection(select=list(select)))

    async def release(self, select: Iterable[str]) -> api.Counted:
        return await self._ask("POST", "/release", api.Counted, body=api.Selection(select=list(select)))

    async def revise(
        self,
        select: Iterable[str],
        *,
        priority: int | None = None,
        cpus: float | None = None,
        mem_bytes: int | None = None,
        time_limit_s: float | None = None,
    ) -> api.Counted:
        """Change what unfinished jobs ask for; None stays as it is. The count is of jobs."""
        wish = api.Revision(
            select=list(select), priority=priority, cpus=cpus, mem_bytes=mem_bytes, time_limit_s=time_limit_s
        )
        return await self._ask("POST", "/revise", api.Counted, body=wish)

    async def explain(self, task: str) -> api.Explanation:
        """Why a task (37.5) or the tasks of a job (37) are where they are."""
        return await self._ask("GET", "/explain", api.Explanation, {"task": task})

    # -- the pool and the manager -------------------------------------------------------------------------

    async def status(self) -> api.Status:
        return await self._ask("GET", "/status", api.Status)

    async def pool(self) -> api.Pool:
        return await self._ask("GET", "/pool", api.Pool)

    async def drain(self, worker: str) -> api.Counted:
        """Let a worker finish what it runs, and leave."""
        return await self._ask("POST", f"/workers/{quote(worker, safe='')}/drain", api.Counted)

    async def health(self) -> api.Health:
        return await self._ask("GET", "/health", api.Health)

    async def openapi(self) -> dict[str, object]:
        """The description of the manager's API."""
        return await self._ask("GET", "/openapi.json", dict[str, object])

    # -- queues -------------------------------------------------------------------------------------------

    async def queues(self) -> api.QueueList:
        return await self._ask("GET", "/queues", api.QueueList)

    async def set_queue(self, name: str, settings: api.QueueSettings) -> api.QueueView:
        """Make a queue, or change it."""
        return await self._ask("PUT", f"/queues/{quote(name, safe='')}", api.QueueView, body=settings)

    async def remove_queue(self, name: str) -> api.Counted:
        """Possible while nothing unfinished is in it."""
        return await self._ask("DELETE", f"/queues/{quote(name, safe='')}", api.Counted)

    # -- tokens -------------------------------------------------------------------------------------------

    async def tokens(self) -> api.TokenList:
        return await self._ask("GET", "/tokens", api.TokenList)

    async def create_token(self, role: Role, user: str, *, note: str = "") -> api.IssuedToken:
        """Make a token; its secret is in the answer and nowhere else."""
        new = api.NewToken(role=role, user=user, note=note)
        return await self._ask("POST", "/tokens", api.IssuedToken, body=new, repeatable=False)

    async def revoke_token(self, token: str) -> None:
        """From now on the token of this id is of no use."""
        transport = self._connected()
        answer = await transport.fetch("DELETE", f"/v1/tokens/{quote(token, safe='')}", repeatable=True)
        if answer.status >= 300:
            raise _problem(answer)

    # -- live ---------------------------------------------------------------------------------------------

    async def events(self, jobs: Iterable[int], *, tasks: bool = False) -> AsyncGenerator[api.Event, None]:
        """What happens to the jobs, over one connection; ends when it does. `tasks` tells which tasks ended."""
        query = [("job", str(job)) for job in jobs] + ([("tasks", "true")] if tasks else [])
        parser = SseParser()
        target = f"/v1/events?{urlencode(query)}"
        async with self._connected().stream(target, EVENT_SILENCE_S) as (status, chunks):
            if status != 200:
                raise _problem(Answer(status, b"".join([chunk async for chunk in chunks])))
            async for chunk in chunks:
                for data in _parse(parser, chunk):
                    yield _decode(data, api.Event)

    async def watch(
        self,
        jobs: Iterable[int],
        *,
        tasks: bool = False,
        on_lost: Callable[[TercelError], None] | None = None,
    ) -> AsyncGenerator[api.Event, None]:
        """As `events`, until every one of the jobs is done, through restarts of the manager.

        After each reconnection a job's first event again tells how things stand. `on_lost` is called when the
        connection is lost (not if this client never had an answer from a manager: that is raised).
        """
        waiting = list(dict.fromkeys(jobs))
        while waiting:
            group, waiting = waiting[:MOST_JOBS_PER_STREAM], waiting[MOST_JOBS_PER_STREAM:]
            async for event in self._watch_group(set(group), tasks, on_lost):
                yield event

    async def _watch_group(
        self, waiting: set[int], tasks: bool, on_lost: Callable[[TercelError], None] | None
    ) -> AsyncGenerator[api.Event, None]:
        pause_s = 0.1
        while waiting:
            try:
                async for event in self.events(sorted(waiting), tasks=tasks):
                    self._answered, pause_s = True, 0.1
                    if event.done:
                        waiting.discard(event.job)
                    yield event
                    if not waiting:
                        return
                lost: TercelError = Broken("the manager closed the stream of events")
            except (PassingFault, PeerError, Forbidden) as error:
                # A restarted manager may have another token in its access file, so that the old one is refused.
                if not self._answered or (isinstance(error, Forbidden) and not self._has_moved()):
                    raise
                lost = error
            if on_lost is not None:
                on_lost(lost)
            await asyncio.sleep(pause_s * (0.5 + os.urandom(1)[0] / 510))  # many clients return at many times
            pause_s = min(2 * pause_s, RECONNECT_MOST_S)
            self._doubtful = True

    # -- how ----------------------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        query: Query | None = None,
        *,
        body: msgspec.Struct | None = None,
        packed: bool = False,
        repeatable: bool = True,
    ) -> T:
        encode = msgspec.msgpack.encode if packed else msgspec.json.encode
        answer = await self._fetch(
            method,
            _target(path, query or {}),
            b"" if body is None else encode(body),
            media="application/msgpack" if packed else "application/json",
            repeatable=repeatable,
        )
        return _decode(answer.body, kind)

    async def _fetch(
        self,
        method: str,
        target: str,
        content: bytes = b"",
        *,
        media: str = "application/json",
        repeatable: bool = True,
    ) -> Answer:
        """Raises the problem that the answer tells of."""
        try:
            transport = self._connected()
        except NoToken as missing:
            await _must_answer(missing.url)  # where nobody is, no token would help
            raise
        try:
            answer = await transport.fetch(method, target, content, media=media, repeatable=repeatable)
        except Unreachable:
            self._doubtful = True
            raise
        if answer.status >= 300:
            raise _problem(answer)
        self._answered = True
        return answer

    def _connected(self) -> Transport:
        old = self._transport
        if old is not None and not self._doubtful:
            return old
        try:
            url, token = find_server(self._server, self._token)
        except UsageError:
            if old is None:
                raise
            return old  # a named manager, whose token stood in an access file that is gone by now
        if not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError(f"the token for {url} is not a token: it has characters that no token has")
        new = Transport(url, token)
        self._doubtful = False
        if old is not None and new.same_as(old):
            return old
        if old is not None:
            old.close_idle()
        self._transport = new
        return new

    def _has_moved(self) -> bool:
        """Whether address or token are others by now."""
        old = self._transport
        self._doubtful = True
        try:
            return self._connected() is not old
        except TercelError:
            return True


async def _must_answer(url: str) -> None:
    """Raises Unreachable if nobody does; asks for what needs no token."""
    transport = Transport(url, "")
    try:
        await transport.fetch("GET", "/v1/health", repeatable=True)
    finally:
        await transport.aclose()


def _target(path: str, query: Query) -> str:
    given = {name: _text(value) for name, value in query.items() if value is not None}
    return f"/v1{path}?{urlencode(given)}" if given else f"/v1{path}"


def _text(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise PeerError(
            f"the manager's answer is not understood ({error}): are client and manager of the same version?"
        ) from None


def _unpack(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise PeerError(f"the manager's answer is not understood ({error})") from None


def _parse(parser: SseParser, chunk: bytes) -> list[bytes]:
    try:
        return parser.feed(chunk)
    except ValueError as error:
        raise PeerError(f"the manager's events are not understood: {error}") from None


def _problem(answer: Answer) -> TercelError:
    """The error that an answer tells of, sorted by blame."""
    try:
        problem = msgspec.json.decode(answer.body, type=api.Problem)
        text = problem.detail or problem.title
        field = problem.field
    except msgspec.MsgspecError:
        text, field = f"the manager answered with HTTP status {answer.status} and no explanation", ""
    match answer.status:
        case 404:
            return NotFound(text, field)
        case 401 | 403:
            return Forbidden(text, field)
        case 507:
            return StoreFull(text)
        case 429 | 502 | 503 | 504:
            return PassingFault(text)
        case status if 400 <= status < 500:
            return UsageError(text, field)
        case _:
            return PeerError(f"the manager failed to answer: {text}")
