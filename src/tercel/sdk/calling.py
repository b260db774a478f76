"""Calls -> jobs -> results: the one way by which functions are run, for the executor and for both clients.

    any thread       submit: pickled at once, put into an open batch (same function, same options)
    the event loop   a batch that is full, or a few ms old, or waited for, is sent: one job
                     events tell which tasks ended; their outcomes are read in bulk
    a teller thread  futures are told; callbacks run here, and may use everything

A future among the arguments is a need: its batch is closed before the one that needs it is begun, so batches can be sent in
the order of their needs, and no job needs one that comes after it.
"""

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from tercel.core.intervals import IntervalSet
from tercel.core.model import Call
from tercel.sdk.batches import Arguments, Batch, BatchKey, selectors, settled
from tercel.sdk.client import AsyncClient
from tercel.sdk.following import Follower
from tercel.sdk.futures import TaskFuture
from tercel.sdk.options import CallOptions, Gathering
from tercel.sdk.pickling import pickle_call
from tercel.sdk.sending import Sender
from tercel.sdk.stalling import say_why_nothing_runs
from tercel.sdk.telling import Teller

FIRST_MAPPED = 500
"""What is mapped comes in one batch of any size; but so many go ahead, to be run while the others are pickled."""
BATCH_BYTES = 32 * 2**20

R = TypeVar("R")


