"""The catalogue in dictionaries: see the contract, and `sqlite.files` for the fast one."""

from collections.abc import Iterable, Sequence

import msgspec

from tercel.core.changes import (
    FileRegistered,
    FileRemoved,
    LeftRemoved,
    MadeUndone,
    ReplicaRemoved,
    ReplicaSet,
)
from tercel.core.files import KEPT, FileRow, ReplicaRow, is_makers
from tercel.core.intervals import IntervalSet, Range
from tercel.stores.contract import Catalogued, matcher

FileChange = FileRegistered | FileRemoved | ReplicaSet | ReplicaRemoved | MadeUndone | LeftRemoved


class Files:
    def __init__(self) -> None:
        self.files: dict[str, FileRow] = {}
        self.replicas: dict[str, dict[str, ReplicaRow]] = {}
        """By name and URL."""
        self.left: set[tuple[int, int, str]] = set()
        """(job, task, URL)"""

    def apply(self, change: FileChange) -> None:
        match change:
            case FileRegistered(file, urls):
                known = self.files.setdefault(file.name, file)
                if known.digest == file.digest:
                    made = is_makers(known, file)
                    for url in urls:
                        self._put(ReplicaRow(name=file.name, url=url, verified_at=file.made_at, made=made))
            case FileRemoved(name):
                self.remove(name)
            case ReplicaSet(replica):
                if replica.name in self.files:
                    self._put(replica)
            case ReplicaRemoved(name, url):
                self.replicas.get(name, {}).pop(url, None)
            case MadeUndone(job, ranges):
                self._undo(job, IntervalSet(ranges))
            case LeftRemoved(job, task):
                self.left = {one for one in self.left if one[:2] != (job, task)}

    def _put(self, replica: ReplicaRow) -> None:
        """It is not to be removed, then, whoever left it."""
        places = self.replicas.setdefault(replica.name, {})
        made = replica.made or (replica.url in places and places[replica.url].made)
        places[replica.url] = msgspec.structs.replace(replica, made=made)
        self.left = {one for one in self.left if one[2] != replica.url}

    def remove(self, name: str) -> None:
        self.files.pop(name, None)
        self.replicas.pop(name, None)

    def _undo(self, job: int, tasks: IntervalSet) -> None:
        undone = [row for row in self.files.values() if job and row.job == job and row.task in tasks]
        for row in undone:
            urls = self.replicas.get(row.name, {})
            # What is kept at the manager goes by itself.
            gone = [url for url, replica in urls.items() if replica.made and not url.startswith(KEPT)]
            self.left |= {(job, row.task, url) for url in gone}
            self.remove(row.name)
        self.left = {one for one in self.left if not self.names_at([one[2]])}

    def named(self, names: Iterable[str]) -> list[Catalogued]:
        return [
            Catalogued(self.files[name], tuple(row for _, row in sorted(self.replicas.get(name, {}).items())))
            for name in dict.fromkeys(names)
            if name in self.files
        ]

    def from_name(self, *, prefix: str, pattern: str, after: str, limit: int) -> list[FileRow]:
        matches = matcher(pattern)
        found = [
            row
            for name, row in sorted(self.files.items())
            if name.startswith(prefix) and name > after and matches(name)
        ]
        return found[:limit]

    def made_by(self, job: int, ranges: Sequence[Range], after: tuple[int, str], limit: int) -> list[FileRow]:
        tasks = IntervalSet(ranges)
        made = [row for row in self.files.values() if job and row.job == job and row.task in tasks]
        ordered = sorted(made, key=lambda row: (row.task, row.name))
        return [row for row in ordered if (row.task, row.name) > after][:limit]

    def names_at(self, urls: Iterable[str]) -> dict[str, list[str]]:
        found = {url: sorted(name for name, places in self.replicas.items() if url in places) for url in urls}
        return {url: names for url, names in found.items() if names}

    def left_of(self, job: int) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for _, task, url in sorted(one for one in self.left if one[0] == job):
            found.setdefault(task, []).append(url)
        return found
