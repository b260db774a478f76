"""What is asked of whoever moves bytes, and what comes back."""

import msgspec

from tercel.core.errors import TercelError
from tercel.core.files import Trouble


class TransferFailed(TercelError):
    """A file could not be moved, and why: see Trouble. `url` without secrets."""

    def __init__(
        self, trouble: Trouble, url: str, note: str, not_before_s: float = 0.0, errno: str = ""
    ) -> None:
        super().__init__(note)
        self.trouble = trouble
        self.url = url
        self.note = note
        self.not_before_s = not_before_s
        """It asked to be left alone for so long (Retry-After)."""
        self.errno = errno
        """`ENOSPC`: what this node's own system said, where the fault is its own."""


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """Bring a file. What came of an earlier try that was cut, in `path`.part, is gone on from if the source is still the same."""

    urls: tuple[str, ...]
    """Where it may be had, the best first; others are tried if one fails."""
    path: str
    """Where it is to be, once it is whole and checked."""
    digest: str = ""
    """What it must have; empty: whatever it has."""
    size_bytes: int = -1
    """Likewise; -1: not known."""
    most_bytes: int = 2**50
    """It is not fetched further than this."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    """Where it came from."""
    size_bytes: int
    digest: str
    """`blake3:…`, always."""
    bad: tuple[tuple[str, str], ...] = ()
    """Those that were tried in vain for what they have: (URL, why)."""


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """Put a file somewhere: under a temporary name, read back and compared, then renamed. Whole and checked, or not at all."""

    path: str
    url: str
    tag: str
    """Tells this try's temporary name from others': `37.4-1a2b`."""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    size_bytes: int
    digest: str
    """`blake3:…`"""
