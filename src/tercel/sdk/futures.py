"""TaskFuture: a concurrent.futures.Future whose call is a task.

    pending --cancel()--> cancelled
       |
       +-- the task ended: told --> result() unpickles, once, in the thread that asks

What is told may be a pickle that came with the others, or only how large it is: then result() fetches it, and a value that
goes from task to task never passes through here.
"""

import pickle
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar, cast

from tercel.sdk.failures import DependencyFailed, RemoteTraceback, TaskFailed
from tercel.sdk.pickling import Referable
from tercel.wire.api import ValueRow

T = TypeVar("T")


class Caller(Protocol):
    """Who made the future, and knows its task."""

    @property
    def manager(self) -> str:
        """The address of the manager whose task it is."""

    async def number(self, future: "TaskFuture[Any]") -> None:
        """Wait until the task has its number, or never will have."""

    def later(self, tell: "Callable[..., None]", *args: object) -> None:
        """In the thread in which futures are told."""

    def hurry(self, future: "TaskFuture[Any]") -> None:
        """Somebody waits for it."""

    def fetch(self, key: str) -> bytes:
        """A large value."""

    def has_large(self, future: "TaskFuture[Any]") -> None:
        """Its value is fetched when it is asked for."""

    def ask_cancel(self, future: "TaskFuture[Any]") -> bool: ...

    def ask_running(self, future: "TaskFuture[Any]") -> bool: ...


class _Untold(Exception):
    """Stands for the exception that a task raised until somebody asks for it."""


class TaskFuture(Future[T], Referable):
    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self.caller = caller
        self.needs: tuple[TaskFuture[Any], ...] = ()
        """Those among its arguments, until it is told; if it was skipped, the one that is to blame."""
        self._job = 0
        self._task = 0
        self._row: ValueRow | None = None
        """How its task ended, while that is not unpickled."""

    @property
    def task_id(self) -> str:
        """As in 37.4, for `tercel logs` and the like; empty until it is submitted."""
        return f"{self._job}.{self._task}" if self._job else ""

    @property
    def key(self) -> str:
        return f"t{self._job}.{self._task}" if self._job else ""

    def __reduce__(self) -> Any:
        raise TypeError(
            "a future cannot be pickled by itself: give it as an argument (or inside of one) to submit or map of the "
            "executor that it came from"
        )

    # -- what users ask -----------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            self.caller.hurry(self)
            self._await(timeout)
        if self._row is not None:
            self._unpickle(self._row)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            self.caller.hurry(self)
            self._await(timeout)
        if self._row is not None and self._exception is not None:
            self._unpickle(self._row)
        return super().exception(0)

    def cancel(self) -> bool:
        """True if the call will not run: it was not sent yet, or no worker has begun it.

        As with every executor, one that has begun goes on (`tercel cancel 37.4` ends it). False also where it is not
        known to have begun but its worker was faster than the news.
        """
        if self.cancelled():
            return True
        return not self.done() and self.caller.ask_cancel(self)

    def running(self) -> bool:
        """Whether a worker has begun it, as far as the manager knows; asks it."""
        return not self.done() and self.caller.ask_running(self)

    def _await(self, timeout: float | None) -> None:
        try:
            super().exception(timeout)
        except CancelledError:
            pass  # told by what follows

    async def numbered(self) -> None:
        """Until its task has its number, or never will have; in any loop."""
        await self.caller.number(self)

    # -- what its caller tells ----------------------------------------------------------------------------

    def place(self, job: int, task: int) -> None:
        self._job, self._task = job, task

    def drop(self) -> bool:
        """Cancelled, without asking anybody."""
        self.needs = ()
        if not super().cancel():
            return False
        with self._condition:
            if self._state == "CANCELLED":
                self.set_running_or_notify_cancel()  # only this wakes those in wait() and as_completed()
        return True

    def tell(self, row: ValueRow) -> None:
        """How its task ended."""
        if self.done():
            return
        _, state, end, code, note, value, size = row
        if value is None and size:
            self.caller.has_large(self)
        if end == "skipped" and self.needs:
            self._row = row
            _after_the_culprit(self)
            return
        self.needs = ()
        if state == "cancelled":
            self.drop()
        elif state == "finished":
            self._row = row
            self.set_result(None)  # type: ignore[arg-type]  # until somebody asks
        elif value is not None or size:
            self._row = row
            self.set_exception(_Untold())
        else:
            self.set_exception(TaskFailed(self.task_id, _words(end, code, note)))

    def tell_skipped(self, culprit: "TaskFuture[Any] | None") -> None:
        """The one that is to blame was told, or none is."""
        if not self.done():
            self.needs = (culprit,) if culprit is not None else ()
            self.set_exception(_Untold())

    def fail(self, error: BaseException) -> None:
        """It could not be submitted."""
        if not self.done():
            self.needs = ()
            self.set_exception(error)

    def bring_home(self) -> None:
        """Fetch its value, if that was not done, and unpickle it later."""
        row = self._row
        if row is not None and row[5] is None:
            data = self.caller.fetch(self.key)
            with self._condition:
                if self._row is not None:
                    self._row = (*row[:5], data, len(data))

    def _unpickle(self, row: ValueRow) -> None:
        """Twice, perhaps, if two threads ask at once; then both have the same answer from the second on."""
        _, state, _, _, _, value, size = row
        data = value if value is not None else self.caller.fetch(self.key) if size else None
        if state == "finished":
            result = None if data is None else pickle.loads(data)  # noqa: S301 - it is our own task's
            with self._condition:
                if self._row is not None:
                    self._result, self._row = result, None
            return
        error = self._skipped(row) if row[2] == "skipped" else _raised(data)
        with self._condition:
            if self._row is not None:
                self._exception, self._row = error, None

    def _skipped(self, row: ValueRow) -> DependencyFailed:
        error = DependencyFailed(self.task_id, f"was not run: {row[4]}")
        error.__cause__ = cause_of(self.needs[0]) if self.needs else None
        return error


def cause_of(future: Referable) -> BaseException | None:
    """What was raised where the trouble began: not in a task that was itself skipped for it."""
    while isinstance(future, TaskFuture) and future.needs:
        future = future.needs[0]
    if not isinstance(future, TaskFuture) or not future.done() or future.cancelled():
        return None
    return future.exception(0)


def _after_the_culprit(skipped: TaskFuture[Any]) -> None:
    """Tell it once the need that is to blame was told: whoever asks why is then told that as well."""
    left = len(skipped.needs)

    def told(need: "Future[Any]") -> None:
        nonlocal left
        left -= 1
        # Later: in a long chain, each telling the next would be as deep as the chain is long.
        if need.cancelled() or need._exception is not None:
            skipped.caller.later(skipped.tell_skipped, need)
        elif not left:
            skipped.caller.later(skipped.tell_skipped, None)  # run again meanwhile, it ended well

    for need in skipped.needs:
        need.add_done_callback(told)


def _raised(data: bytes | None) -> BaseException:
    error, trace = pickle.loads(data or b"")  # noqa: S301 - it is our own task's
    error.__cause__ = RemoteTraceback(trace)
    return cast("BaseException", error)


def _words(end: str, code: int, note: str) -> str:
    match end:
        case "signalled":
            what = f"was killed by signal {code}"
        case "timed_out":
            what = "exceeded its time limit"
        case "exited":
            what = f"ended its interpreter with exit code {code}"
        case _:
            what = f"failed ({end})"
    return f"{what}: {note}" if note else what
