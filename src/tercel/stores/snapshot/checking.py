"""A file -> what it contains, if every record of it is right.

Whoever made the file may have meant harm, or be an older Tercel with a fault. So everything is checked that the parts of a
manager rely on: that jobs could have been submitted as they are, that tasks exist, that each ended once, and that
uploaded values are what their keys say. Whether what it blocks on may be tested here, only a manager can say.
"""

from collections.abc import Iterable, Sequence
from operator import lt
from pathlib import Path

import msgspec

from tercel.core.commands import check_spec, parse_key
from tercel.core.conditions import ConditionRow
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import JobRow
from tercel.core.reports import Output
from tercel.core.states import TaskState
from tercel.stores.codes import BLAMES, ENDS, STATE_CODES, STATES
from tercel.stores.snapshot.files import damaged, parts
from tercel.stores.snapshot.filing import check_files
from tercel.stores.snapshot.judging import (
    Placed,
    ValueChecker,
    Wrong,
    check_condition,
    check_needs,
    check_row,
    checked_output,
    must,
)
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
    SegmentPart,
    SpansPart,
    Trailer,
    ValuePart,
)
from tercel.stores.sqlite.ranges import append_islands
from tercel.wire.messages import SEGMENT_BYTES

PIECE_BYTES = SEGMENT_BYTES + 2**12
"""What zlib makes of a piece that cannot be compressed, and a little more."""
_ENDED = {STATE_CODES[state] for state in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)}


class Job(msgspec.Struct, frozen=True):
    """What a snapshot says of a job."""

    row: JobRow
    """With the counts of what is in the file."""
    attempts: int

    @property
    def ended(self) -> int:
        return self.row.finished + self.row.failed + self.row.cancelled


class Contents(msgspec.Struct, frozen=True):
    header: Header
    jobs: list[Job]
    conditions: list[ConditionRow]
    wanted: set[str]
    """The keys of the values that jobs refer to ..."""
    values: set[str]
    """... and of those that are in the file."""

    @property
    def attempts(self) -> int:
        return sum(job.attempts for job in self.jobs)


def check(path: Path, name: str = "") -> Contents:
    """Raises Damaged, which says what is wrong, of a file that people know by this name."""
    checker = _Checker()
    name = name or path.name
    try:
        for part in parts(path, name):
            checker.take(part)
        return checker.finish()
    except Wrong as wrong:
        raise damaged(name, f"is damaged, or not Tercel's own work: {wrong}") from None


