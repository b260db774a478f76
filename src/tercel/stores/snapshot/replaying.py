"""Parts of a job as it stood at a moment: what happened since is left out, and so is all of tasks that are to run again.

A task that has run since, or is to, has the record that it had then among its earlier attempts: it is put back among the
records, which stand in the order of their tasks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
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
    segments: list[SegmentPart]


class Replaying:
    """Of one job; `at` None: as it is now. `kept`: tasks that keep their records; `chosen`: which of their earlier attempts, if not the record of now."""

    def __init__(
        self,
        job: int,
        at: float | None,
        kept: IntervalSet,
        chosen: Mapping[int, int],
        lines: Sequence[str] | None,
    ) -> None:
        self._job = job
        self._at = at
        self._kept = kept
        self._chosen = chosen
        self._lines = lines
        """In the place of the job's own, if there are others."""
        self._back: dict[int, _PutBack] = {}
        """By task, ascending, as they are met."""
        self._awaited: dict[int, _PutBack] = {}
        """By attempt, those of the part before."""
        self._told: set[int] = set()
        """Attempts in the part before."""

    def parts(self, parts: Iterable[JobsPart]) -> Iterator[JobsPart]:
        """What tasks wait for, and what else befell them, is not copied."""
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
                case SegmentPart(attempt):
                    self._put_by(part)
        yield from self._rest()

    def _history(self, part: HistoryPart) -> Iterator[HistoryPart]:
        rows: list[HistoryRow] = []
        self._awaited = {}
        for row in part.rows:
            if row[0] not in self._kept:
                continue
            if self._chosen.get(row[0]) == row[1]:
                back = _PutBack(row[:16], part.workers[row[3]], [])
                self._back[row[0]] = self._awaited[row[1]] = back
            elif self._at is None or row[ENDED_AT] <= self._at:
                rows.append(row)
        self._told = {row[1] for row in rows}
        if rows:
            yield msgspec.structs.replace(part, rows=rows)

    def _put_by(self, segment: SegmentPart) -> None:
        back = self._awaited.get(segment.attempt)
        if back is not None:
            back.segments.append(segment)

    def _outcomes(self, part: OutcomesPart) -> Iterator[JobsPart]:
        rows = [row for row in part.rows if row[0] in self._kept and row[0] not in self._chosen]
        last = part.rows[-1][0]
        back = list(takewhile(lambda task: task <= last, self._back))
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
        segments: list[SegmentPart] = []
        numbers = {name: number for number, name in workers.items()}
        for task in tasks:
            back = self._back.pop(task)
            number = numbers.setdefault(back.worker, max(numbers.values(), default=0) + 1)
            rows.append((*back.row[:3], number, *back.row[4:]))
            segments += back.segments
        if rows:
            rows.sort(key=lambda row: row[0])
            yield OutcomesPart(self._job, {number: name for name, number in numbers.items()}, rows)
            yield from segments
