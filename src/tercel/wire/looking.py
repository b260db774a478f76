"""What a worker is asked about its own directory, and what it says of it. See messages.Look and Seen.

    asked             answered
    AtDirectory       Contents
    AtSandbox         Listing
    AtFile, AtLog     Tail
    any               Unseen: why not

Whoever answers keeps to the limits below; whoever hears it checks them. Names of files are what tasks made them: any
text. Bytes that are no text are told as \\xNN.
"""

import msgspec

TAIL_BYTES = 64 * 1024
"""The most of a file that is told: its end."""
FILES_MOST = 2000
"""In one listing."""
NAMES_BYTES = 256 * 1024
"""Of all names in it."""
KEPT_MOST = 200
LEFT_MOST = 100
LARGEST_MOST = 5
PATH_MOST = 4096
"""Characters."""
SIZE_MOST = 2**60
TIME_MOST = 1e11
"""Seconds since 1970, or before. A task may give its files any: what is beyond is told as the limit."""


class _Asked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class AtDirectory(_Asked, frozen=True):
    pass


class AtSandbox(_Asked, frozen=True):
    job: int
    task: int
    attempts: list[int]
    """Those that may be shown, oldest first: the newest of them that has a sandbox is."""


class AtFile(_Asked, frozen=True):
    job: int
    task: int
    attempts: list[int]
    path: str
    """Below the sandbox."""


class AtLog(_Asked, frozen=True):
    pass


What = AtDirectory | AtSandbox | AtFile | AtLog


class _Plain(msgspec.Struct, frozen=True, array_like=True):
    pass


class Entry(_Plain, frozen=True):
    """Something in a part, with all that is below it."""

    name: str
    size_bytes: int
    """That it takes on the disk."""
    changed_at: float
    task: str = ""
    """The one that runs in it, as 37.4."""


class Part(_Plain, frozen=True):
    """Of a worker's directory."""

    name: str
    size_bytes: int
    entries: int
    """Files, directories and links, at any depth."""
    oldest_at: float
    """When the oldest of what is directly in it was last changed; 0: it is empty."""
    largest: list[Entry]
    cut: str = ""
    """Why there is more than these numbers say, if so."""


class KeptSandbox(_Plain, frozen=True):
    job: int
    task: int
    attempt: int
    since: float
    size_bytes: int
    entries: int
    cut: str = ""


class Left(_Plain, frozen=True):
    """What no attempt that the worker knows of needs."""

    kind: str
    """One of KINDS."""
    name: str
    """Below the worker's directory."""
    size_bytes: int
    since: float


KINDS = ("output", "sandbox", "trash", "kept", "foreign")
"""An output that nobody waits for; a sandbox of an earlier process; what is long in the trash; what is among the kept
sandboxes and is none; what Tercel did not put there."""


class _Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class Contents(_Answer, frozen=True):
    dir: str
    disk_bytes: int
    free_bytes: int
    reports: int
    """That are not acknowledged."""
    reports_since: float
    """When the oldest of them ended; 0: there are none, or none that ever began."""
    parts: list[Part]
    kept: list[KeptSandbox]
    """Newest first."""
    left: list[Left]
    """Largest first."""
    log: str = ""
    """The file that it logs into, if it does."""


class File(_Plain, frozen=True):
    path: str
    kind: str
    """file, directory, link or other."""
    size_bytes: int
    changed_at: float


class Listing(_Answer, frozen=True):
    attempt: int
    dir: str
    running: bool
    """It may change while it is looked at."""
    since: float
    files: list[File]
    kept: list[int]
    """All attempts, of those that were asked for, whose sandboxes are kept."""
    cut: str = ""
    """Why that is not all, if so."""


class Tail(_Answer, frozen=True):
    path: str
    size_bytes: int
    offset: int
    """How many bytes precede these."""
    changed_at: float
    data: bytes


class Unseen(_Answer, frozen=True):
    why: str
    passing: bool = False
    """Asking again may help."""


Found = Contents | Listing | Tail | Unseen
