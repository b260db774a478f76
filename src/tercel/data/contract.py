"""What is asked of whoever moves bytes, and what comes back; and what each scheme does for it.

Fetch, Deliver                asked by the worker (moving.py), done by transfers (fetching.py, delivering.py)
Scheme, Reading, Seen         one per kind of storage: how bytes of a URL are read, written, renamed, removed
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from tercel.core.errors import TercelError
from tercel.core.files import Trouble
from tercel.data.watches import Watch


class TransferFailed(TercelError):
    """A file could not be moved, and why: see Trouble. `url` without secrets."""

    def __init__(
        self,
        trouble: Trouble,
        url: str,
        note: str,
        not_before_s: float = 0.0,
        errno: str = "",
        bad: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(note)
        self.trouble = trouble
        self.url = url
        self.note = note
        self.not_before_s = not_before_s
        """It asked to be left alone for so long (Retry-After)."""
        self.errno = errno
        """`ENOSPC`: what this node's own system said, where the fault is its own."""
        self.bad = bad
        """Of a fetch: as in Fetched."""


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
    durable: bool = True
    """False: the disk is not waited for. What has its name is whole until the node loses power; who keeps it longer than that
    checks it again after the node was booted."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    """Where it came from."""
    size_bytes: int
    digest: str
    """`blake3:…`, always."""
    bad: tuple[tuple[str, str], ...] = ()
    """Those that were tried in vain for what they have: (URL, why)."""
    validator: str = ""
    """What its storage says of this state of it; empty: it says nothing."""


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """Put a file somewhere: under a temporary name, read back and compared, then renamed. Whole and checked, or not at all."""

    path: str
    url: str
    tag: str
    """Tells this try's temporary name from others': `37.4-1a2b`."""
    stale: tuple[str, ...] = ()
    """Tags of earlier tries that will not be gone on with: what is there under their temporary names is removed first."""
    read_back: bool = True
    """False: believe the size that the storage says it has, where it promises to check what it takes (s3)."""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    size_bytes: int
    digest: str
    """`blake3:…`"""


class Seen(msgspec.Struct, frozen=True):
    """What a storage says of a file."""

    size_bytes: int = -1
    """-1: it does not say."""
    validator: str = ""
    """Another one if the bytes are others: an ETag, a time. Empty: there is no telling."""
    ranges: bool = False
    """Parts of it can be had."""


class Reading(msgspec.Struct, frozen=True):
    """A file that is being read."""

    seen: Seen
    begin: int
    """What comes begins here: where it was asked for, or at 0 if that could not be had."""
    chunks: Iterator[bytes | memoryview]
    """Each is good until the next is taken."""


class Scheme(Protocol):
    """How one kind of storage is spoken to. Called in threads; each call ends when its watch does.

    Raises TransferFailed, or what `faults.failed` makes one of. Makes directories as needed.
    """

    puts_whole: bool
    """What is written appears under its name when it is whole, or not at all: it needs no temporary name."""
    unquotes: bool
    """`%20` in its URLs is a blank."""

    def stat(self, url: str, watch: Watch) -> Seen: ...

    def read(
        self, url: str, watch: Watch, begin: int = 0, end: int = -1, same_as: str = ""
    ) -> AbstractContextManager[Reading]:
        """From `begin`, if it is still what had the validator `same_as`; up to `end` (-1: all). Who needs more than one
        part says what they must be parts of."""

    def write(self, path: str, url: str, watch: Watch) -> None:
        """The file at `path` to there, durable where it can be. What is there already is replaced."""

    def rename(self, url: str, to: str, watch: Watch) -> None:
        """Replaces what is there already. Both are in one directory."""

    def remove(self, url: str, watch: Watch) -> None:
        """Gone already is fine."""
