"""What tasks that are blocked wait for: plain values, frozen where they travel.

A *condition* is the outside fact: a tester (`tcp:licence.lab:27000`) with its parameters, and where it is asked. Tasks of one
owner that wait for the same share one, and one probe watches it for all of them.
"""

from enum import StrEnum

import msgspec

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
    def key(self) -> tuple[object, ...]:
        """The same for all who wait for the same thing, as patiently: nobody is given up for another's impatience."""
        env = tuple(sorted(self.env.items())) if self.env else ()
        return self.owner, self.tester, self.place, self.where, self.own, self.policy, self.cwd, env


class SwitchRow(msgspec.Struct, frozen=True, kw_only=True):
    """A system or an application that people turned off: `app=matlab`. One that is on is not kept."""

    name: str
    off: str = ""
    """By whom, and why; empty: it is on."""
    since: float = 0.0


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Why a stage of a task could not be done although nothing is wrong with the task."""

    tester: str
    place: Place
    where: str = ""
    own: bool = False
    cwd: str = ""
    env: dict[str, str] = {}
    policy: str = ""
    context: tuple[str, ...] = ()
    """What is known of it, gathered on the way up: for people."""
