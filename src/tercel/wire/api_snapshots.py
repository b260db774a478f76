"""What is said about snapshots."""

import msgspec


class SnapshotView(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that the manager took by itself."""

    number: int
    id: str
    """Of this snapshot, wherever it is copied."""
    saved_at: float
    why: str
    jobs: int
    numbers: list[int] = []
    """Of these jobs; of very many the first ones."""
    tasks: int
    ended: int
    """Of these tasks."""
    size_bytes: int


class SnapshotList(msgspec.Struct, frozen=True, kw_only=True):
    snapshots: list[SnapshotView]
    """Newest first."""


class Restoration(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a snapshot that was restored."""

    id: str
    jobs: list[tuple[int, int]]
    """(its number in the snapshot, its number here)"""
    conditions: list[tuple[int, int]] = []
    """What tasks are blocked on, likewise. Several may be one here, which others wait for too."""
    tasks: int
    unfinished: int
    """Of these tasks: they go on now."""
    notes: list[str] = []
    """What is not as it was."""
