"""posix_spawn as libc has it, with arguments and environment encoded once and used again.

os.posix_spawn encodes the whole environment at each call. With the environments of clusters (hundreds of variables)
that costs a spawner a quarter of its own time.
"""

import ctypes
import os
from collections.abc import Iterable, Sequence

_OPAQUE_BYTES = 1024
"""Larger than posix_spawnattr_t and posix_spawn_file_actions_t of any libc (336 and 80 in glibc)."""
_SIGSET_BYTES = 128
_DIGITS = 24
"""Room for any 64-bit number and the NUL after it."""
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80

_libc = ctypes.CDLL(None, use_errno=True)
_posix_spawn = _libc.posix_spawn
_posix_spawn.argtypes = [ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_void_p] * 4]


class Strings:
    """A list of strings as C has it, ending in NULL, of which some end in a number that changes.

    One more may be added, and replaced by another one.
    """

    __slots__ = ("_added", "_array", "_fixed", "_numbered", "_places", "address")

    def __init__(self, fixed: Sequence[bytes], numbered: Sequence[bytes] = ()) -> None:
        """`numbered` strings come last; `number` completes them."""
        if any(b"\0" in string for string in fixed):  # C would take the part before it without a word
            raise ValueError("a NUL byte in its arguments or environment")
        self._fixed = [ctypes.create_string_buffer(string) for string in fixed]
        self._numbered = [ctypes.create_string_buffer(string, len(string) + _DIGITS) for string in numbered]
        strings = [ctypes.addressof(string) for string in (*self._fixed, *self._numbered)]
        self._array = (ctypes.c_void_p * (len(strings) + 2))(*strings)
        self._added: ctypes.Array[ctypes.c_char] | None = None
        self.address = ctypes.addressof(self._array)
        self._places = [memoryview(string).cast("B")[-_DIGITS:] for string in self._numbered]

    def number(self, *numbers: int) -> None:
        """Written in place: an attempt changes three of perhaps hundreds of variables."""
        for place, number in zip(self._places, numbers, strict=True):
            digits = b"%d\0" % number
            place[: len(digits)] = digits

    def add(self, string: bytes) -> None:
        """In the place of the one that was added before."""
        if b"\0" in string:
            raise ValueError("a NUL byte in its environment")
        self._added = ctypes.create_string_buffer(string)
        self._array[len(self._array) - 2] = ctypes.addressof(self._added)


class Starter:
    """Starts processes in sessions of their own, with no signal blocked and none of `defaults` ignored."""

    def __init__(self, defaults: Iterable[int]) -> None:
        self._attributes = _new("posix_spawnattr_init")
        _call(
            "posix_spawnattr_setflags", self._attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID)
        )
        _call("posix_spawnattr_setsigdefault", self._attributes, sigset(defaults))
        _call("posix_spawnattr_setsigmask", self._attributes, sigset(()))
        self._attributes_at = ctypes.addressof(self._attributes)
        self._actions: dict[tuple[int, int], ctypes.Array[ctypes.c_char]] = {}
        """By descriptors: those have the same few numbers again and again."""
        self._pid = ctypes.c_int()
        self._pid_at = ctypes.addressof(self._pid)

    def start(self, path: bytes, arguments: Strings, environment: Strings, out: int, err: int) -> int:
        """Returns the pid. Raises OSError. Its stdin and directory are this process's."""
        actions = self._actions.get((out, err)) or self._redirect(out, err)
        error = _posix_spawn(
            self._pid_at, path, actions, self._attributes_at, arguments.address, environment.address
        )
        if error:
            raise OSError(error, os.strerror(error))
        return self._pid.value

    def _redirect(self, out: int, err: int) -> "ctypes.Array[ctypes.c_char]":
        actions = self._actions[out, err] = _new("posix_spawn_file_actions_init")
        _call("posix_spawn_file_actions_adddup2", actions, out, 1)
        _call("posix_spawn_file_actions_adddup2", actions, err, 2)
        return actions


def sigset(signals: Iterable[int]) -> bytes:
    mask = bytearray(_SIGSET_BYTES)
    for number in signals:
        mask[(number - 1) // 8] |= 1 << (number - 1) % 8
    return bytes(mask)


def _new(initialise: str) -> "ctypes.Array[ctypes.c_char]":
    opaque = ctypes.create_string_buffer(_OPAQUE_BYTES)
    _call(initialise, opaque)
    return opaque


def _call(function: str, *arguments: object) -> None:
    error: int = _libc[function](*arguments)
    if error:
        raise OSError(error, f"{function}: {os.strerror(error)}")
