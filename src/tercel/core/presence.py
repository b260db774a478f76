"""What a worker says of itself, and what is kept of workers: plain values, frozen where they travel.

WorkerInfo   when it joins: what does not change while it runs
Facts        with its presence: what does
WorkerRow    what people, and its own faults, have made of it; kept over restarts
Reservation  for whom workers are set aside
"""

from enum import StrEnum

import msgspec

from tercel.core.model import Needs


class WorkerState(StrEnum):
    AVAILABLE = "available"
    BUSY = "busy"
    CLEANING = "cleaning"
    DRAINING = "draining"
    OFFLINE = "offline"


class Gpu(msgspec.Struct, frozen=True, array_like=True):
    id: str
    """As CUDA_VISIBLE_DEVICES takes it."""
    model: str = ""
    mem_bytes: int = 0


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker describes itself when it joins."""

    node: str
    site: str = ""
    capacity: Needs = Needs()
    """All that it gives to tasks."""
    os: str = ""
    arch: str = ""
    python: str = ""
    version: str = ""
    pid: int = 0
    kernel: str = ""
    speed: float = 1.0
    """Of one core, beside the reference."""
    disk_bytes: int = 0
    """Of the file system that its sandboxes are on."""
    gpus: tuple[Gpu, ...] = ()
    containers: tuple[str, ...] = ()
    """Engines that were found."""
    tags: tuple[str, ...] = ()
    indices: dict[str, tuple[str, ...]] = {}
    """Of resources whose pieces have names (each GPU): all names, by resource. A piece is given to one task at a time."""
    time_left_s: float | None = None
    """Until its own end, if it has a time limit."""
    dir: str = ""
    """Where it keeps its sandboxes."""


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """What changes while it runs, as it was measured last."""

    millicpus_free: int = 0
    """What nobody uses, tasks included."""
    mem_free_bytes: int = 0
    disk_free_bytes: int = 0
    load: float = 0.0
    unhealthy: str = ""
    """Why it takes no tasks for now, if so."""
    note: str = ""
    """What people should know of it though it works: that its clock is off, say."""


class Held(msgspec.Struct, frozen=True, array_like=True):
    """One attempt a worker holds when it joins."""

    job: int
    task: int
    attempt: int
    started: bool
    ended: bool
    """Its report is in the spool and follows."""
    parked: bool = False
    """It has run, and waits to be told to go on with delivering what it left, or with registering that."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a worker of this name: nothing, of most."""

    name: str
    quarantined: str = ""
    """By whom or what, and why, if it is: then it takes no tasks but probes."""
    quarantined_at: float = 0.0
    pause_s: float = 0.0
    """So long after that it is given one task, to see; 0: never, for somebody quarantined it by hand."""
    tags: tuple[str, ...] = ()
    """Added to what it says itself ..."""
    lost_tags: tuple[str, ...] = ()
    """... and taken from it."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workers that are set aside for a queue or a user (or both) for a time."""

    id: int
    owner: str
    where: str = ""
    """Which ones, as in a job's `where`; empty: all."""
    queue: str = ""
    user: str = ""
    since: float = 0.0
    until: float = 0.0
    lend: bool = False
    """Others may use them while they would be idle. Nothing of theirs is ended for it: what runs there runs to its end."""
