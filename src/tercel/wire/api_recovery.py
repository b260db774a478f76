"""What travels between client and manager about conditions that blocked tasks wait for. See api."""

import msgspec

from tercel.core.conditions import Place


class ConditionJob(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one job that wait for a condition."""

    job: int
    count: int
    tasks: str
    """0-9,12; of very many ranges the first, and then `…`."""


class ConditionView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    """People write C3."""
    owner: str
    tester: str
    """tcp:licence.lab:27000"""
    place: Place
    where: str
    """The site (`*`: any) or the worker where it is tested, if it is tested there."""
    policy: str
    opened_at: float
    tests: int
    """How often it was tested since it arose."""
    tested_at: float | None
    next_test_at: float | None
    """None: it is paused, or closed."""
    gives_up_at: float | None
    """Its tasks fail then, if it has not cleared. While it is paused, this moves on."""
    note: str
    """What the last test saw."""
    next: str
    """What happens next, in words."""
    paused: str
    """By whom it is not tested for now, if so."""
    wave: int
    """How many tasks are let go when it clears next."""
    testing: bool
    """A test is under way."""
    tasks: int
    """How many wait for it."""
    job_count: int
    """Of how many jobs."""
    jobs: list[ConditionJob]
    """The first hundred of those."""
    closed_at: float | None
    closed: str
    """How it ended, if it has."""


class ConditionList(msgspec.Struct, frozen=True, kw_only=True):
    conditions: list[ConditionView]
    more: bool
    """Older ones follow: ask again with `before` = the last id."""


class ConditionRelease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: int = 0
    """So many tasks; 0: all."""


class ConditionFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    why: str = ""
    """For those who ask why their tasks failed."""


class SwitchView(msgspec.Struct, frozen=True, kw_only=True):
    """A system or an application that is off."""

    name: str
    """app=matlab"""
    off: str
    """By whom, and why."""
    since: float


class SwitchList(msgspec.Struct, frozen=True, kw_only=True):
    switches: list[SwitchView]


class SwitchChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    """app=matlab or system=hpc1"""
    off: bool
    why: str = ""
