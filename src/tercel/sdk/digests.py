"""Digests of bytes as they pass. Loaded only where files are read: most commands have no use for it."""

import hashlib
from typing import Protocol

from blake3 import blake3

OURS = "blake3"


class Hasher(Protocol):
    def update(self, data: bytes, /) -> object: ...

    def hexdigest(self) -> str: ...


class Passed:
    """How many bytes went by, and what their digest is: of the algorithm of another digest, if one is given."""

    def __init__(self, like: str = "") -> None:
        self._algorithm = like.partition(":")[0] or OURS
        self._hasher: Hasher = blake3() if self._algorithm == OURS else hashlib.new(self._algorithm)
        self.size_bytes = 0

    def take(self, piece: bytes) -> None:
        self._hasher.update(piece)
        self.size_bytes += len(piece)

    @property
    def digest(self) -> str:
        return f"{self._algorithm}:{self._hasher.hexdigest()}"

    def difference(self, digest: str, size_bytes: int) -> str:
        """In which it is not what it should be; empty: in nothing."""
        if self.size_bytes > size_bytes:  # whoever counts does not go on for ever
            return f"it has more than {size_bytes:,} bytes"
        if self.size_bytes < size_bytes:
            return f"it has {self.size_bytes:,} bytes, not {size_bytes:,}"
        return "" if self.digest == digest else f"its digest is {self.digest}, not {digest}"
