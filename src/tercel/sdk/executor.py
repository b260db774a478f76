"""Executor: concurrent.futures on a pool of Tercel's.

    with Executor() as ex:
        futures = [ex.submit(simulate, p, resources={"cpus": 2}) for p in params]
        total = ex.submit(merge, futures)

With a manager named (argument, TERCEL_SERVER) or running here it uses that; else a pool of its own on this machine, which is
gone with it. Nothing is imported anew from the main program, so a script needs no `if __name__ == "__main__"`.
"""

import asyncio
import atexit
import concurrent.futures
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

import msgspec

from tercel.core.errors import TercelError
from tercel.sdk.calling import Calling
from tercel.sdk.chunks import Chunked
from tercel.sdk.decorator import Task, opened
from tercel.sdk.embedded import EmbeddedPool, manager_is_set
from tercel.sdk.futures import TaskFuture
from tercel.sdk.options import CallOptions, Gathering, with_resources
from tercel.sdk.sync import Client

P = ParamSpec("P")
T = TypeVar("T")

STOP_S = 5.0
"""The longest that leaving the block by Ctrl-C waits for what was told to end."""
WATCH_S = 0.5
"""How often who ends an executor looks whether the program was ended by Ctrl-C meanwhile."""
_OPTIONS = ("resources", "retries", "name")


