"""What travels between client and manager about forks: jobs that are replayed from a moment, with some things changed."""

import msgspec

from tercel.core.model import JobSpec


class ForkChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is another in the copies."""

    step: str = ""
    """A job among them, by its name (of study/fit also `fit`) or its number; empty: all of them."""
    fields: list[str] = []
    """Which fields are set ..."""
    spec: JobSpec = JobSpec()
    """... and to what. Variables (env) are added to those that the job has."""
    lines: list[str] | None = None
    """Of a job of lines: others, as many as it has."""
    items: list[str] | None = None
    """Of a job of items, likewise."""


class Fork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    select: list[str]
    """37, 1-5, last or all unfinished: whole jobs. One of a flow brings all of it."""
    at: float | None = None
    """What had finished by then (seconds since 1970) keeps its record; None: by now."""
    changes: list[ForkChange] = []
    only_affected: bool = False
    """Of a job that is changed, only the tasks run again that would run something else than they did; else all."""
    name: str = ""
    """Of the copy, if one job is forked; empty: as it is called."""
    queue: str = ""
    """Of all copies; empty: as they are."""
    hold: bool = False
    """Nothing of the copies starts until it is released."""
    dry_run: bool = False
    """Only tell."""


class ForkedJob(msgspec.Struct, frozen=True, kw_only=True):
    job: int
    id: int
    """Of the copy; 0: none was made."""
    name: str
    tasks: int
    kept: int
    """Of these tasks: they keep their records. The others run again, each for one of these reasons."""
    unfinished: int
    """They had not finished."""
    changed: int
    """What they run is changed."""
    needy: int
    """They need one that runs again."""


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    jobs: list[ForkedJob]
    notes: list[str] = []
    """What is not as it was."""
