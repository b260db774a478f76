"""Snapshots of the dictionaries: what is known of a job <-> parts, one row after the other."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy

import msgspec

from tercel.core.changes import Change, LiveJob, Noted, SpanConcluded
from tercel.core.conditions import ConditionRow
from tercel.core.intervals import Range
from tercel.core.reports import Outcome, Output, Report
from tercel.stores.codes import BLAME_CODES, BLAMES, END_CODES, ENDS, STAGE_CODES, STATE_CODES, STATES
from tercel.stores.memory.books import Books
from tercel.stores.memory.tasks import Tasks
from tercel.stores.snapshot.contract import ROWS, Placed, Reading
from tercel.stores.snapshot.filing import file_parts
from tercel.stores.snapshot.records import (
    BlockedPart,
    CallsPart,
    HistoryPart,
    HistoryRow,
    JobsPart,
    LinesPart,
    NotesPart,
    OutcomeRow,
    OutcomesPart,
    SegmentPart,
    SpansPart,
    ValuePart,
)

_encode = msgspec.msgpack.Encoder().encode
_decode_output = msgspec.msgpack.Decoder(Output).decode


class MemoryReading(Reading):
    """A copy of everything: nobody changes it."""

    def __init__(self, books: Books) -> None:
        self._books = deepcopy(books)

    def job_ids(self, owner: str | None) -> list[int]:
        return sorted(row.id for row in self._books.jobs.values() if owner is None or row.owner == owner)

    def flow_ids(self, flow: int) -> list[int]:
        return sorted(row.id for row in self._books.jobs.values() if row.flow == flow)

    def live(self, job: int) -> LiveJob | None:
        return self._books.live(self._books.jobs[job]) if job in self._books.jobs else None

    def condition(self, id: int) -> ConditionRow | None:
        return self._books.conditions.get(id)

    def value(self, key: str) -> Iterator[ValuePart]:
        pieces = self._books.values.get(key, {})
        ends = [number for number, (_, last) in pieces.items() if last]
        numbers = range(min(ends) + 1 if ends else 0)
        if pieces.keys() >= set(numbers):
            for number in numbers:
                yield ValuePart(key, number, *pieces[number])

    def parts(self, job: int) -> Iterator[JobsPart]:
        books, tasks = self._books, self._books.tasks[job]
        starts = _starts(books.jobs[job].ranges)
        for at, first in starts:
            if lines := books.lines.get(job, ())[at : at + ROWS]:
                yield LinesPart(job, first, list(lines))
        for at, first in starts:
            if calls := books.calls.get(job, ())[at : at + ROWS]:
                yield CallsPart(job, first, list(calls))
        yield from self._ends(job, _earlier(tasks), tasks)
        yield from self._ends(job, [outcome for _, outcome in sorted(tasks.outcomes.items())], None)
        if tasks.spans:
            spans = sorted(tasks.spans, key=lambda span: span.first)
            yield SpansPart(job, [_span(span) for span in spans])
        for stage in STAGE_CODES:
            waiting = [
                (first, last, condition, 0.0)
                for (condition, met), blocked in tasks.blocked.items()
                for first, last in blocked.ranges()
                if met is stage
            ]
            if waiting:
                yield BlockedPart(job, sorted(waiting), stage)
        if tasks.notes:
            told = [
                (first, last, note.at, note.what, note.note)
                for note in tasks.notes
                for first, last in note.ranges
            ]
            yield NotesPart(job, told)
        yield from file_parts(books.catalogue, books.jobs[job])

    def _ends(self, job: int, outcomes: list[Outcome], tasks: Tasks | None) -> Iterator[JobsPart]:
        """`tasks` with those of history."""
        for at in range(0, len(outcomes), ROWS):
            some = outcomes[at : at + ROWS]
            names = dict(enumerate(sorted({outcome.worker for outcome in some})))
            numbers = {name: number for number, name in names.items()}
            rows = [_row(outcome, numbers) for outcome in some]
            if tasks is None:
                yield OutcomesPart(job, names, rows)
            else:
                more = [_more(outcome, tasks) for outcome in some]
                yield HistoryPart(job, names, [(*row, *two) for row, two in zip(rows, more, strict=True)])
            for outcome in some:
                report = outcome.report
                if not any(kept and kept.segments for kept in (report.out, report.err, report.value)):
                    continue
                yield from self.segments(report.attempt)

    def segments(self, attempt: int) -> Iterator[SegmentPart]:
        for stream in ("err", "out", "value"):
            for number, data in sorted(self._books.segments.get((attempt, stream), {}).items()):
                yield SegmentPart(attempt, stream, number, data)


def _starts(ranges: Iterable[Range]) -> list[tuple[int, int]]:
    """Where parts of what each task has begin: in the list of all, and at which task."""
    found, passed = [], 0
    for low, high in ranges:
        found += [(passed + first - low, first) for first in range(low, high + 1, ROWS)]
        passed += high - low + 1
    return found


def _earlier(tasks: Tasks) -> list[Outcome]:
    """By task and attempt, without those that are their task's record."""
    return [
        outcome
        for task, attempts in sorted(tasks.history.items())
        for attempt, outcome in sorted(attempts.items())
        if task not in tasks.outcomes or tasks.outcomes[task].report.attempt != attempt
    ]


