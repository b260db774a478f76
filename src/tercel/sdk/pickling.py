"""Functions and their arguments as pickles, with what does not travel in them.

    a future of ours, wherever in the arguments    a persistent id: the key of the value it stands for
    an argument whose pickle is large              likewise: uploaded once, named by its digest

Most arguments are plain data, for which the ordinary pickler does in 2 us what cloudpickle does in 30. It is good enough
unless it finds something of `__main__`: by name that would mean something else on a worker, so it must go by value.
"""

import hashlib
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]
from cloudpickle.cloudpickle import list_registry_pickle_by_value  # type: ignore[import-untyped]

from tercel.core.commands import MAX_CALL_BYTES, MAX_NAME
from tercel.core.model import Call, Function

LARGE_BYTES = 64 * 1024
PROTOCOL = 5
MANY = 10_000
"""So many futures surely fit into one call."""
_NOT_KNOWN = "t0.0"
"""Stands for a future whose task has no number yet; what has one in it is pickled again before it is sent."""


class Referable:
    """What stands in a pickle as a key."""

    @property
    def key(self) -> str:
        """Empty if it is not known yet."""
        raise NotImplementedError


class PickledCall(NamedTuple):
    call: Call
    blobs: dict[str, bytes]
    """Values to upload, by key."""
    needs: list[Referable]
    """The futures in it."""

    @property
    def settled(self) -> bool:
        """Whether it can be sent: the tasks of all its futures had their numbers when it was pickled."""
        return _NOT_KNOWN not in self.call.values


class _Blob(Referable):
    def __init__(self, data: bytes) -> None:
        self._key = key_of(data)

    @property
    def key(self) -> str:
        return self._key


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=PROTOCOL)
        self.found: dict[int, Referable] = {}
        self.keys: dict[str, None] = {}
        """As they stand in the pickle. A future may have got its number since: then asking it would tell another."""

    def persistent_id(self, value: object) -> str | None:
        if not isinstance(value, Referable):
            return None
        key = value.key or _NOT_KNOWN
        self.found[id(value)] = value
        self.keys[key] = None
        return key


def key_of(data: bytes) -> str:
    return "b" + hashlib.sha256(data).hexdigest()


def pickle_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PickledCall:
    """Raises whatever pickling raises, and ValueError for arguments that are too large to send."""
    data = _plain((args, kwargs))
    if data is not None:
        return PickledCall(Call(data), {}, [])
    data, found, keys = _dump((args, kwargs))
    blobs: dict[str, bytes] = {}
    if len(data) > LARGE_BYTES:
        light_args = tuple(_lightened(value, blobs) for value in args)
        light_kwargs = {name: _lightened(value, blobs) for name, value in kwargs.items()}
        data, found, keys = _dump((light_args, light_kwargs))
    needs = [value for value in found if not isinstance(value, _Blob)]
    if len(data) + sum(map(len, keys)) > MAX_CALL_BYTES:
        raise ValueError(_too_large(len(data) + sum(map(len, keys)), len(needs)))
    return PickledCall(Call(data, keys), blobs, needs)


def _too_large(size_bytes: int, needs: int) -> str:
    what = f"the arguments with {needs:,} futures in them take {size_bytes:,} bytes; at most {MAX_CALL_BYTES:,}: "
    if needs > MANY:
        return what + f"merge some {MANY:,} futures to a call, and then what those calls return"
    return what + "give large values as arguments of their own, apart from the futures"


def pickle_function(function: Callable[..., Any]) -> tuple[Function, dict[str, bytes]]:
    """The function as a job has it, and what is to be uploaded for it. Raises whatever pickling raises."""
    data = cloudpickle.dumps(function, PROTOCOL)
    blobs = {key_of(data): data} if len(data) > LARGE_BYTES else {}
    name = getattr(function, "__qualname__", "") or type(function).__qualname__
    pickled = Function(
        code=b"" if blobs else data,
        value=next(iter(blobs), ""),
        name="".join(letter for letter in name if letter.isprintable())[:MAX_NAME],
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        path=_path(),
    )
    return pickled, blobs


def _path() -> tuple[str, ...]:
    """Where the program itself finds its modules, beside what is installed: its own directory, and where it runs."""
    places = [str(Path(sys.path[0] if sys.path else "").absolute()), str(Path.cwd())]
    return tuple(dict.fromkeys(places))


def _plain(value: object) -> bytes | None:
    try:
        data = pickle.dumps(value, PROTOCOL)
    except Exception:  # whatever it is: cloudpickle either can, or says what is wrong
        return None
    if len(data) > LARGE_BYTES or b"__main__" in data or list_registry_pickle_by_value():
        return None
    return data


def _dump(value: object) -> tuple[bytes, list[Referable], tuple[str, ...]]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), list(pickler.found.values()), tuple(pickler.keys)


def _lightened(value: object, blobs: dict[str, bytes]) -> object:
    """The value, or if it is large and has no futures in it, what stands for it."""
    if isinstance(value, Referable):
        return value
    data, found, _ = _dump(value)
    if found or len(data) <= LARGE_BYTES:
        return value
    blob = _Blob(data)
    blobs[blob.key] = data
    return blob
