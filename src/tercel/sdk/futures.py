"""TaskFuture: a concurrent.futures.Future whose call is a task.

    pending --cancel()--> cancelled
       |
       +-- the task ended: told --> result() unpickles, once, in the thread that asks

What is told may be a pickle that came with the others, or only how large it is: then result() fetches it, and a value that
goes from task to task never passes through here.
"""

import pickle
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar

from tercel.sdk.failures import DependencyFailed, RemoteTraceback, TaskFailed
from tercel.sdk.pickling import Referable
from tercel.wire.api import ValueRow

T = TypeVar("T")


class Caller(Protocol):
    """Who made the future, and knows its task."""

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
    def __init__(self, caller: Caller, needy: bool = False) -> None:
        super().__init__()
        self._caller = caller
        self._needy = needy
        """Whether it has values of other tasks among its arguments."""
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
            self._caller.hurry(self)
            self._await(timeout)
        if self._row is not None:
            self._unpickle(self._row)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            self._caller.hurry(self)
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
        return not self.done() and self._caller.ask_cancel(self)

    def running(self) -> bool:
        """Whether a worker has begun it, as far as the manager knows; asks it."""
        return not self.done() and self._caller.ask_running(self)

    def _await(self, timeout: float | None) -> None:
        try:
            super().exception(timeout)
        except CancelledError:
            pass  # told by what follows

    # -- what its caller tells ----------------------------------------------------------------------------

    def place(self, job: int, task: int) -> None:
        self._job, self._task = job, task

    def drop(self) -> bool:
        """Cancelled, without asking anybody."""
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
            self._caller.has_large(self)
        if state == "cancelled":
            self._tell_cancelled(note)
        elif state == "finished":
            self._row = row
            self.set_result(None)  # type: ignore[arg-type]  # until somebody asks
        elif value is not None or size:
            self._row = row
            self.set_exception(_Untold())
        else:
            self.set_exception(TaskFailed(self.task_id, _words(end, code, note)))

    def _tell_cancelled(self, note: str) -> None:
        if self._needy and not note.startswith("cancelled by "):
            self.set_exception(DependencyFailed(self.task_id, f"was not run: {note}"))
        else:
            self.drop()

    def fail(self, error: BaseException) -> None:
        """It could not be submitted."""
        if not self.done():
            self.set_exception(error)

    def bring_home(self) -> None:
        """Fetch its value, if that was not done, and unpickle it later."""
        row = self._row
        if row is not None and row[5] is None:
            data = self._caller.fetch(self.key)
            with self._condition:
                if self._row is not None:
                    self._row = (*row[:5], data, len(data))

    def _unpickle(self, row: ValueRow) -> None:
        """Twice, perhaps, if two threads ask at once; then both have the same answer from the second on."""
        _, state, _, _, _, value, size = row
        data = value if value is not None else self._caller.fetch(self.key) if size else None
        if state == "finished":
            result = None if data is None else pickle.loads(data)  # noqa: S301 - it is our own task's
            with self._condition:
                if self._row is not None:
                    self._result, self._row = result, None
            return
        error, trace = pickle.loads(data or b"")  # noqa: S301 - likewise
        error.__cause__ = RemoteTraceback(trace)
        with self._condition:
            if self._row is not None:
                self._exception, self._row = error, None


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
