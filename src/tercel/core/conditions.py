"""What tasks that are blocked wait for: plain values, frozen where they travel.

A *condition* is the outside fact: a tester (`tcp:licence.lab:27000`) with its parameters, and where it is asked. Tasks of one
owner that wait for the same share one, and one probe watches it for all of them.
"""

from enum import StrEnum

import msgspec

from tercel.core.intervals import Range
from tercel.core.states import Stage

EVERYWHERE = "*"
FIRST_WAVE = 10
"""So many tasks are released at first when a condition has cleared."""


class Place(StrEnum):
    """Where a tester is asked."""

    MANAGER = "manager"
    SITE = "site"
    """On any worker of the site where tasks were blocked."""
    WORKER = "worker"
    """On the worker where they were."""
    HERE = "here"
    """By the manager's own books: no probe goes out."""


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """What a tester found."""

    cleared: bool
    room: int = 0
    """Cleared: for so many tasks; 0: for all."""
    note: str = ""
    """For people: what it saw."""
    not_before_s: float = 0.0
    """It asks not to be asked again for so long."""


class ConditionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition as it is kept."""

    id: int
    owner: str
    tester: str
    """`tcp:licence.lab:27000`, as its kind writes it."""
    place: Place = Place.SITE
    where: str = ""
    """The site's name (EVERYWHERE: any), or the worker's."""
    own: bool = False
    """It is a fault of that worker alone: nobody waits for it who can run elsewhere."""
    cwd: str = ""
    """Of a command."""
    env: dict[str, str] = {}
    policy: str = ""
    opened_at: float = 0.0
    arose_at: float = 0.0
    """When tasks first waited for it; `opened_at` begins anew when it has cleared to some avail."""
    asked: int = 0
    """How often it was tested, in all ..."""
    tests: int = 0
    """... and in vain, since it arose or was last seen to have cleared to some avail."""
    tested_at: float = 0.0
    next_test_at: float = 0.0
    note: str = ""
    """What the last test saw."""
    paused: str = ""
    """By whom it is not tested for now, if so ..."""
    paused_at: float = 0.0
    """... and since when."""
    wave: int = FIRST_WAVE
    """How many tasks are released at the next clearing."""
    closed_at: float | None = None
    closed: str = ""
    """How it ended."""

    @property
    def key(self) -> "Key":
        return self.owner, *_sought(self)


class SwitchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A system or an application that people turned off: `app=matlab`. One that is on is not kept."""

    name: str
    off: str = ""
    """By whom, and why; empty: it is on."""
    since: float = 0.0


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a stage of a task could not be done although nothing is wrong with the task."""

    stage: Stage = Stage.RUN
    """In which it was met. It is no part of the condition: tasks that met the same in other stages wait for the same."""
    tester: str
    place: Place
    where: str = ""
    own: bool = False
    cwd: str = ""
    env: dict[str, str] = {}
    policy: str = ""
    context: tuple[str, ...] = ()
    """What is known of it, gathered on the way up: for people."""
    not_before_s: float = 0.0
    """It asked to be left alone for so long."""

    def key(self, owner: str) -> "Key":
        """Of the condition that an owner's tasks with this fault wait for."""
        return owner, *_sought(self)


class Postponed(msgspec.Struct, frozen=True, array_like=True):
    """Tasks that were blocked when they were held: when they are released, they are so again."""

    fault: Fault
    ranges: tuple[Range, ...]


Key = tuple[object, ...]
"""The same for all who wait for the same thing, as patiently: nobody is given up for another's impatience."""


def _sought(of: ConditionRow | Fault) -> Key:
    env = tuple(sorted(of.env.items())) if of.env else ()
    return of.tester, of.place, of.where, of.own, of.policy, of.cwd, env


def fault_of_condition(row: ConditionRow, stage: Stage) -> Fault:
    """What those met who wait for it and met it in this stage."""
    return Fault(
        stage=stage,
        tester=row.tester,
        place=row.place,
        where=row.where,
        own=row.own,
        cwd=row.cwd,
        env=row.env,
        policy=row.policy,
    )
