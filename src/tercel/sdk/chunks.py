"""Several calls of one function as one: what a mapping sends. It is imported on workers, so it imports nothing."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any


class Chunked:
    """Calls the function with each tuple of arguments in turn; returns the results and the seconds that it took."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)

    def __call__(self, chunk: Sequence[tuple[Any, ...]]) -> tuple[list[Any], float]:
        begun = perf_counter()
        results = [self._function(*args) for args in chunk]
        return results, perf_counter() - begun
