"""A file -> what it contains, if every record of it is right.

Whoever made the file may have meant harm, or be an older Tercel with a fault. So everything is checked that the parts of a
manager rely on: that jobs could have been submitted as they are, that tasks exist, that each ended once, and that
uploaded values are what their keys say. Whether what it blocks on may be tested here, only a manager can say.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from operator import lt
from pathlib import Path

import msgspec

from tercel.core import blocking
from tercel.core.commands import check_spec, parse_key
from tercel.core.conditions import ConditionRow, Place
from tercel.core.errors import UsageError
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import JobRow
from tercel.core.policies import parse_policy
from tercel.core.reports import Output
from tercel.core.rules import check_rules, edges_of
from tercel.core.states import TaskState
from tercel.stores.codes import BLAMES, ENDS, STATE_CODES, STATES
from tercel.stores.snapshot.files import Damaged, damaged, parts
from tercel.stores.snapshot.records import (
    BlockedPart,
    CallsPart,
    ConditionPart,
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
from tercel.wire.messages import INLINE_OUTPUT_BYTES, SEGMENT_BYTES

MAX_OWNER, MAX_KEY = 128, 200
MAX_ID = 2**53
PIECE_BYTES = SEGMENT_BYTES + 2**12
"""What zlib makes of a piece that cannot be compressed, and a little more."""
_VALUE_KEY = re.compile(r"b[0-9a-f]{64}")
_ENDED = {STATE_CODES[state] for state in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)}
_decode_output = msgspec.msgpack.Decoder(Output).decode


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
    except _Wrong as wrong:
        raise damaged(name, f"is damaged, or not Tercel's own work: {wrong}") from None


class _Wrong(Exception):
    """What is wrong, for people."""


def _must(right: bool, problem: str) -> None:
    if not right:
        raise _Wrong(problem)


class _Checker:
    """Takes all parts in order."""

    def __init__(self) -> None:
        self._header: Header | None = None
        self._conditions: dict[int, ConditionRow] = {}
        self._jobs: list[Job] = []
        self._ranges: dict[int, tuple[Range, ...]] = {}
        self._job: _JobChecker | None = None
        self._wanted: set[str] = set()
        self._values: set[str] = set()
        self._value: _ValueChecker | None = None

    def take(self, part: object) -> None:
        match part:
            case Header():
                _must(self._header is None, "it has two headers")
                self._header = part
            case ConditionPart(row):
                _must(not self._jobs and self._job is None, "a condition stands behind jobs")
                _check_condition(row)
                self._conditions[row.id] = row
            case JobPart(row, edges):
                self._end_job()
                _must(self._value is None, "a job stands behind values")
                _must(not self._jobs or self._jobs[-1].row.id < row.id, "jobs are not in order")
                self._job = _JobChecker(row, edges, self._ranges, self._conditions)
                self._ranges[row.id] = row.ranges
            case ValuePart():
                self._end_job()
                if self._value is None or self._value.whole:
                    self._value = _ValueChecker(part.key)
                if self._value.take(part):
                    self._values.add(part.key)
            case Trailer():
                raise _Wrong("it has two ends")
            case _:
                _must(self._job is not None, "something stands before the first job")
                assert self._job is not None
                self._job.take(part)

    def _end_job(self) -> None:
        if self._job is not None:
            self._jobs.append(self._job.finish())
            self._wanted |= self._job.wanted
            self._job = None

    def finish(self) -> Contents:
        self._end_job()
        _must(self._value is None or self._value.whole, "a value is not whole")
        assert self._header is not None  # `parts` yields one first
        _must(self._header.jobs == tuple(self._ranges), "its jobs are not those that its header names")
        owners = tuple(sorted({job.row.owner for job in self._jobs}))
        _must(self._header.owners == owners, "its owners are not those that its header names")
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
        with self._placed():
            _check_row(row)
            _check_needs(row, edges, others)
        function = row.spec.function
        if function is not None and function.value:
            self.wanted.add(function.value)

    def _placed(self) -> "_Placed":
        return _Placed(self._row.id)

    def take(self, part: object) -> None:
        with self._placed():
            if not isinstance(part, SegmentPart):
                _must(getattr(part, "job", 0) == self._row.id, "something of another job is in it")
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
                    _must(output is not None, "output stands behind another attempt's")
                    _must(stream in ("out", "err", "value"), "a stream has no such name")
                    _must(number < 2**31 and len(data) <= PIECE_BYTES, "a piece of output is too large")
                case SpansPart(_, rows):
                    for first, last, state, _, _, end in rows:
                        self._take_range(self._over, first, last)
                        _must(state in _ENDED and end in ENDS, "a state is not known")
                        self._counts[state] += last - first + 1
                case BlockedPart(_, rows):
                    for first, last, condition, _ in rows:
                        self._take_range(self._blocked, first, last)
                        row = self._conditions.get(condition)
                        _must(
                            row is not None and row.owner == self._row.owner,
                            "tasks wait for a condition that is not there, or somebody else's",
                        )
                case NotesPart(_, rows):
                    _must(all(first <= last for first, last, *_ in rows), "a note is about no task")

    def _list(self, first: int, count: int) -> None:
        ranges = self._row.ranges
        _must(ranges == ((0, ranges[-1][1]),), "a job of lines or calls numbers its tasks from 0")
        _must(first == self._listed and count > 0, "lines or calls are missing")
        self._listed += count

    def _refer(self, keys: Iterable[str]) -> None:
        for key in keys:
            task = parse_key(key)
            if task is None:
                self.wanted.add(key)
            else:
                _must(task[0] in self._others, f"{key} is of a job that is not in the snapshot")
                _must(task[1] in IntervalSet(self._others[task[0]]), f"{key} does not exist")

    def _take_history(self, names: dict[int, str], rows: Sequence[HistoryRow]) -> None:
        order = [self._last_attempt, *((row[0], row[1]) for row in rows)]
        _must(all(map(lt, order, order[1:])), "attempts are not in order")
        self._last_attempt = order[-1]
        _must({row[2] for row in rows} <= STATES.keys(), "a state is not known")
        _must({row[16] for row in rows} <= {None, *BLAMES}, "a blame is not known")
        _must({row[17] for row in rows} <= {0, 1}, "an attempt counts neither nor not")
        tasks: list[Range] = []
        append_islands(tasks, sorted({row[0] for row in rows}))
        self._must_exist(tasks)
        self._take_ends(names, rows)

    def _take_outcomes(self, names: dict[int, str], rows: Sequence[OutcomeRow]) -> None:
        tasks = [self._last_task, *(row[0] for row in rows)]
        _must(all(map(lt, tasks, tasks[1:])), "a task ended twice, or tasks are not in order")
        self._last_task = tasks[-1]
        states = [row[2] for row in rows]
        _must(_ENDED.issuperset(states), "a state is not known")
        for state in _ENDED:
            self._counts[state] += states.count(state)
        append_islands(self._outcomes, tasks[1:])
        self._take_ends(names, rows)

    def _take_ends(self, names: dict[int, str], rows: Sequence[OutcomeRow | HistoryRow]) -> None:
        _must(names.keys() >= {row[3] for row in rows}, "a worker has no name")
        _must({row[4] for row in rows} <= ENDS.keys(), "an end is not known")
        self._attempts += len(rows)
        self._spoke = {}
        for row in rows:
            if row[13] is not None or row[14] is not None or row[15] is not None:
                for blob in row[13:16]:
                    if blob is not None and (output := _checked_output(blob)).segments:
                        self._spoke[row[1]] = output

    def _take_range(self, taken: IntervalSet, first: int, last: int) -> None:
        _must(first <= last, "a range of tasks ends before it begins")
        mine = IntervalSet([(first, last)])
        _must(not taken.intersection(mine), "a task is named twice")
        taken.update(mine)

    def _must_exist(self, ranges: Sequence[Range]) -> None:
        wanted = IntervalSet(ranges)
        _must(len(wanted.intersection(self._tasks)) == len(wanted), "a task is named that does not exist")

    def finish(self) -> Job:
        row = self._row
        with self._placed():
            listed = row.has_lines or row.spec.function is not None
            _must(self._listed == (row.task_count if listed else 0), "lines or calls are missing")
            self._must_exist(self._outcomes)
            outcomes = IntervalSet(self._outcomes)
            for once in (self._over, self._blocked):
                self._must_exist(once.ranges())
                _must(not outcomes.intersection(once), "a task that has ended has ended again, or is blocked")
            _must(not self._over.intersection(self._blocked), "a task that has ended is blocked")
            ended = len(outcomes) + len(self._over)
            _must(
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


class _Placed:
    """What is wrong with a job is told with which job it is."""

    def __init__(self, job: int) -> None:
        self._job = job

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Damaged):
            return
        if isinstance(error, _Wrong | UsageError):
            raise _Wrong(f"job {self._job}: {error}") from None


def _check_row(row: JobRow) -> None:
    _must(1 <= row.id <= MAX_ID and 0 <= row.flow <= MAX_ID, "its number cannot be")
    _must(1 <= len(row.owner) <= MAX_OWNER and row.owner.isprintable(), "its owner's name cannot be")
    _must(len(row.key) <= MAX_KEY and "\0" not in row.key, "its key cannot be")
    _must(0 <= row.max_running < 2**31, "how many of it may run cannot be")
    times = [row.submitted_at, *([] if row.ended_at is None else [row.ended_at])]
    _must(all(-1e12 < at < 1e12 for at in times), "a time cannot be")
    spec = row.spec
    check_rules(msgspec.structs.replace(spec, after=()))
    for rule in spec.block_on:
        blocking.trigger_of(rule.on)
        _must(rule.at in ("", *Place), "a rule for blocking names no place")
        if rule.policy:
            parse_policy(rule.policy)
    if not row.has_lines and spec.function is None:
        ranges, _ = check_spec(spec)
        _must(tuple(ranges) == row.ranges, "its tasks are not those that it asks for")
    else:
        _must(row.has_lines is not (spec.function is not None), "it is both of lines and of calls")
        _must(len(row.ranges) == 1 and 0 == row.ranges[0][0] <= row.ranges[0][1], "its tasks cannot be")
    held = IntervalSet(row.held)
    _must(len(held.intersection(IntervalSet(row.ranges))) == len(held), "a task is held that does not exist")


def _check_needs(
    row: JobRow, edges: Sequence[tuple[int, int, int, int]], others: dict[int, tuple[Range, ...]]
) -> None:
    """What is not in the snapshot was not known any more to the manager that wrote it."""
    tasks = IntervalSet(row.ranges)
    for after in row.spec.after:
        _must(after.job < row.id, "it waits for a job behind it")
        if after.each and after.job in others:
            alone = tasks.copy()
            alone.difference_update(IntervalSet(others[after.job]))
            _must(not alone, "it waits for tasks that do not exist")
    if not edges:
        return
    known: dict[int, IntervalSet] = {}
    edges_of(
        [(task, 0 if job == row.id else job, first, last) for task, job, first, last in edges],
        None,
        row.ranges,
    )
    for _, job, first, last in edges:
        _must(0 <= job <= row.id, "it waits for a job behind it")
        if job in others:
            whole = known.setdefault(job, IntervalSet(others[job]))
            span = IntervalSet([(first, last)])
            _must(len(span.intersection(whole)) == len(span), "it waits for tasks that do not exist")


def _checked_output(blob: bytes) -> Output:
    try:
        output = _decode_output(blob)
    except msgspec.MsgspecError as error:
        raise _Wrong(f"an output cannot be understood ({error})") from None
    possible = 0 <= output.kept_bytes <= output.total_bytes <= 2**62 and 0 <= output.segments < 2**31
    _must(possible and len(output.inline) <= INLINE_OUTPUT_BYTES, "an output cannot be")
    return output


# -- the rest ---------------------------------------------------------------------------------------------


def _check_condition(row: ConditionRow) -> None:
    try:
        parse_policy(row.policy)
    except UsageError as error:
        raise _Wrong(f"condition {row.id}: {error}") from None
    numbers = (row.opened_at, row.tested_at, row.next_test_at, row.paused_at)
    _must(all(-1e12 < at < 1e12 for at in numbers), f"condition {row.id}: a time cannot be")
    _must(
        row.closed_at is None and 0 <= row.tests < 2**31 and 1 <= row.wave <= 2**31 and row.id >= 0,
        f"condition {row.id} cannot be",
    )


class _ValueChecker:
    """Pieces of one value: what it contains must have the digest that its key says."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._digest = hashlib.sha256()
        self._count = 0
        self.whole = False
        _must(_VALUE_KEY.fullmatch(key) is not None, "a value's key is none")

    def take(self, part: ValuePart) -> bool:
        """Whether that was the last."""
        _must(part.key == self._key and part.number == self._count, "a value is not whole")
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(part.data, SEGMENT_BYTES + 1)
        except zlib.error:
            raise _Wrong(f"value {self._key} cannot be unpacked") from None
        fits = len(data) == SEGMENT_BYTES or (part.last and len(data) < SEGMENT_BYTES)
        _must(fits and unpacker.eof, f"a piece of value {self._key} is not as long as it should be")
        self._digest.update(data)
        self._count += 1
        if part.last:
            _must(f"b{self._digest.hexdigest()}" == self._key, f"value {self._key} is not what its key says")
            self.whole = True
        return self.whole