class Executor(concurrent.futures.Executor):
    """Runs functions as tasks. All methods may be called from any thread."""

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        workers: float | None = None,
        resources: Mapping[str, Any] | None = None,
        retries: int = 0,
        name: str = "",
        queue: str = "",
        cwd: str | Path | None = None,
        gather: tuple[int, float] = (1000, 0.003),
    ) -> None:
        """`workers`: how many cpus a pool of its own has (all by default). `cwd`: where calls run; by default in the
        directory where this program runs, or on a manager's workers in an empty one. `gather`: calls that are
        submitted one by one become one job when there are so many, or when the first has waited so many seconds.
        """
        self._gathering = Gathering(*gather)
        self._pool = None if server or manager_is_set() else EmbeddedPool(workers)
        place = Path.cwd() if cwd is None and self._pool is not None else cwd
        options = CallOptions(
            retries=retries, name=name, queue=queue, cwd=str(Path(place).absolute()) if place else ""
        )
        self._options = with_resources(options, resources)
        self._server, self._token = server, token
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._calling: Calling | None = None
        self._futures: WeakSet[TaskFuture[Any]] = WeakSet()
        self._closed = False
        self._left = False
        self._leaving = threading.Lock()
        """What is cancelled ends at once, and with the last one the client is closed: not before its answer is here."""
        self._exiting = False
        """The program is at its end, where Python may start no more threads."""
        self._ended = threading.Event()
        """Waited for instead of the thread that does it: a join that Ctrl-C breaks off may leave Python confused."""
        atexit.register(self._at_exit)

    # -- calls --------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> TaskFuture[T]:
        """Call `fn(*args, **kwargs)` on a worker.

        `resources` ({"cpus": 2, "mem": "4G", "time": "1h", "gpus": 1, "requires": "STAR"}), `retries` and `name` are options of
        the call, not arguments of the function. A future of this executor among the arguments, wherever in them, is replaced by its result on the
        worker, and the call waits for it.
        """
        options = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
        function, chosen = self._chosen(fn, options)
        future: TaskFuture[T] = self._started().submit(function, chosen, args, kwargs)
        with self._lock:
            self._futures.add(future)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """As `map`, in order; all calls are submitted at once. Closing the iterator cancels what has not begun.

        `chunksize` calls go together as one task.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else time.monotonic() + timeout
        function, options = self._chosen(fn, {})
        items = zip(*iterables, strict=False)
        # No lock is held: the iterables are the user's, and may well use this executor.
        calling = self._started()
        if chunksize == 1:
            futures = calling.submit_many(function, options, ((item, {}) for item in items))
        else:
            chunks = iter(lambda: list(islice(items, chunksize)), [])
            futures = calling.submit_many(Chunked(function), options, (((chunk,), {}) for chunk in chunks))
        with self._lock:
            self._futures.update(futures)
        return _results(calling, futures, end, chunksize > 1)

    def _chosen(self, fn: Callable[..., T], given: dict[str, Any]) -> tuple[Callable[..., T], CallOptions]:
        options = self._options
        for more in (fn.options if isinstance(fn, Task) else {}, given):
            options = with_resources(options, more.get("resources"))
            plain = {name: more[name] for name in ("retries", "name") if name in more}
            options = msgspec.structs.replace(options, **plain) if plain else options
        return (fn.function if isinstance(fn, Task) else fn), options

    def _started(self) -> Calling:
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._calling is None:
                server, token = self._server, self._token
                if self._pool is not None:
                    server, token = self._pool.start()
                self._client = client = Client(server, token)
                self._calling = calling = client.wait_for(_calling(client, self._gathering))
                if self._pool is not None:
                    self._pool.on_death(lambda error: client.call_soon(calling.break_off, error))
            return self._calling

    # -- the end ------------------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. `wait` until all have ended; without, they go on, and this program ends after them.

        `cancel_futures` cancels those that have not begun. Ctrl-C while it waits cancels all.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            calling = self._calling
        if calling is not None and cancel_futures:
            calling.cancel_all(self._pending())
        try:
            if first and self._exiting:
                self._end()
            elif first:
                # Not a daemon: Python waits for it at its end, as it does for the threads of other executors.
                threading.Thread(target=self._end, name="tercel-shutdown").start()
            if wait:
                self._ended.wait()
        except KeyboardInterrupt:
            self._stop()
            raise

    def _end(self) -> None:
        try:
            if self._calling is not None and self._client is not None:
                while not self._calling.wait_quiet(WATCH_S):
                    # Another Ctrl-C may have met `_stop` anywhere, also before it had cancelled anything.
                    if not threading.main_thread().is_alive() and _ended_by_ctrl_c():
                        _cancel(self._calling, self._pending())
                self._let_go(self._calling, self._client)
            if self._pool is not None:
                self._pool.stop()
            atexit.unregister(self._at_exit)
        finally:
            self._ended.set()

    def _let_go(self, calling: Calling, client: Client) -> None:
        try:
            calling.bring_home()
        except TercelError:
            pass  # who asks for such a value is told then
        with self._leaving:
            client.wait_for(calling.aclose())
            client.close()
            self._left = True

    def _pending(self) -> list[TaskFuture[Any]]:
        with self._lock:
            return [future for future in self._futures if not future.done()]

    def _at_exit(self) -> None:
        """What a program leaves is done before it ends; unless Ctrl-C has ended it, as Python notes."""
        self._exiting = True
        if _ended_by_ctrl_c():
            self._stop()
        else:
            self.shutdown()

    def __enter__(self) -> "Executor":
        opened.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Left by Ctrl-C (or an exit), all that has not ended is cancelled, and not waited for longer than a moment."""
        opened.remove(self)
        if kind is None or issubclass(kind, Exception):
            self.shutdown()
        else:
            self._stop()
        return None

    def _stop(self) -> None:
        try:
            with self._leaving:
                if self._calling is not None and not self._left:
                    _cancel(self._calling, self._pending())
        finally:
            self.shutdown(wait=False)
        self._ended.wait(STOP_S)


def _ended_by_ctrl_c() -> bool:
    """Of a program that is at its end: as Python notes it."""
    return issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt)


def _cancel(calling: Calling, futures: list[TaskFuture[Any]]) -> None:
    """All of them are told that they have ended, whether they could be made to or not."""
    try:
        calling.cancel_all(futures, running=True)
    except TercelError as fault:
        calling.fail_all(futures, fault)
    except KeyboardInterrupt:  # once more: nobody waits for anything now
        calling.fail_all(futures, TercelError("its executor was left by Ctrl-C"))
        raise


async def _calling(client: Client, gathering: Gathering) -> Calling:
    return Calling(client.twin, asyncio.get_running_loop(), gathering)


def _results(
    calling: Calling, futures: list[TaskFuture[Any]], end: float | None, chunked: bool
) -> Iterator[Any]:
    """A future that was yielded is let go at once, so that results do not gather."""
    futures.reverse()
    try:
        while futures:
            left_s = None if end is None else end - time.monotonic()
            result = futures[-1].result(left_s)
            futures.pop()
            if chunked:
                yield from result[0]
            else:
                yield result
    finally:
        calling.cancel_all(futures)
