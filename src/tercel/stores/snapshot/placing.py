"""Records of a snapshot under the numbers that a manager gave them: jobs, attempts, conditions.

Attempts are numbered anew in the order in which they stand in the file, which is that of their task's history; a task's record
is behind its earlier attempts. What needs a job that is not in the snapshot needs job 0, which nobody ever had: that need was
broken where the snapshot was made, and is here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tercel.core.changes import Edge, FileRegistered
from tercel.core.commands import parse_key
from tercel.core.conditions import ConditionRow
from tercel.core.model import Call, JobRow
from tercel.stores.snapshot.contract import Placed
from tercel.stores.snapshot.filing import placed_files
from tercel.stores.snapshot.records import (
    BlockedPart,
    CallsPart,
    ConditionPart,
    FilesPart,
    Header,
    HistoryPart,
    HistoryRow,
    JobPart,
    LinesPart,
    NotesPart,
    OutcomeRow,
    OutcomesPart,
    Part,
    SegmentPart,
    SpansPart,
    Trailer,
    ValuePart,
)

replace = msgspec.structs.replace
FAR = 1_000_000


class Places(msgspec.Struct, frozen=True):
    """Numbers there -> numbers here."""

    jobs: Mapping[int, int]
    conditions: Mapping[int, int]
    attempt: int
    """The first that is free."""


def new_ids(ids: Iterable[int], free: int) -> dict[int, int]:
    """The same numbers, if all of them are free (from `free` on all are); else the next ones, in the same order.

    Numbers far ahead are not taken: all later ones would have to be beyond them.
    """
    ordered = sorted(ids)
    if not ordered or (ordered[0] >= free and ordered[-1] < free + FAR):
        return {id: id for id in ordered}
    return dict(zip(ordered, range(free, free + len(ordered)), strict=True))


def placed_row(row: JobRow, jobs: Mapping[int, int]) -> JobRow:
    spec = row.spec
    if spec.after:
        after = tuple(replace(one, job=jobs.get(one.job, 0)) for one in spec.after)
        spec = replace(spec, after=after)
    return replace(row, id=jobs[row.id], spec=spec)


def placed_flows(rows: Iterable[JobRow], jobs: Mapping[int, int]) -> dict[int, int]:
    """The flows of a snapshot, each by its first job that is in it."""
    flows: dict[int, int] = {0: 0}
    for row in rows:
        flows.setdefault(row.flow, jobs[row.id])
    return flows


def placed_edges(edges: Iterable[Edge], jobs: Mapping[int, int]) -> tuple[Edge, ...]:
    return tuple((task, jobs.get(job, 0), first, last) for task, job, first, last in edges)


def placed_condition(row: ConditionRow, id: int, saved_at: float, now: float) -> ConditionRow:
    """The time that it spent in the file counts for nothing: neither against patience nor as a pause between tests."""
    away_s = now - saved_at
    return replace(
        row,
        id=id,
        opened_at=row.opened_at + away_s,
        next_test_at=max(now, row.next_test_at + away_s),
        tested_at=row.tested_at + away_s if row.tested_at else 0.0,
        paused_at=row.paused_at + away_s if row.paused else 0.0,
    )


class Placing:
    """All parts of jobs that are right, placed; and the edges and files of its jobs, gathered on the way."""

    def __init__(self, told: Iterable[Part], places: Places, values: Iterable[str]) -> None:
        self._told = told
        self._places = places
        self._values = frozenset(values)
        """Those that are not here yet."""
        self._attempt = places.attempt
        self._numbers: dict[int, int] = {}
        self._before: HistoryPart | OutcomesPart | None = None
        self._first = 0
        self.edges: dict[int, tuple[Edge, ...]] = {}
        """By number here."""
        self.files: list[FileRegistered] = []
        """Not staged: whoever asks for a name would find them."""
        self._owner = ""

    def parts(self) -> Iterator[Placed]:
        for part in self._told:
            match part:
                case Header() | ConditionPart() | Trailer():
                    pass
                case JobPart(row, edges):
                    self._owner = row.owner
                    if edges:
                        self.edges[self._places.jobs[row.id]] = placed_edges(edges, self._places.jobs)
                case HistoryPart() | OutcomesPart():
                    self._before, self._first = part, self._attempt
                    self._numbers = {}
                    self._attempt += len(part.rows)
                    yield replace(part, job=self._places.jobs[part.job]), self._first
                case SegmentPart(attempt):
                    yield replace(part, attempt=self._number(attempt)), 0
                case CallsPart(job, _, calls):
                    placed = [self._call(call) for call in calls]
                    yield replace(part, job=self._places.jobs[job], calls=placed), 0
                case BlockedPart(job, rows, stage):
                    numbers = self._places.conditions
                    waiting = [(first, last, numbers[id], at) for first, last, id, at in rows]
                    yield BlockedPart(self._places.jobs[job], waiting, stage), 0
                case FilesPart(job):
                    self.files += placed_files(part, self._places.jobs[job], self._owner)
                case ValuePart(key):
                    if key in self._values:
                        yield part, 0
                case LinesPart() | SpansPart() | NotesPart():
                    yield replace(part, job=self._places.jobs[part.job]), 0

    def _number(self, attempt: int) -> int:
        """Of an attempt in the part before."""
        if not self._numbers and self._before is not None:
            rows: Sequence[OutcomeRow | HistoryRow] = self._before.rows
            self._numbers = {row[1]: number for number, row in enumerate(rows, self._first)}
        return self._numbers[attempt]

    def _call(self, call: Call) -> Call:
        if not any(key.startswith("t") for key in call.values):
            return call
        values = tuple(map(self._key, call.values))
        # Its pickle is not opened here: it goes on naming them as it did.
        return (
            call if values == call.values else replace(call, values=values, names=call.names or call.values)
        )

    def _key(self, key: str) -> str:
        task = parse_key(key)
        return key if task is None else f"t{self._places.jobs[task[0]]}.{task[1]}"