class _Checker:
    """Takes all parts in order."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._conditions: dict[int, ConditionRow] = {}
        self._jobs: list[Job] = []
        self._ranges: dict[int, tuple[Range, ...]] = {}
        self._job: _JobChecker | None = None
        self._awaited: set[int] = set()
        """The numbers of the conditions that tasks wait for."""
        self._wanted: set[str] = set()
        self._values: set[str] = set()
        self._value: ValueChecker | None = None

    def take(self, part: object) -> None:
        match part:
            case Header():
                must(self._header is None, "it has two headers")
                self._header = part
            case ConditionPart(row):
                must(not self._jobs and self._job is None, "a condition stands behind jobs")
                must(row.id not in self._conditions, "a condition is there twice")
                check_condition(row)
                self._conditions[row.id] = row
            case JobPart(row, edges):
                self._end_job()
                must(self._value is None, "a job stands behind values")
                must(not self._jobs or self._jobs[-1].row.id < row.id, "jobs are not in order")
                self._job = _JobChecker(row, edges, self._ranges, self._conditions)
                self._ranges[row.id] = row.ranges
            case ValuePart():
                self._end_job()
                if self._value is None or self._value.whole:
                    self._value = ValueChecker(part.key)
                if self._value.take(part):
                    self._values.add(part.key)
            case Trailer():
                raise Wrong("it has two ends")
            case _:
                must(self._job is not None, "something stands before the first job")
                assert self._job is not None
                self._job.take(part)

    def _end_job(self) -> None:
        if self._job is not None:
            self._jobs.append(self._job.finish())
            self._wanted |= self._job.wanted
            self._awaited |= self._job.awaited
            self._job = None

    def finish(self) -> Contents:
        self._end_job()
        must(self._value is None or self._value.whole, "a value is not whole")
        assert self._header is not None  # `parts` yields one first
        must(self._header.jobs == tuple(self._ranges), "its jobs are not those that its header names")
        owners = tuple(sorted({job.row.owner for job in self._jobs}))
        must(self._header.owners == owners, "its owners are not those that its header names")
        must(self._awaited == self._conditions.keys(), "nobody waits for a condition that it has")
        return Contents(self._header, self._jobs, list(self._conditions.values()), self._wanted, self._values)


# -- a job ------------------------------------------------------------------------------------------------


class _JobChecker:
    def __init__(
        self,
        row: JobRow,
        edges: Sequence[tuple[int, int, int, int]],
        others: dict[int, tuple[Range, ...]],
        conditions: dict[int, ConditionRow],
    ) -> None:
        self._row = row
        self._others = others
        self._conditions = conditions
        self._tasks = IntervalSet(row.ranges)
        self._listed = 0
        """Lines or calls so far."""
        self._outcomes: list[Range] = []
        self._counts = dict.fromkeys(_ENDED, 0)
        self._last_task = -1
        self._last_attempt = (-1, -1)
        self._over = IntervalSet()
        """Tasks that ended without an attempt."""
        self._blocked = IntervalSet()
        self._attempts = 0
        self._spoke: dict[int, Output] = {}
        self.wanted: set[str] = set()
        self.awaited: set[int] = set()
        with self._placed():
            check_row(row)
            check_needs(row, edges, others)
        function = row.spec.function
        if function is not None and function.value:
            self.wanted.add(function.value)

    def _placed(self) -> Placed:
        return Placed(self._row.id)

    def take(self, part: object) -> None:
        with self._placed():
            if not isinstance(part, SegmentPart):
                must(getattr(part, "job", 0) == self._row.id, "something of another job is in it")
            match part:
                case LinesPart(_, first, lines):
                    self._list(first, len(lines))
                    if self._row.spec.template:
                        check_spec(self._row.spec, items=lines)
                    else:
                        check_spec(self._row.spec, lines)
                case CallsPart(_, first, calls):
                    self._list(first, len(calls))
                    check_spec(self._row.spec, calls=calls)
                    self._refer(key for call in calls for key in call.values)
                case HistoryPart(_, names, rows):
                    self._take_history(names, rows)
                case OutcomesPart(_, names, rows):
                    self._take_outcomes(names, rows)
                case SegmentPart(attempt, stream, number, data):
                    output = self._spoke.get(attempt)
                    must(output is not None, "output stands behind another attempt's")
                    must(stream in ("out", "err", "value"), "a stream has no such name")
                    must(number < 2**31 and len(data) <= PIECE_BYTES, "a piece of output is too large")
                case SpansPart(_, rows):
                    for first, last, state, _, _, end in rows:
                        self._take_range(self._over, first, last)
                        must(state in _ENDED and end in ENDS, "a state is not known")
                        self._counts[state] += last - first + 1
                case BlockedPart(_, rows):
                    for first, last, condition, _ in rows:
                        self._take_range(self._blocked, first, last)
                        self.awaited.add(condition)
                        row = self._conditions.get(condition)
                        must(
                            row is not None and row.owner == self._row.owner,
                            "tasks wait for a condition that is not there, or somebody else's",
                        )
                case NotesPart(_, rows):
                    must(all(first <= last for first, last, *_ in rows), "a note is about no task")
                case FilesPart():
                    check_files(part, self._row, self._tasks)

    def _list(self, first: int, count: int) -> None:
        ranges = self._row.ranges
        must(ranges == ((0, ranges[-1][1]),), "a job of lines or calls numbers its tasks from 0")
        must(first == self._listed and count > 0, "lines or calls are missing")
        self._listed += count

    def _refer(self, keys: Iterable[str]) -> None:
        for key in keys:
            task = parse_key(key)
            if task is None:
                self.wanted.add(key)
            else:
                must(task[0] in self._others, f"{key} is of a job that is not in the snapshot")
                must(task[1] in IntervalSet(self._others[task[0]]), f"{key} does not exist")

    def _take_history(self, names: dict[int, str], rows: Sequence[HistoryRow]) -> None:
        order = [self._last_attempt, *((row[0], row[1]) for row in rows)]
        must(all(map(lt, order, order[1:])), "attempts are not in order")
        self._last_attempt = order[-1]
        must({row[2] for row in rows} <= STATES.keys(), "a state is not known")
        must({row[16] for row in rows} <= {None, *BLAMES}, "a blame is not known")
        must({row[17] for row in rows} <= {0, 1}, "an attempt counts neither nor not")
        tasks: list[Range] = []
        append_islands(tasks, sorted({row[0] for row in rows}))
        self._must_exist(tasks)
        self._take_ends(names, rows)

    def _take_outcomes(self, names: dict[int, str], rows: Sequence[OutcomeRow]) -> None:
        tasks = [self._last_task, *(row[0] for row in rows)]
        must(all(map(lt, tasks, tasks[1:])), "a task ended twice, or tasks are not in order")
        self._last_task = tasks[-1]
        states = [row[2] for row in rows]
        must(_ENDED.issuperset(states), "a state is not known")
        for state in _ENDED:
            self._counts[state] += states.count(state)
        append_islands(self._outcomes, tasks[1:])
        self._take_ends(names, rows)

    def _take_ends(self, names: dict[int, str], rows: Sequence[OutcomeRow | HistoryRow]) -> None:
        must(names.keys() >= {row[3] for row in rows}, "a worker has no name")
        must({row[4] for row in rows} <= ENDS.keys(), "an end is not known")
        self._attempts += len(rows)
        self._spoke = {}
        for row in rows:
            if row[13] is not None or row[14] is not None or row[15] is not None:
                for blob in row[13:16]:
                    if blob is not None and (output := checked_output(blob)).segments:
                        self._spoke[row[1]] = output

    def _take_range(self, taken: IntervalSet, first: int, last: int) -> None:
        must(first <= last, "a range of tasks ends before it begins")
        mine = IntervalSet([(first, last)])
        must(not taken.intersection(mine), "a task is named twice")
        taken.update(mine)

    def _must_exist(self, ranges: Sequence[Range]) -> None:
        wanted = IntervalSet(ranges)
        must(len(wanted.intersection(self._tasks)) == len(wanted), "a task is named that does not exist")

    def finish(self) -> Job:
        row = self._row
        with self._placed():
            listed = row.has_lines or row.spec.function is not None
            must(self._listed == (row.task_count if listed else 0), "lines or calls are missing")
            self._must_exist(self._outcomes)
            outcomes = IntervalSet(self._outcomes)
            for once in (self._over, self._blocked):
                self._must_exist(once.ranges())
                must(not outcomes.intersection(once), "a task that has ended has ended again, or is blocked")
            must(not self._over.intersection(self._blocked), "a task that has ended is blocked")
            ended = len(outcomes) + len(self._over)
            must(
                row.ended_at is None or ended == row.task_count,
                "it is said to have ended, but some tasks have not",
            )
        counted = msgspec.structs.replace(
            row,
            finished=self._counts[STATE_CODES[TaskState.FINISHED]],
            failed=self._counts[STATE_CODES[TaskState.FAILED]],
            cancelled=self._counts[STATE_CODES[TaskState.CANCELLED]],
        )
        return Job(counted, self._attempts)