def _row(outcome: Outcome, workers: dict[str, int]) -> OutcomeRow:
    report = outcome.report
    return (
        report.task,
        report.attempt,
        STATE_CODES[outcome.state],
        workers[outcome.worker],
        END_CODES[report.end],
        report.code,
        report.started_at,
        outcome.ended_at,
        report.wall_s,
        report.cpu_s,
        report.max_rss_bytes,
        report.note or None,
        report.exceeded or None,
        None if report.out is None else _encode(report.out),
        None if report.err is None else _encode(report.err),
        None if report.value is None else _encode(report.value),
    )


def _more(outcome: Outcome, tasks: Tasks) -> tuple[int | None, int]:
    report = outcome.report
    blame = None if outcome.blame is None else BLAME_CODES[outcome.blame]
    return blame, int(report.attempt in tasks.spent.get(report.task, ()))


def _span(span: SpanConcluded) -> tuple[int, int, int, float, str, int]:
    return span.first, span.last, STATE_CODES[span.state], span.at, span.reason, END_CODES[span.end]


# --- staging


def adopt(books: Books, parts: Sequence[Placed], changes: Sequence[Change]) -> None:
    """All that was staged, and the changes that make it visible."""
    for change in changes:
        books.apply(change)
    for part, attempt in parts:
        _keep(books, part, attempt)


def _keep(books: Books, part: JobsPart, attempt: int) -> None:
    match part:
        case LinesPart(job, _, lines):
            books.lines[job] += tuple(lines)
        case CallsPart(job, _, calls):
            books.calls[job] += tuple(calls)
        case OutcomesPart(job, names, rows):
            for number, row in enumerate(rows, attempt):
                books.tasks[job].outcomes[row[0]] = _outcome(job, number, names, row)
        case HistoryPart(job, names, earlier):
            for number, past in enumerate(earlier, attempt):
                books.tasks[job].history[past[0]][number] = _past(job, number, names, past)
                if past[17]:
                    books.tasks[job].spent[past[0]].add(number)
        case SegmentPart(number, stream, at, data):
            books.segments[number, stream][at] = data
        case SpansPart(job, spans):
            books.tasks[job].spans += [
                SpanConcluded(job, first, last, STATES[state], since, reason, ENDS[end])
                for first, last, state, since, reason, end in spans
            ]
        case BlockedPart(job, blocked, stage):
            for first, last, condition, _ in blocked:
                books.tasks[job].block([(first, last)], condition, stage)
        case NotesPart(job, told):
            books.tasks[job].notes += [
                Noted(job, ((first, last),), since, what, note) for first, last, since, what, note in told
            ]
        case ValuePart(key, number, data, is_last):
            books.values[key][number] = (data, is_last)


def _past(job: int, attempt: int, names: dict[int, str], row: HistoryRow) -> Outcome:
    outcome = _outcome(job, attempt, names, row[:16])
    return outcome if row[16] is None else msgspec.structs.replace(outcome, blame=BLAMES[row[16]])


def _outcome(job: int, attempt: int, names: dict[int, str], row: OutcomeRow) -> Outcome:
    task, _, state, worker, end, code, started_at, ended_at, wall_s, cpu_s, rss, note, exceeded = row[:13]
    out, err, value = (None if blob is None else _decode_output(blob) for blob in row[13:])
    report = Report(
        job,
        task,
        attempt,
        ENDS[end],
        code,
        started_at,
        wall_s,
        cpu_s,
        rss,
        note or "",
        out,
        err,
        value,
        exceeded or "",
    )
    return Outcome(STATES[state], names[worker], ended_at, report)
