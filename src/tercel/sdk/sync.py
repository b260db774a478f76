"""Client: AsyncClient for programs without an event loop.

No method is written twice: `submit = _call(AsyncClient.submit)` makes the sync one, and a parameter specification
carries its exact signature over, so that the type checker knows `Client.submit` as well as the original. An
event loop in a background thread runs them all, which keeps connections alive between calls. (A loop per call would
lose them, and could not be used where a loop already runs, as in a notebook.)
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from tercel.sdk.client import AsyncClient

P = ParamSpec("P")
R = TypeVar("R")


class _call(Generic[P, R]):
    """A coroutine method of AsyncClient as a plain method of Client."""

    def __init__(self, method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type["Client"]) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type["Client"]) -> Callable[P, R]: ...
    def __get__(self, client: "Client | None", owner: type["Client"]) -> Self | Callable[P, R]:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return client.wait_for(self._method(client.twin, *args, **kwargs))

        call.__doc__ = self.__doc__
        return call


class _iterate(Generic[P, R]):
    """An async generator method of AsyncClient as a plain generator method of Client."""

    def __init__(self, method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[R, None]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type["Client"]) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type["Client"]) -> Callable[P, Iterator[R]]: ...
    def __get__(self, client: "Client | None", owner: type["Client"]) -> Self | Callable[P, Iterator[R]]:
        if client is None:
            return self

        def iterate(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            items = self._method(client.twin, *args, **kwargs)
            try:
                while True:
                    try:
                        item = client.wait_for(_next(items))
                    except StopAsyncIteration:
                        return
                    yield item
            finally:
                client.wait_for(_close(items))

        iterate.__doc__ = self.__doc__
        return iterate


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
    submit_flow = _call(AsyncClient.submit_flow)
    submission = _call(AsyncClient.submission)
    jobs = _call(AsyncClient.jobs)
    job = _call(AsyncClient.job)
    tasks = _call(AsyncClient.tasks)
    task = _call(AsyncClient.task)
    logs = _iterate(AsyncClient.logs)
    cancel = _call(AsyncClient.cancel)
    retry = _call(AsyncClient.retry)
    hold = _call(AsyncClient.hold)
    release = _call(AsyncClient.release)
    revise = _call(AsyncClient.revise)
    queues = _call(AsyncClient.queues)
    set_queue = _call(AsyncClient.set_queue)
    remove_queue = _call(AsyncClient.remove_queue)
    explain = _call(AsyncClient.explain)
    status = _call(AsyncClient.status)
    pool = _call(AsyncClient.pool)
    drain = _call(AsyncClient.drain)
    health = _call(AsyncClient.health)
    openapi = _call(AsyncClient.openapi)
    tokens = _call(AsyncClient.tokens)
    create_token = _call(AsyncClient.create_token)
    revoke_token = _call(AsyncClient.revoke_token)
    events = _iterate(AsyncClient.events)
    watch = _iterate(AsyncClient.watch)

    @property
    def url(self) -> str:
        """The manager's address."""
        return self.twin.url

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


async def _next(items: AsyncGenerator[R, None]) -> R:
    return await anext(items)


async def _close(items: AsyncGenerator[R, None]) -> None:
    await items.aclose()
