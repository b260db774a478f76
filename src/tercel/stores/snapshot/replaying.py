"""Parts of a job as it stood at a moment: what happened since is left out, and so is all of tasks that are to run again.

A task that has run since, or is to, has the record that it had then among its earlier attempts: it is put back among the
records, which stand in the order of their tasks.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tercel.core.intervals import IntervalSet
from tercel.stores.snapshot.contract import ROWS
from tercel.stores.snapshot.records import (
    CallsPart,
    HistoryPart,
    HistoryRow,
    JobsPart,
    LinesPart,
    OutcomeRow,
    OutcomesPart,
    SegmentPart,
)

ENDED_AT: Final = 7
"""Of the columns of a row."""


class _PutBack(msgspec.Struct):
    """A record of then."""

    row: OutcomeRow
    worker: str
    spoke: bool = False
    """Whether there are pieces of its output. They are read again when it is put back: together they may be very large."""


class Replaying:
    """Of one job; `at` None: as it is now. `kept`: tasks that keep their records; `chosen`: which of their earlier attempts, if not the record of now."""

    def __init__(
        self,
        job: int,
        at: float | None,
        kept: IntervalSet,
        chosen: Mapping[int, int],
        lines: Sequence[str] | None,
        segments: Callable[[int], Iterable[SegmentPart]],
    ) -> None:
        self._job = job
        self._at = at
        self._kept = kept
        self._chosen = chosen
        self._lines = lines
        """In the place of the job's own, if there are others."""
        self._segments = segments
        """Of an attempt."""
        self._back: dict[int, _PutBack] = {}
        """By task, ascending, as they are met."""
        self._awaited: dict[int, _PutBack] = {}
        """By attempt, those of the part before."""
        self._told: set[int] = set()
        """Attempts in the part before."""

    def parts(self, parts: Iterable[JobsPart]) -> Iterator[JobsPart]:
        """What tasks wait for, and what else befell them, is not copied; nor are files, each of which one task made."""
        for part in parts:
            match part:
                case LinesPart(job, first, lines):
                    own = lines if self._lines is None else self._lines[first : first + len(lines)]
                    yield LinesPart(job, first, list(own))
                case CallsPart():
                    yield part
                case HistoryPart():
                    yield from self._history(part)
                case OutcomesPart():
                    yield from self._outcomes(part)
                case SegmentPart(attempt) if attempt in self._told:
                    yield part
                case SegmentPart(attempt) if attempt in self._awaited:
                    self._awaited[attempt].spoke = True
        yield from self._rest()

    def _history(self, part: HistoryPart) -> Iterator[HistoryPart]:
        rows: list[HistoryRow] = []
        self._awaited = {}
        for row in part.rows:
            if row[0] not in self._kept:
                continue
            if self._chosen.get(row[0]) == row[1]:
                back = _PutBack(row[:16], part.workers[row[3]])
                self._back[row[0]] = self._awaited[row[1]] = back
            elif self._at is None or row[ENDED_AT] <= self._at:
                rows.append(row)
        self._told = {row[1] for row in rows}
        if rows:
            yield msgspec.structs.replace(part, rows=rows)

    def _outcomes(self, part: OutcomesPart) -> Iterator[JobsPart]:
        rows = [row for row in part.rows if row[0] in self._kept and row[0] not in self._chosen]
        last = part.rows[-1][0]
        back = list(itertools.takewhile(lambda task: task <= last, self._back))
        yield from self._joined(dict(part.workers), rows, back)

    def _rest(self) -> Iterator[JobsPart]:
        tasks = list(self._back)
        for at in range(0, len(tasks), ROWS):
            yield from self._joined({}, [], tasks[at : at + ROWS])

    def _joined(
        self, workers: dict[int, str], rows: list[OutcomeRow], tasks: Sequence[int]
    ) -> Iterator[JobsPart]:
        """Records of now, and those that are put back."""
        self._awaited = {}
        self._told = {row[1] for row in rows}
        spoke: list[int] = []
        numbers = {name: number for number, name in workers.items()}
        free = itertools.count(max(workers, default=0) + 1)
        for task in tasks:
            back = self._back.pop(task)
            if back.worker not in numbers:
                numbers[back.worker] = next(free)
            rows.append((*back.row[:3], numbers[back.worker], *back.row[4:]))
            if back.spoke:
                spoke.append(back.row[1])
        if rows:
            rows.sort(key=lambda row: row[0])
            yield OutcomesPart(self._job, {number: name for name, number in numbers.items()}, rows)
            for attempt in spoke:
                yield from self._segments(attempt)
