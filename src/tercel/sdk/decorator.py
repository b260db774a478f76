"""@task: a function with what its calls need written beside it."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

from tercel.core.errors import UsageError
from tercel.sdk.asks import Asks

if TYPE_CHECKING:
    from tercel.sdk.executor import Executor
    from tercel.sdk.futures import TaskFuture

P = ParamSpec("P")
R = TypeVar("R")

opened: list["Executor"] = []
"""Whose with-blocks are being run, innermost last."""


class Task(Generic[P, R]):
    """Called, it runs here, as the function would. `submit` and `map` run it in the innermost `with Executor()`."""

    def __init__(self, function: Callable[P, R], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.options = options
        """As `Executor.submit` takes them: resources, retries, name."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> "TaskFuture[R]":
        return self._executor().submit(self, *args, **kwargs)

    def map(self, *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1) -> Iterator[R]:
        return self._executor().map(self, *iterables, timeout=timeout, chunksize=chunksize)

    def _executor(self) -> "Executor":
        if not opened:
            raise UsageError(
                f"{self.function.__name__} is to run in an executor: use it in a `with Executor():` block"
            )
        return opened[-1]


@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    cpus: float | None = None,
    mem: str | int | None = None,
    time: str | float | None = None,
    retries: int | None = None,
    name: str | None = None,
    **asks: Unpack[Asks],
) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(
    function: Callable[P, R] | None = None,
    /,
    *,
    cpus: float | None = None,
    mem: str | int | None = None,
    time: str | float | None = None,
    retries: int | None = None,
    name: str | None = None,
    **asks: Unpack[Asks],
) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
    """`@task` or `@task(cpus=2, mem="4G", time="1h", retries=3, gpus=1, requires="STAR")`."""
    plain = {k: v for k, v in (("cpus", cpus), ("mem", mem), ("time", time)) if v is not None}
    resources: dict[str, Any] = {**plain, **asks}
    given = (("resources", resources or None), ("retries", retries), ("name", name))
    options = {k: v for k, v in given if v is not None}
    if function is not None:
        return Task(function, options)
    return lambda function: Task(function, options)
