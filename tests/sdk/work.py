"""Functions that tests of executors call on workers; files are how those and the tests speak with each other."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_S = 60.0


def becomes(ask: Callable[[], bool], what: str) -> None:
    """Wait until something is so: in the test, not on a worker."""
    until = time.monotonic() + LIMIT_S
    while not ask():
        assert time.monotonic() < until, f"it never came to this: {what}"
        time.sleep(0.005)


def square(x: int) -> int:
    return x * x


def add(x: Any, y: Any) -> Any:
    return x + y


def everything(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def fail(text: str) -> None:
    raise ValueError(text)


def fail_at_three(x: int) -> int:
    if x == 3:
        raise ValueError("three")
    return x


class OddError(Exception):
    """One that takes more than a text."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(what, number)
        self.number = number


def fail_oddly(number: int) -> None:
    raise OddError("odd", number)


def hold(place: str, name: str = "0") -> str:
    """Tells that it has begun, and waits until it may go."""
    Path(place, f"begun-{name}").touch()
    until = time.monotonic() + LIMIT_S
    while not Path(place, "go").exists() and time.monotonic() < until:
        time.sleep(0.005)
    return name


def note(place: str, name: str) -> str:
    """Leaves a trace of having run."""
    Path(place, f"ran-{name}").touch()
    return name


def unpicklable() -> Any:
    return threading.Lock()


def crash() -> None:
    os._exit(17)


def count_up(path: str) -> int:
    """How often it was called."""
    with open(path, "a+") as file:
        file.write("x")
        return file.tell()


def fail_until(path: str, times: int) -> int:
    count = count_up(path)
    if count < times:
        raise ValueError(f"only {count} times")
    return count


def total(parts: Any) -> Any:
    """Of numbers in lists, tuples and dictionaries, however deep."""
    if isinstance(parts, dict):
        return sum(total(part) for part in parts.values())
    if isinstance(parts, list | tuple):
        return sum(total(part) for part in parts)
    return parts


def directory(_: object) -> str:
    return os.getcwd()
