"""Client: AsyncClient for programs without an event loop.

No method is written twice: `submit = _call(AsyncClient.submit)` makes the sync one, and a parameter specification
carries its exact signature over, so that the type checker knows `Client.submit` as well as the original. An
event loop in a background thread runs them all, which keeps connections alive between calls. (A loop per call would
lose them, and could not be used where a loop already runs, as in a notebook.)
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from tercel.sdk.client import AsyncClient
from tercel.sdk.jobs import AsyncJob

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class _Shell(Protocol[A_co]):
    """What has an async twin, and a loop that runs it."""

    @property
    def twin(self) -> A_co: ...

    def wait_for(self, coroutine: Coroutine[Any, Any, R]) -> R: ...


class _call(Generic[A, P, R]):
    """A coroutine method of the async class as a plain method of the sync one."""

    def __init__(self, method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self, client: _Shell[A], owner: type[object]) -> Callable[P, R]: ...
    def __get__(self, client: _Shell[A] | None, owner: type[object]) -> Self | Callable[P, R]:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return client.wait_for(self._method(client.twin, *args, **kwargs))

        call.__doc__ = self.__doc__
        return call


class _iterate(Generic[A, P, R]):
    """An async generator method of the async class as a plain generator method of the sync one."""

    def __init__(self, method: Callable[Concatenate[A, P], AsyncGenerator[R, None]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self, client: _Shell[A], owner: type[object]) -> Callable[P, Iterator[R]]: ...
    def __get__(self, client: _Shell[A] | None, owner: type[object]) -> Self | Callable[P, Iterator[R]]:
        if client is None:
            return self

        def iterate(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            items = client.wait_for(_begun(self._method, client.twin, *args, **kwargs))
            try:
                while True:
                    try:
                        item = client.wait_for(items.next())
                    except StopAsyncIteration:
                        return
                    yield item
            finally:
                client.wait_for(items.close())

        iterate.__doc__ = self.__doc__
        return iterate


class _submit_command(Generic[P]):
    """As `_call`; and the job it returns is a sync one too."""

    def __init__(self, method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, AsyncJob]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, client: "Client", owner: type["Client"]) -> "Callable[P, Job]":
        def submit_command(*args: P.args, **kwargs: P.kwargs) -> Job:
            return Job(client, client.wait_for(self._method(client.twin, *args, **kwargs)))

        submit_command.__doc__ = self.__doc__
        return submit_command


class Job:
    """A job that was submitted: all that AsyncJob does, in blocking calls."""

    def __init__(self, client: "Client", twin: AsyncJob) -> None:
        self._client = client
        self.twin = twin
        self.id = twin.id
        self.tasks = twin.tasks

    view = _call(AsyncJob.view)
    wait = _call(AsyncJob.wait)
    results = _iterate(AsyncJob.results)
    cancel = _call(AsyncJob.cancel)

    def wait_for(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self._client.wait_for(coroutine)


class Client:
    """Everything AsyncClient does, in blocking calls; from any thread.

    with Client() as client:
        print(client.status().jobs)
    """

    def __init__(self, server: str | None = None, token: str | None = None) -> None:
        self.twin = AsyncClient(server, token)
        """What does the work. It belongs to the background loop: use it through this object's methods."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    submit = _call(AsyncClient.submit)
    submit_command = _submit_command(AsyncClient.submit_command)
    map = _iterate(AsyncClient.map)
    submit_flow = _call(AsyncClient.submit_flow)
    upload_inputs = _call(AsyncClient.upload_inputs)
    submission = _call(AsyncClient.submission)
    jobs = _call(AsyncClient.jobs)
    job = _call(AsyncClient.job)
    tasks = _call(AsyncClient.tasks)
    task = _call(AsyncClient.task)
    logs = _iterate(AsyncClient.logs)
    values = _call(AsyncClient.values)
    upload = _call(AsyncClient.upload)
    value = _iterate(AsyncClient.value)
    cancel = _call(AsyncClient.cancel)
    retry = _call(AsyncClient.retry)
    hold = _call(AsyncClient.hold)
    release = _call(AsyncClient.release)
    revise = _call(AsyncClient.revise)
    conditions = _call(AsyncClient.conditions)
    condition = _call(AsyncClient.condition)
    test_condition = _call(AsyncClient.test_condition)
    release_condition = _call(AsyncClient.release_condition)
    fail_condition = _call(AsyncClient.fail_condition)
    pause_condition = _call(AsyncClient.pause_condition)
    resume_condition = _call(AsyncClient.resume_condition)
    switches = _call(AsyncClient.switches)
    switch_off = _call(AsyncClient.switch_off)
    switch_on = _call(AsyncClient.switch_on)
    queues = _call(AsyncClient.queues)
    set_queue = _call(AsyncClient.set_queue)
    remove_queue = _call(AsyncClient.remove_queue)
    explain = _call(AsyncClient.explain)
    history = _call(AsyncClient.history)
    each_event = _iterate(AsyncClient.each_event)
    rollback = _call(AsyncClient.rollback)
    clean = _call(AsyncClient.clean)
    status = _call(AsyncClient.status)
    pool = _call(AsyncClient.pool)
    drain = _call(AsyncClient.drain)
    quarantine = _call(AsyncClient.quarantine)
    end_quarantine = _call(AsyncClient.end_quarantine)
    tag = _call(AsyncClient.tag)
    worker_directory = _call(AsyncClient.worker_directory)
    worker_log = _call(AsyncClient.worker_log)
    sandbox_files = _call(AsyncClient.sandbox_files)
    sandbox_file = _call(AsyncClient.sandbox_file)
    reservations = _call(AsyncClient.reservations)
    reserve = _call(AsyncClient.reserve)
    end_reservation = _call(AsyncClient.end_reservation)
    health = _call(AsyncClient.health)
    openapi = _call(AsyncClient.openapi)
    tokens = _call(AsyncClient.tokens)
    create_token = _call(AsyncClient.create_token)
    revoke_token = _call(AsyncClient.revoke_token)
    save_snapshot = _call(AsyncClient.save_snapshot)
    restore_snapshot = _call(AsyncClient.restore_snapshot)
    restore_own_snapshot = _call(AsyncClient.restore_own_snapshot)
    snapshots = _call(AsyncClient.snapshots)
    fork = _call(AsyncClient.fork)
    files = _call(AsyncClient.files)
    job_files = _call(AsyncClient.job_files)
    file = _call(AsyncClient.file)
    register_file = _call(AsyncClient.register_file)
    remove_file = _call(AsyncClient.remove_file)
    say_checked = _call(AsyncClient.say_checked)
    has_content = _call(AsyncClient.has_content)
    upload_content = _call(AsyncClient.upload_content)
    content = _iterate(AsyncClient.content)
    add_file = _call(AsyncClient.add_file)
    get_file = _call(AsyncClient.get_file)
    verify_file = _call(AsyncClient.verify_file)
    events = _iterate(AsyncClient.events)
    watch = _iterate(AsyncClient.watch)

    @property
    def url(self) -> str:
        """The manager's address."""
        return self.twin.url

    @property
    def answered(self) -> bool:
        """Whether a manager ever did."""
        return self.twin.answered

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and end the background thread. The client may be used again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_wind_down(self.twin), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """In the background loop, if there still is one."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(function, *args)

    def wait_for(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the background loop and return its result; an interrupt cancels it."""
        with (
            self._lock
        ):  # held until it is on its way: `close` then sees it, and never stops the loop before it
            future = asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Call it with the lock held."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="tercel-client", daemon=True)
            self._thread.start()
        return self._loop


async def _wind_down(twin: AsyncClient) -> None:
    """Calls of other threads that are still under way end as cancelled instead of hanging for ever."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await twin.aclose()
    await asyncio.get_running_loop().shutdown_asyncgens()


class _Items(Generic[R]):
    """Of an async generator, one step after the other: one that Ctrl-C broke off takes a moment to end."""

    def __init__(self, items: AsyncGenerator[R, None]) -> None:
        self._items = items
        self._turn = asyncio.Lock()

    async def next(self) -> R:
        async with self._turn:
            return await anext(self._items)

    async def close(self) -> None:
        async with self._turn:
            await self._items.aclose()


async def _begun(
    method: Callable[P, AsyncGenerator[R, None]], *args: P.args, **kwargs: P.kwargs
) -> _Items[R]:
    """In the loop, where it is to be run."""
    return _Items(method(*args, **kwargs))
