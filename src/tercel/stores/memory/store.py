"""A store that keeps everything in dictionaries: for tests and simulation, and the reference for the others.

What was written waits in a list until it is committed, so a crash is simply the loss of that list:

    write --> pending --commit--> the dictionaries
                 |
               crash --> gone

It is meant to be obviously right and cheap for small jobs; nothing here is tuned for large ones.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TypeVar

from tercel.core.changes import (
    Change,
    LiveJob,
    Loaded,
    Noted,
)
from tercel.core.conditions import ConditionRow
from tercel.core.filenames import may_mean, names_read
from tercel.core.files import FileRow
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import Call, JobRow
from tercel.core.reports import Outcome
from tercel.core.states import TaskState
from tercel.stores.contract import Catalogued, Cleaned, Compacted, Old, Store, needed_by
from tercel.stores.memory import cleaning, snapshots
from tercel.stores.memory.books import Books
from tercel.stores.snapshot.contract import Placed, Reading
from tercel.stores.snapshot.records import Restored
from tercel.wire.api import ValueRow

T = TypeVar("T")


class MemoryStore(Store):
    def __init__(self) -> None:
        self._lock = Lock()  # questions come from any thread, also during a commit
        self._pending: list[Change] = []
        self._epoch = 0
        self._books = Books()
        self._staged: list[tuple[frozenset[int], Sequence[Placed]]] = []
        """Parts, and of which jobs."""
        self._restored: dict[str, Restored] = {}

    def load(self) -> Loaded:
        with self._lock:
            self._pending.clear()
            self._staged.clear()
            self._epoch += 1
            books = self._books
            jobs = [books.live(books.jobs[job]) for job in sorted(books.unfinished)]
            past = {needed for live in jobs for needed in needed_by(live)} - books.unfinished
            return Loaded(
                epoch=self._epoch,
                next_job=max(books.next_job, max(books.jobs, default=0) + 1),
                jobs=jobs,
                past=[books.live(books.jobs[job]) for job in sorted(past) if job in books.jobs],
                queues=[queue for _, queue in sorted(books.queues.items())],
                workers=[worker for _, worker in sorted(books.workers.items())],
                switches=[switch for _, switch in sorted(books.switches.items())],
                reservations=[reservation for _, reservation in sorted(books.reservations.items())],
                leases=[lease for _, lease in sorted(books.leases.items())],
                tokens=[token for _, token in sorted(books.tokens.items())],
                conditions=[row for _, row in sorted(books.conditions.items()) if row.closed_at is None],
                next_condition=max(books.next_condition, max(books.conditions, default=0) + 1),
            )

    def write(self, changes: Sequence[Change]) -> None:
        self._pending.extend(changes)

    def commit(self) -> None:
        with self._lock:
            for change in self._pending:
                self._books.apply(change)
            self._pending.clear()

    def remove_jobs(self, jobs: Sequence[int], *, ended_before: float) -> list[int]:
        self._check_committed()
        with self._lock:
            return cleaning.remove(self._books, jobs, ended_before)

    def clean(
        self,
        *,
        before: float,
        keep_values: Collection[str] = (),
        unnamed_before: float = 0.0,
        limit: int = 1000,  # noqa: ARG002
    ) -> Cleaned:
        self._check_committed()
        with self._lock:
            return cleaning.clean(self._books, before, keep_values, unnamed_before)

    def unnamed_values(self) -> list[str]:
        with self._lock:
            return cleaning.unnamed(self._books)

    def put_unnamed(self, keys: Sequence[str], now: float) -> None:
        self._check_committed()
        with self._lock:
            self._books.unnamed |= dict.fromkeys(keys, max(int(now), 1))

    def compact_history(
        self,
        *,
        ended_before: float,
        keep: int,
        after: tuple[int, int] = (0, -1),  # noqa: ARG002
        limit: int = 1000,  # noqa: ARG002
    ) -> Compacted:
        self._check_committed()
        with self._lock:
            return cleaning.compact(self._books, ended_before, max(keep, 1))

    def _check_committed(self) -> None:
        if self._pending:
            raise RuntimeError("what was written must be committed first")

    def crash(self) -> None:
        """Lose what was written and not committed, as the end of the process would."""
        self._pending.clear()

    def close(self) -> None:
        self._pending.clear()

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        with self._lock:
            reading = snapshots.MemoryReading(self._books)
        yield reading

    def stage(self, jobs: Sequence[int], parts: Sequence[Placed]) -> None:
        self._check_committed()
        with self._lock:
            self._books.next_job = max(self._books.next_job, max(jobs, default=0) + 1)
            self._staged.append((frozenset(jobs), list(parts)))

    def adopt(self, jobs: Sequence[int], changes: Sequence[Change], restored: Restored) -> None:
        self._check_committed()
        with self._lock:
            parts = [part for staged in self._take_staged(jobs) for part in staged]
            snapshots.adopt(self._books, parts, changes)
            self._restored[restored.id] = restored

    def unstage(self, jobs: Sequence[int]) -> None:
        self._check_committed()
        with self._lock:
            self._take_staged(jobs)

    def _take_staged(self, jobs: Sequence[int]) -> list[Sequence[Placed]]:
        wanted = frozenset(jobs)
        taken = [parts for staged, parts in self._staged if staged == wanted]
        self._staged = [(staged, parts) for staged, parts in self._staged if staged != wanted]
        return taken

    def restored(self, id: str) -> Restored | None:
        with self._lock:
            return self._restored.get(id)

    def removable(self, *, ended_before: float, owner: str | None, limit: int) -> list[int]:
        with self._lock:
            return cleaning.removable(self._books, ended_before, owner)[: max(limit, 0)]

    def old(self, *, before: float, keep: int, removed: Collection[int]) -> Old:
        with self._lock:
            return cleaning.old(self._books, before, max(keep, 1), removed)

    def job(self, job: int) -> JobRow | None:
        with self._lock:
            return self._books.jobs.get(job)

    def live(self, job: int) -> LiveJob | None:
        with self._lock:
            return self._books.live(self._books.jobs[job]) if job in self._books.jobs else None

    def dependents(self, job: int) -> list[int]:
        with self._lock:
            rows = list(self._books.jobs.values())
            return sorted(row.id for row in rows if job in needed_by(self._books.live(row)))

    def job_by_key(self, owner: str, key: str) -> JobRow | None:
        if not key:
            return None
        with self._lock:
            twins = [row for row in self._books.jobs.values() if row.owner == owner and row.key == key]
        return min(twins, key=lambda row: row.id, default=None)

    def jobs(self, *, owner: str | None, before: int | None, limit: int) -> list[JobRow]:
        with self._lock:
            rows = [
                self._books.jobs[job]
                for job in sorted(self._books.jobs, reverse=True)
                if (before is None or job < before)
                and (owner is None or self._books.jobs[job].owner == owner)
            ]
        return rows[: max(limit, 0)]

    def lines(self, job: int, ranges: Sequence[Range]) -> list[str]:
        with self._lock:
            return _of_tasks(self._books.jobs.get(job), self._books.lines.get(job, ()), ranges)

    def calls(self, job: int, ranges: Sequence[Range]) -> list[Call]:
        with self._lock:
            return _of_tasks(self._books.jobs.get(job), self._books.calls.get(job, ()), ranges)

    def outcomes(
        self, job: int, *, ranges: Sequence[Range], states: Sequence[TaskState] = (), limit: int
    ) -> list[Outcome]:
        with self._lock:
            records = [
                record
                for record in self._books.tasks[job].records(IntervalSet(ranges))
                if not states or record.state in states
            ]
        return sorted(records, key=lambda record: record.report.task)[: max(limit, 0)]

    def history(self, job: int, task: int) -> list[Outcome]:
        with self._lock:
            tasks = self._books.tasks[job]
            earlier = dict(tasks.history.get(task, {}))
            if task in tasks.outcomes:
                earlier.pop(tasks.outcomes[task].report.attempt, None)
        return [outcome for _, outcome in sorted(earlier.items())]

    def tried(self, job: int, task: int) -> list[tuple[int, str]]:
        ended = [*self.history(job, task), *self.outcomes(job, ranges=[(task, task)], limit=1)]
        return sorted((one.report.attempt, one.worker) for one in ended if one.report.attempt)

    def notes(self, job: int, task: int) -> list[Noted]:
        with self._lock:
            return self._books.tasks[job].notes_of(task)

    def job_notes(self, job: int, *, since: float = 0.0, skip: int = 0, limit: int) -> list[Noted]:
        with self._lock:
            found = [note for note in self._books.tasks[job].all_notes() if note.at >= since]
        return found[max(skip, 0) :][: max(limit, 0)]

    def half_done(self, job: int, ranges: Sequence[Range]) -> list[tuple[int, int]]:
        with self._lock:
            wanted = IntervalSet(ranges)
            history = self._books.tasks[job].history
            attempts = {number for task in history if task in wanted for number in history[task]}
            found: dict[int, int] = {}
            for attempt, stream in self._books.half_done(attempts):
                found[attempt] = found.get(attempt, 0) + len(self._books.segments[attempt, stream])
        return sorted(found.items())

    def condition(self, id: int) -> ConditionRow | None:
        with self._lock:
            return self._books.conditions.get(id)

    def conditions(self, *, open_only: bool, before: int | None, limit: int) -> list[ConditionRow]:
        with self._lock:
            rows = [
                row
                for id, row in sorted(self._books.conditions.items(), reverse=True)
                if (before is None or id < before) and (not open_only or row.closed_at is None)
            ]
        return rows[: max(limit, 0)]

    def ended(self, job: int, state: TaskState) -> list[Range]:
        with self._lock:
            return self._books.tasks[job].ended(state).ranges()

    def ended_since(self, job: int, at: float) -> list[Range]:
        with self._lock:
            return self._books.tasks[job].ended_since(at).ranges()

    def kept_bytes(self, job: int) -> int:
        with self._lock:
            records = list(self._books.tasks[job].all_records())
            attempts = {record.report.attempt for record in records}
            pieces = [p for (attempt, _), p in self._books.segments.items() if attempt in attempts]
        inline = [
            len(output.inline)
            for record in records
            for output in (record.report.out, record.report.err, record.report.value)
            if output is not None
        ]
        return sum(inline) + sum(len(data) for piece in pieces for data in piece.values())

    def output_segments(
        self, attempt: int, stream: str, *, first: int = 0, last: int | None = None
    ) -> list[bytes]:
        with self._lock:
            pieces = sorted(self._books.segments.get((attempt, stream), {}).items())
        return [data for number, data in pieces if first <= number and (last is None or number <= last)]

    def values(self, job: int, *, ranges: Sequence[Range], limit: int, most_bytes: int) -> list[ValueRow]:
        rows: list[ValueRow] = []
        size = 0
        for outcome in self.outcomes(job, ranges=ranges, limit=limit):
            if size >= most_bytes:
                break
            report = outcome.report
            kept = report.value
            value = None if kept is None or kept.segments else kept.inline
            length = 0 if kept is None else kept.kept_bytes
            rows.append(
                (report.task, str(outcome.state), str(report.end), report.code, report.note, value, length)
            )
            size += len(value or b"")
        return rows

    def value_piece_count(self, key: str) -> int:
        with self._lock:
            ends = [number for number, (_, last) in self._books.values.get(key, {}).items() if last]
        return min(ends) + 1 if ends else 0

    def value_pieces(self, key: str, first: int, last: int) -> list[bytes]:
        with self._lock:
            pieces = sorted(self._books.values.get(key, {}).items())
        return [data for number, (data, _) in pieces if first <= number <= last]

    # --- the catalogue

    def files(self, names: Iterable[str]) -> list[Catalogued]:
        with self._lock:
            return self._books.catalogue.named(names)

    def files_from(
        self, *, prefix: str = "", pattern: str = "", after: str = "", limit: int
    ) -> list[FileRow]:
        with self._lock:
            return self._books.catalogue.from_name(
                prefix=prefix, pattern=pattern, after=after, limit=max(limit, 0)
            )

    def made_by(
        self, job: int, ranges: Sequence[Range], *, after: tuple[int, str] = (-1, ""), limit: int
    ) -> list[FileRow]:
        with self._lock:
            return self._books.catalogue.made_by(job, ranges, after, max(limit, 0))

    def names_at(self, urls: Iterable[str]) -> dict[str, list[str]]:
        with self._lock:
            return self._books.catalogue.names_at(urls)

    def readers(self, name: str, *, limit: int) -> list[int]:
        with self._lock:
            rows = list(self._books.jobs.values())
            found = {row.id for row in rows for source in names_read(row.spec) if may_mean(source, name)}
        return sorted(found, reverse=True)[: max(limit, 0)]

    def left_overs(self, job: int, ranges: Sequence[Range]) -> dict[int, list[str]]:
        with self._lock:
            left = self._books.catalogue.left_of(job)
        return {task: urls for task, urls in left.items() if task in IntervalSet(ranges)}


def _of_tasks(row: JobRow | None, items: Sequence[T], ranges: Sequence[Range]) -> list[T]:
    """Those of some tasks, of what each task of a job has."""
    if row is None or not items:
        return []
    found: list[T] = []
    for first, last in ranges:
        passed = 0  # tasks of the job's ranges before this one
        for low, high in row.ranges:
            start, end = max(first, low), min(last, high)
            if start <= end:
                found += items[passed + start - low : passed + end - low + 1]
            passed += high - low + 1
    return found
