"""What the catalogue says now: the store, and what was said since and is on its way there.

Reports come in batches: of two tasks that register one name in the same batch, the second must find it taken. So whoever makes a
change of the catalogue notes it here, and asks here:

    note(change) --> pending --begin--> under way --durable--> the store alone knows it
                        ^                   |
                        +--- could not be saved: it is kept, and goes with the next batch

All is plain and answered at once, on the manager's own thread; a name costs about as much as a look into the store's file.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from heapq import merge

import msgspec

from tercel.core.changes import (
    Change,
    FileRegistered,
    FileRemoved,
    MadeUndone,
    ReplicaRemoved,
    ReplicaSet,
)
from tercel.core.errors import PassingFault
from tercel.core.files import KEPT, FileRow, Location, ReplicaRow, is_makers
from tercel.core.reports import Report
from tercel.stores.contract import Catalogued, Store

log = logging.getLogger("tercel.manager")

FileChange = FileRegistered | FileRemoved | ReplicaSet | ReplicaRemoved | MadeUndone
_Said = tuple[int, FileChange]
"""When, and what."""


class Catalogue:
    def __init__(self, store: Store, holds: Callable[[str], bool] = lambda _: True) -> None:
        """`holds`: whether the manager keeps the bytes of a digest."""
        self._store = store
        self._holds = holds
        self._foreseen: dict[str, Catalogued | None] = {}
        """What the store says of names that are about to be asked for, and ..."""
        self._held: dict[str, bool] = {}
        """... of replicas at the manager, whether it has them. Only while reports are judged."""
        self._said = 0
        """How many changes were noted."""
        self._begun = 0
        """Of these, so many are on their way to the disk."""
        self._by_name: dict[str, list[_Said]] = {}
        self._undone: list[_Said] = []

    # -- what is said of it -------------------------------------------------------------------------------

    def note(self, change: Change) -> None:
        """One that will be handed to the store; any other is passed over."""
        match change:
            case FileRegistered(file):
                name = file.name
            case FileRemoved(name) | ReplicaRemoved(name):
                pass
            case ReplicaSet(replica):
                name = replica.name
            case MadeUndone():
                self._said += 1
                self._undone.append((self._said, change))
                return
            case _:
                return
        self._said += 1
        self._by_name.setdefault(name, []).append((self._said, change))

    def begin(self) -> None:
        """All that was noted is in the batch that is being written."""
        self._begun = self._said

    def forget_foreseen(self) -> None:
        """They have been judged: from now on the store is asked again."""
        self._foreseen, self._held = {}, {}

    def durable(self) -> None:
        """That batch is committed: the store tells it."""
        if not self._by_name and not self._undone:
            return
        self._undone = [said for said in self._undone if said[0] > self._begun]
        left = {name: [one for one in said if one[0] > self._begun] for name, said in self._by_name.items()}
        self._by_name = {name: said for name, said in left.items() if said}

    def foresee(self, reports: Iterable[Report]) -> None:
        """Before the machine judges these: what it will ask is looked up, for it must not meet a fault of the disk. Raises PassingFault."""
        made = [one for report in reports for one in report.files]
        names = list(dict.fromkeys(one.name for one in made if one.name))
        self._foreseen = dict.fromkeys(names)
        self._foreseen |= {found.file.name: found for found in self._store.files(names)}
        urls = {one.url for one in made if one.url.startswith(KEPT)}
        self._held = {url: self._holds(url.removeprefix(KEPT)) for url in urls}

    # -- what it says -------------------------------------------------------------------------------------

    def files(self, names: Iterable[str]) -> list[Catalogued]:
        """Those of these that are there, in this order, each once."""
        asked = list(dict.fromkeys(names))
        if all(name in self._foreseen for name in asked):
            known = ((name, self._foreseen[name]) for name in asked)
            kept = {name: found for name, found in known if found is not None}
        else:
            kept = {found.file.name: found for found in self._store.files(asked)}
        if not self._by_name and not self._undone:
            return list(kept.values())
        now = (self._as_said(name, kept.get(name)) for name in asked)
        return [found for found in now if found is not None]

    def located(self, names: Sequence[str]) -> list[Location]:
        """For a worker: of each name, in order, where it may be had."""
        found = {one.file.name: one for one in self.files(names)}
        return [_location(name, found.get(name)) for name in names]

    def other(self, name: str, digest: str) -> str:
        """For the machine: what other file has a name, in words."""
        row = self.taken([(name, digest)]).get(name)
        if row is None:
            return ""
        made = f"made by {row.job}.{row.task}" if row.job else f"added by {row.owner}"
        return f"{made}, {row.size_bytes:,} bytes"

    def holds(self, url: str) -> bool:
        return not url.startswith(KEPT) or self._held.get(url, True)

    def has(self, name: str) -> bool | None:
        try:
            found = self.files([name])
        except PassingFault as fault:
            log.warning("cannot look for %s: %s", name, fault)
            return None
        return any(not replica.bad for one in found for replica in one.replicas)

    def taken(self, wanted: Iterable[tuple[str, str]]) -> dict[str, FileRow]:
        """Of (name, digest): the names under which other bytes are registered, and what those are."""
        asked = list(wanted)
        rows = {one.file.name: one.file for one in self.files(name for name, _ in asked)}
        return {name: rows[name] for name, digest in asked if name in rows and rows[name].digest != digest}

    def _as_said(self, name: str, found: Catalogued | None) -> Catalogued | None:
        for _, change in merge(self._by_name.get(name, ()), self._undone, key=lambda said: said[0]):
            found = _after(change, found)
        return found


def _location(name: str, found: Catalogued | None) -> Location:
    if found is None:
        return Location(name)
    urls = tuple(replica.url for replica in found.replicas if not replica.bad)
    return Location(name, found.file.digest, found.file.size_bytes, urls)


def _after(change: FileChange, found: Catalogued | None) -> Catalogued | None:
    """What is known of a file when a change was applied to it that may concern it: as in every store."""
    match change:
        case FileRegistered(file, urls):
            found = found or Catalogued(file, ())
            if found.file.digest == file.digest:
                made = is_makers(found.file, file)
                for url in urls:
                    row = ReplicaRow(name=file.name, url=url, verified_at=file.made_at, made=made)
                    found = _with(found, row)
        case _ if found is None:
            pass
        case FileRemoved():
            return None
        case ReplicaSet(replica):
            return _with(found, replica)
        case ReplicaRemoved(_, url):
            return msgspec.structs.replace(found, replicas=_without(found, url))
        case MadeUndone(job, ranges):
            file = found.file
            if file.job == job and any(first <= file.task <= last for first, last in ranges):
                return None
    return found


def _with(found: Catalogued, replica: ReplicaRow) -> Catalogued:
    made = replica.made or any(row.made for row in found.replicas if row.url == replica.url)
    others = (*_without(found, replica.url), msgspec.structs.replace(replica, made=made))
    return Catalogued(found.file, tuple(sorted(others, key=lambda row: row.url)))


def _without(found: Catalogued, url: str) -> tuple[ReplicaRow, ...]:
    return tuple(row for row in found.replicas if row.url != url)
