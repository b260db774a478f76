"""What is said about files of the catalogue."""

import msgspec


class NewFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that is to be registered; of one that is, with the same digest, places that are to be added."""

    name: str
    """`lfn:calib/2026`"""
    digest: str
    """`blake3:…`, best."""
    size_bytes: int
    urls: list[str] = []
    """Where its bytes are; `tercel:` and its digest: at the manager."""


class Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody read a replica from its first byte to its last."""

    name: str
    url: str
    bad: str = ""
    """What was wrong with it, if anything was."""


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    verified_at: float
    bad: str


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: int
    digest: str
    owner: str
    made_at: float
    job: int
    """Which task made it; 0: somebody added it."""
    task: int
    attempt: int


class FileStanding(FileEntry, frozen=True, kw_only=True):
    """All that is known of a file."""

    replicas: list[ReplicaView]
    readers: list[int]
    """Jobs whose tasks read it, or may: the newest first."""


class FileList(msgspec.Struct, frozen=True, kw_only=True):
    files: list[FileEntry]
    more: bool
    """Whether there are further ones behind the last."""


class FilesRemoved(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    urls: list[str]
    """Where its bytes were said to be. What is not at the manager stays there."""