class Calling:
    """Belongs to one event loop; `submit` and what futures ask may come from any thread."""

    def __init__(
        self, client: AsyncClient, loop: asyncio.AbstractEventLoop, gathering: Gathering | None = None
    ) -> None:
        self._client = client
        self._gathering = gathering or Gathering()
        self._loop = loop
        self._lock = threading.Lock()
        self._open: dict[BatchKey, Batch] = {}
        self._mappings = itertools.count(1)
        self._begun: set[BatchKey] = set()
        """Mappings whose first calls are on their way."""
        self._batch_of: dict[TaskFuture[Any], Batch] = {}
        """Of those that have no number yet."""
        self._large: WeakSet[TaskFuture[Any]] = WeakSet()
        """Told, with values that were not fetched."""
        self._sender = Sender(client)
        self._pending = 0
        self._quiet = threading.Condition(self._lock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._teller = Teller()
        self._follower = Follower(client, self._teller)
        self._fault: BaseException | None = None
        self._minded = False
        """Somebody looks whether anything runs, or has said why not."""

    # -- from any thread ----------------------------------------------------------------------------------

    def submit(
        self,
        function: Callable[..., Any],
        options: CallOptions,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> TaskFuture[Any]:
        """What cannot be pickled is told by the future, and goes nowhere."""
        return self._submit_one((id(function), options, 0), function, args, kwargs)

    def submit_many(
        self,
        function: Callable[..., Any],
        options: CallOptions,
        calls: Iterable[Arguments],
    ) -> list[TaskFuture[Any]]:
        """As one job, if it is not very large; sent when all calls are there."""
        key = (id(function), options, next(self._mappings))
        try:
            return [self._submit_one(key, function, args, kwargs) for args, kwargs in calls]
        finally:
            with self._lock:
                self._close_batch(self._open.get(key))
                self._begun.discard(key)

    def _submit_one(
        self, key: BatchKey, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TaskFuture[Any]:
        future: TaskFuture[Any] = TaskFuture(self)
        try:
            self._put(future, key, function, args, kwargs)
        except Exception as error:
            future.fail(error)
        return future

    def _put(
        self,
        future: TaskFuture[Any],
        key: BatchKey,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        pickled = pickle_call(args, kwargs)
        needs = self._checked(pickled.needs) if pickled.needs else ()
        future.needs = needs
        with self._lock:
            if self._fault is not None:
                raise self._fault
            unknown = [need for need in needs if not need.key]
            for need in unknown:
                self._close_batch(self._batch_of.get(need))
            batch = self._open.get(key)
            if batch is None:
                batch = self._open[key] = Batch(key, function, key[1])
                if key[2] == 0:
                    self._loop.call_soon_threadsafe(self._send_soon, batch)
            if not pickled.settled:
                batch.unsettled[len(batch.calls)] = (args, kwargs)
                batch.needs += unknown
            batch.calls.append(pickled.call)
            batch.futures.append(future)
            batch.size_bytes += len(pickled.call.arguments)
            if pickled.blobs:
                blobs = {
                    key: data
                    for key, data in pickled.blobs.items()
                    if key not in batch.blobs and not self._sender.has(key)
                }
                batch.blobs |= blobs
                batch.size_bytes += sum(map(len, blobs.values()))
            self._batch_of[future] = batch
            self._pending += 1
            if self._is_full(batch):
                self._begun.add(key)
                self._close_batch(batch)
        future.add_done_callback(self._one_done)

    def _is_full(self, batch: Batch) -> bool:
        mapped = batch.key[2] != 0
        most = FIRST_MAPPED if mapped else self._gathering.calls
        if mapped and (batch.blobs or batch.key in self._begun):  # what is uploaded, is uploaded once
            most = sys.maxsize
        return len(batch.calls) >= most or batch.size_bytes > BATCH_BYTES

    def _checked(self, found: Sequence[object]) -> tuple[TaskFuture[Any], ...]:
        """Those of another executor on the same manager are numbered by that one; here no lock of ours is held."""
        needs = tuple(need for need in found if isinstance(need, TaskFuture))
        for need in needs:
            if need.caller is self:
                continue
            if need.caller.manager != self.manager:
                raise ValueError(
                    "a future of an executor of another manager cannot be an argument: give its result"
                )
            if not need.key:
                need.caller.hurry(need)
        return needs

    def _close_batch(self, batch: Batch | None) -> None:
        """Nothing more is put into it, and it is sent now. With the lock held."""
        if batch is not None and self._open.get(batch.key) is batch:
            del self._open[batch.key]
            self._loop.call_soon_threadsafe(self._send, batch)

    def _one_done(self, _future: "Future[Any]") -> None:
        with self._lock:
            self._pending -= 1
            if not self._pending:
                self._quiet.notify_all()

    def wait_quiet(self, timeout: float | None = None) -> bool:
        """Until every future has been told; False if it took too long."""
        with self._lock:
            for batch in list(self._open.values()):
                self._close_batch(batch)
            return self._quiet.wait_for(lambda: not self._pending, timeout)

    # -- what futures ask ---------------------------------------------------------------------------------

    @property
    def manager(self) -> str:
        """Its address."""
        return self._client.url

    def hurry(self, future: TaskFuture[Any]) -> None:
        with self._lock:
            self._close_batch(self._batch_of.get(future))

    async def number(self, future: TaskFuture[Any]) -> None:
        """In any loop."""
        if (batch := self._batch_of.get(future)) is not None:
            await batch.is_sent()

    def later(self, tell: Callable[..., None], *args: object) -> None:
        self._teller.submit(tell, *args)

    def fetch(self, key: str) -> bytes:
        return self._ask(self._fetch(key))

    def has_large(self, future: TaskFuture[Any]) -> None:
        with self._lock:
            self._large.add(future)

    def bring_home(self) -> None:
        """Fetch all large values that somebody could still ask for."""
        with self._lock:
            futures = list(self._large)
        for future in futures:
            future.bring_home()

    def ask_cancel(self, future: TaskFuture[Any]) -> bool:
        if self._drop_unsent(future):
            return True
        return not self._on_loop() and self._ask(self.cancel([future])) == 1

    def _drop_unsent(self, future: TaskFuture[Any]) -> bool:
        """The sender takes only what it still finds, with the lock held."""
        with self._lock:
            batch = self._batch_of.get(future)
            if batch is None or batch.taken:
                return False
            del self._batch_of[future]
        future.drop()
        return True

    def cancel_all(self, futures: Iterable[TaskFuture[Any]], *, running: bool = False) -> None:
        """Those that have not begun (or all), many at a time; returns when the manager has been told."""
        left = [f for f in futures if not f.done() and not self._drop_unsent(f)]
        if left:
            self._ask(self.cancel(left, running=running))

    def fail_all(self, futures: Iterable[TaskFuture[Any]], error: BaseException) -> None:
        self._fail(list(futures), error)

    def ask_running(self, future: TaskFuture[Any]) -> bool:
        return bool(future.key) and not self._on_loop() and self._ask(self._is_running(future))

    def _on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _ask(self, coroutine: Coroutine[Any, Any, R]) -> R:
        asked = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return asked.result()
        except BaseException:
            asked.cancel()
            raise

    # -- in the loop --------------------------------------------------------------------------------------

    def _send_soon(self, batch: Batch) -> None:
        self._loop.call_later(self._gathering.seconds, self._ripe, batch)

    def _ripe(self, batch: Batch) -> None:
        with self._lock:
            self._close_batch(batch)

    def _send(self, batch: Batch) -> None:
        task = self._loop.create_task(self._submit(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit(self, batch: Batch) -> None:
        try:
            for need in batch.needs:
                await need.numbered()
            calls, futures = self._take(batch)
            if not calls:
                return
            for key, data in batch.blobs.items():
                await self._sender.upload(key, data)
            submitted = await self._sender.submit(batch.submission(calls))
            with self._lock:
                for task, future in enumerate(futures):
                    future.place(submitted.id, task)
                    self._batch_of.pop(future, None)
            self._follower.follow(submitted.id, futures)
            self._mind()
        except Exception as error:
            self._teller.submit(self._fail, batch.futures, error)
        finally:
            batch.blobs.clear()
            batch.sent.set_result(None)

    def _mind(self) -> None:
        if not self._minded:
            self._minded = True
            task = self._loop.create_task(self._say_why_nothing_runs())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _say_why_nothing_runs(self) -> None:
        self._minded = await say_why_nothing_runs(self._client, self._follower.jobs)

    def _take(self, batch: Batch) -> tuple[list[Call], list[TaskFuture[Any]]]:
        """What is left of a batch when it is sent: calls that nobody cancelled and that have what they need."""
        with self._lock:
            batch.taken = True
            kept = [(n, f) for n, f in enumerate(batch.futures) if f in self._batch_of]
        calls, futures = [], []
        for number, future in kept:
            call = batch.calls[number]
            if number in batch.unsettled:
                try:
                    call = settled(*batch.unsettled[number])
                except Exception as error:
                    self._fail([future], error)
                    continue
            calls.append(call)
            futures.append(future)
        return calls, futures

    def _fail(self, futures: Sequence[TaskFuture[Any]], error: BaseException) -> None:
        for future in futures:
            self._batch_of.pop(future, None)
            future.fail(error)

    async def _fetch(self, key: str) -> bytes:
        return b"".join([piece async for piece in self._client.value(key)])

    async def cancel(self, futures: Sequence[TaskFuture[Any]], *, running: bool = False) -> int:
        """How many of them will not run, for this. Those on their way are waited for."""
        futures = [future for future in futures if not future.done() and not self._drop_unsent(future)]
        for future in futures:
            await self.number(future)
        by_job: dict[int, IntervalSet] = {}
        for future in futures:
            if future.key and not future.done():
                by_job.setdefault(future._job, IntervalSet()).add(future._task)
        count = 0
        for job, tasks in by_job.items():
            for select in selectors(job, tasks):
                count += (await self._client.cancel([select], unstarted=not running)).count
            # The stream tells of those only with the job's end; here somebody waits.
            await self._follower.look(job, tasks)
        return count

    async def _is_running(self, future: TaskFuture[Any]) -> bool:
        return (await self._client.task(future._job, future._task)).state == "running"

    # -- the end ------------------------------------------------------------------------------------------

    def break_off(self, error: BaseException) -> None:
        """There is nobody any more who could run anything: in the loop."""
        with self._lock:
            self._fault = self._sender.fault = error
            unsent = list(self._batch_of)
        self._teller.submit(self._fail, [*unsent, *self._follower.unfinished()], error)

    async def aclose(self) -> None:
        for task in [*self._tasks, *self._follower.stop()]:
            task.cancel()
            await asyncio.wait([task])
        with self._lock:
            self._fault = RuntimeError("cannot schedule new futures after shutdown")
            left = [*self._batch_of, *self._follower.unfinished()]
        self._teller.submit(self._fail, left, self._fault)
        self._teller.stop()
