"""Digests while data streams: blake3 always, and another algorithm if what is asked for is of that."""

import hashlib
from typing import Protocol

from blake3 import blake3


class _Hash(Protocol):
    def update(self, data: bytes | memoryview, /) -> object: ...

    def hexdigest(self) -> str: ...


class Digests:
    def __init__(self, asked: str = "") -> None:
        self._asked = asked
        self._own: _Hash = blake3()
        algorithm = asked.partition(":")[0]
        self._other: _Hash | None = None
        if algorithm and algorithm != "blake3":
            self._other = hashlib.new(algorithm, usedforsecurity=False)

    def update(self, data: bytes | memoryview) -> None:
        self._own.update(data)
        if self._other is not None:
            self._other.update(data)

    @property
    def own(self) -> str:
        return f"blake3:{self._own.hexdigest()}"

    @property
    def wrong(self) -> str:
        """What it is instead of what was asked for; empty: nothing is wrong."""
        if not self._asked:
            return ""
        algorithm = self._asked.partition(":")[0]
        made = self.own if self._other is None else f"{algorithm}:{self._other.hexdigest()}"
        return made if made != self._asked else ""
