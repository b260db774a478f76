"""What travels between client and manager about the directories of workers. See api."""

import msgspec


class EntryView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: int
    changed_at: float
    task: str = ""
    """The one that runs in it, as 37.4."""


class PartView(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a worker's directory: spool, outputs, kept, sandboxes, cache, outgoing, values, trash, own (its small files)
    or other."""

    name: str
    size_bytes: int
    """That it takes on the disk."""
    entries: int
    """Files, directories and links, at any depth."""
    oldest_at: float
    """When the oldest of what is directly in it was last changed; 0: it is empty."""
    largest: list[EntryView]
    cut: str = ""
    """Why there is more than these numbers say, if so."""


class KeptView(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox that was kept when its attempt ended."""

    id: str
    """37.4"""
    job: int
    task: int
    attempt: int
    since: float
    size_bytes: int
    entries: int
    path: str
    """On the worker's node."""
    owner: str = ""
    """Of the job; empty: it is not known."""
    known: bool = True
    """False: this manager does not know the job (any more)."""
    recorded: bool = True
    """False: that this worker had such an attempt is not on record. It may have been cancelled, or be one of very many."""
    cut: str = ""


class LeftView(msgspec.Struct, frozen=True, kw_only=True):
    """What nobody owns any more."""

    path: str
    size_bytes: int
    since: float
    why: str
    advice: str
    """What to do about it."""


class DirectoryView(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    node: str
    dir: str
    disk_bytes: int
    """Of the file system that it is on."""
    free_bytes: int
    reports: int
    """Results that no manager has acknowledged yet."""
    reports_since: float
    """When the oldest of them ended; 0: there are none, or none that ever began."""
    parts: list[PartView]
    kept: list[KeptView]
    left: list[LeftView]
    log: str
    """The file that the worker logs into; empty: none."""
    findings: list[str]
    """What is worth a look first, in words."""


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Below the sandbox. It is what the task made it: any text. Bytes that are no text are told as \\xNN."""
    kind: str
    """file, directory, link or other."""
    size_bytes: int
    changed_at: float


class SandboxView(msgspec.Struct, frozen=True, kw_only=True):
    worker: str
    id: str
    attempt: int
    dir: str
    """On the worker's node."""
    running: bool
    since: float
    """When the attempt began, if it runs; else when its sandbox was kept."""
    files: list[FileView]
    kept: list[int]
    """The attempts of this task whose sandboxes are kept there."""
    cut: str = ""
    """Why that is not all, if so."""


class FileTail(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a file."""

    worker: str
    path: str
    size_bytes: int
    offset: int
    """How many bytes precede these."""
    changed_at: float
    data: bytes
    """In JSON: base64."""
