"""Pickles, as an interpreter reads and writes them: functions, arguments, what was returned or raised.

A function is unpickled once per interpreter; arguments for every call, since a function may change them. What
does not travel with the arguments stands in their pickle as a persistent id, and is loaded from the call's inputs.
"""

import io
import mmap
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

FUNCTIONS_MOST = 8
"""Kept unpickled."""
VALUE_MOST_BYTES = 4 * 2**30
NOTE_MOST = 300
_PROTOCOL = 5

Inputs = dict[str, bytes | str]
"""By key: a pickle, or the path of a file with it."""
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Job:
    """What an interpreter knows of a job."""

    __slots__ = ("code", "cwd", "key", "name", "number", "output_limit_bytes")

    def __init__(
        self, number: int, code: bytes, key: str, name: str, cwd: str, output_limit_bytes: int
    ) -> None:
        self.number = number
        self.code = code
        self.key = key
        """Of the value that is the function's pickle, if `code` is empty."""
        self.name = name
        self.cwd = cwd.encode()
        self.output_limit_bytes = output_limit_bytes


class InputLost(Exception):
    """An input is not where the worker put it, which is not the function's doing."""


class Functions:
    """Those that were unpickled last, by their pickles: many jobs may be of one function."""

    def __init__(self) -> None:
        self._known: dict[bytes | str, Callable[..., Any]] = {}

    def of(self, job: Job, inputs: Inputs) -> Callable[..., Any]:
        function = self._known.get(job.code or job.key)
        if function is None:
            function = pickle.loads(job.code) if job.code else load(inputs[job.key])  # noqa: S301
            if len(self._known) >= FUNCTIONS_MOST:
                del self._known[next(iter(self._known))]
            self._known[job.code or job.key] = function
        return function


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, inputs: Inputs) -> None:
        super().__init__(io.BytesIO(data))
        self._inputs = inputs

    def persistent_load(self, key: str) -> Any:
        return load(self._inputs[key])


def arguments(data: bytes, inputs: Inputs) -> Arguments:
    if not inputs:
        return pickle.loads(data)  # type: ignore[no-any-return]  # noqa: S301
    return _Unpickler(data, inputs).load()  # type: ignore[no-any-return]


def load(place: bytes | str) -> Any:
    """A value by the bytes of its pickle, or by the path of a file with them."""
    if isinstance(place, bytes):
        return pickle.loads(place)  # noqa: S301
    try:
        with open(place, "rb") as file:  # noqa: PTH123
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputLost(f"{place}: {error.strerror}") from error
    with view:
        return pickle.loads(view)  # noqa: S301


# -- what comes of a call ---------------------------------------------------------------------------------


def returned(value: object, name: str) -> bytes:
    """Raises PicklingError, or ValueError for what is too large."""
    try:
        data = pickle.dumps(value, _PROTOCOL)
    except Exception:  # of a class or function that the other side cannot import, say: those go by value
        data = _by_value(value, name)
    if len(data) > VALUE_MOST_BYTES:
        raise ValueError(
            f"{name} returned {len(data)} bytes; at most {VALUE_MOST_BYTES} are kept: write it to a file"
        )
    return data


def _by_value(value: object, name: str) -> bytes:
    try:
        return cloudpickle.dumps(value, _PROTOCOL)  # type: ignore[no-any-return]
    except Exception as error:
        kind = type(value)
        raise pickle.PicklingError(
            f"{name} returned a {kind.__module__}.{kind.__qualname__}, which cannot be pickled: {error}"
        ) from error


def raised(error: BaseException, trace: str) -> bytes:
    """Of (the exception, its traceback), with a stand-in for an exception that cannot make the journey."""
    try:
        data: bytes = cloudpickle.dumps((error, trace), _PROTOCOL)
        pickle.loads(data)  # noqa: S301
    except Exception:
        kind = type(error)
        stand_in = RuntimeError(f"{kind.__module__}.{kind.__qualname__}: {_words(error)}")
        return pickle.dumps((stand_in, trace), _PROTOCOL)
    return data


def trace_of(error: BaseException) -> str:
    """Without the frame of the interpreter that made the call."""
    trace = error.__traceback__
    below = trace.tb_next if trace is not None else None
    return "".join(traceback.format_exception(type(error), error, below or trace))


def note_of(error: BaseException) -> str:
    """One line for people."""
    first, *_ = _words(error).splitlines() or [""]
    note = f"{type(error).__name__}: {first}" if first else type(error).__name__
    note = note if len(note) <= NOTE_MOST else note[: NOTE_MOST - 1] + "…"
    return "".join(character if character.isprintable() else " " for character in note)


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as fault:
        return f"(its message cannot be had: {type(fault).__name__})"
