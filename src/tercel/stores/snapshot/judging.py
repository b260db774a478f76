"""Single records of a snapshot: what must be true of each for itself, and of what it says of others."""

import hashlib
import re
import zlib
from collections.abc import Sequence

import msgspec

from tercel.core import blocking
from tercel.core.commands import check_spec
from tercel.core.conditions import ConditionRow, Fault, Place
from tercel.core.errors import UsageError
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import BlockRule, JobRow
from tercel.core.policies import parse_policy
from tercel.core.reports import Output
from tercel.core.rules import check_rules, edges_of
from tercel.stores.snapshot.files import Damaged
from tercel.stores.snapshot.records import ValuePart
from tercel.wire.messages import INLINE_OUTPUT_BYTES, SEGMENT_BYTES

MAX_OWNER, MAX_KEY = 128, 200
MAX_ID = 2**53
CONDITION_MOST = 500_000
"""Characters that a condition may have, its variables included."""
WHERE_MOST = 256
"""Characters of the name of a site or a worker."""
_VALUE_KEY = re.compile(r"b[0-9a-f]{64}")
_decode_output = msgspec.msgpack.Decoder(Output).decode


class Wrong(Exception):
    """What is wrong, for people."""


def must(right: bool, problem: str) -> None:
    if not right:
        raise Wrong(problem)


class Placed:
    """What is wrong with a job is told with which job it is."""

    def __init__(self, job: int) -> None:
        self._job = job

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Damaged):
            return
        if isinstance(error, Wrong | UsageError):
            raise Wrong(f"job {self._job}: {error}") from None


def check_row(row: JobRow) -> None:
    must(1 <= row.id <= MAX_ID and 0 <= row.flow <= MAX_ID, "its number cannot be")
    must(1 <= len(row.owner) <= MAX_OWNER and row.owner.isprintable(), "its owner's name cannot be")
    must(len(row.key) <= MAX_KEY and "\0" not in row.key, "its key cannot be")
    must(0 <= row.max_running < 2**31, "how many of it may run cannot be")
    times = [row.submitted_at, *([] if row.ended_at is None else [row.ended_at])]
    must(all(-1e12 < at < 1e12 for at in times), "a time cannot be")
    spec = row.spec
    check_rules(msgspec.structs.replace(spec, after=()))
    blocking.check_rules(spec.block_on)
    if not row.has_lines and spec.function is None:
        ranges, _ = check_spec(spec)
        must(tuple(ranges) == row.ranges, "its tasks are not those that it asks for")
    else:
        must(row.has_lines is not (spec.function is not None), "it is both of lines and of calls")
        must(len(row.ranges) == 1 and 0 == row.ranges[0][0] <= row.ranges[0][1], "its tasks cannot be")
    held = IntervalSet(row.held)
    must(len(held.intersection(IntervalSet(row.ranges))) == len(held), "a task is held that does not exist")
    for one in row.postponed:
        _check_sought(one.fault, one.fault.context)
        tasks = IntervalSet(one.ranges)
        must(
            tasks.intersection(held) == tasks, "a task that is not held is to be blocked when it is released"
        )


def check_needs(
    row: JobRow, edges: Sequence[tuple[int, int, int, int]], others: dict[int, tuple[Range, ...]]
) -> None:
    """What is not in the snapshot was not known any more to the manager that wrote it."""
    tasks = IntervalSet(row.ranges)
    for after in row.spec.after:
        must(after.job < row.id, "it waits for a job behind it")
        if after.each and after.job in others:
            alone = tasks.copy()
            alone.difference_update(IntervalSet(others[after.job]))
            must(not alone, "it waits for tasks that do not exist")
    if not edges:
        return
    known: dict[int, IntervalSet] = {}
    edges_of(
        [(task, 0 if job == row.id else job, first, last) for task, job, first, last in edges],
        None,
        row.ranges,
    )
    for _, job, first, last in edges:
        must(0 <= job <= row.id, "it waits for a job behind it")
        if job in others:
            whole = known.setdefault(job, IntervalSet(others[job]))
            span = IntervalSet([(first, last)])
            must(len(span.intersection(whole)) == len(span), "it waits for tasks that do not exist")


def checked_output(blob: bytes) -> Output:
    try:
        output = _decode_output(blob)
    except msgspec.MsgspecError as error:
        raise Wrong(f"an output cannot be understood ({error})") from None
    possible = 0 <= output.kept_bytes <= output.total_bytes <= 2**62 and 0 <= output.segments < 2**31
    must(possible and len(output.inline) <= INLINE_OUTPUT_BYTES, "an output cannot be")
    return output


# -- the rest ---------------------------------------------------------------------------------------------


def _check_sought(what: Fault | ConditionRow, context: Sequence[str] = ()) -> None:
    """What must be there again, and what else is known of it."""
    blocking.check_rule(BlockRule(on="exit:1", tester=what.tester, policy=what.policy))
    parse_policy(what.policy)
    texts = (what.where, what.cwd, *what.env, *what.env.values(), *context)
    must(sum(map(len, texts)) <= CONDITION_MOST, f"what it met ({what.tester[:60]}) says too much")


def check_condition(row: ConditionRow) -> None:
    try:
        _check_sought(row)
    except (UsageError, Wrong) as error:
        raise Wrong(f"condition {row.id}: {error}") from None
    must(len(row.note) + len(row.paused) <= CONDITION_MOST, f"condition {row.id} says too much")
    must(len(row.where) <= WHERE_MOST and row.where.isprintable(), f"condition {row.id} is nowhere")
    if row.place is Place.WORKER:
        must(re.fullmatch(r"[\w.@-]+", row.where) is not None, f"condition {row.id} is at no worker")
    numbers = (row.opened_at, row.arose_at, row.tested_at, row.next_test_at, row.paused_at)
    must(all(-1e12 < at < 1e12 for at in numbers), f"condition {row.id}: a time cannot be")
    must(
        row.closed_at is None
        and 0 <= row.tests < 2**31
        and 0 <= row.asked < 2**31
        and 1 <= row.wave <= 2**31
        and row.id >= 0,
        f"condition {row.id} cannot be",
    )


class ValueChecker:
    """Pieces of one value: what it contains must have the digest that its key says."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._digest = hashlib.sha256()
        self._count = 0
        self.whole = False
        must(_VALUE_KEY.fullmatch(key) is not None, "a value's key is none")

    def take(self, part: ValuePart) -> bool:
        """Whether that was the last."""
        must(part.key == self._key and part.number == self._count, "a value is not whole")
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(part.data, SEGMENT_BYTES + 1)
        except zlib.error:
            raise Wrong(f"value {self._key} cannot be unpacked") from None
        fits = len(data) == SEGMENT_BYTES or (part.last and len(data) < SEGMENT_BYTES)
        must(fits and unpacker.eof, f"a piece of value {self._key} is not as long as it should be")
        self._digest.update(data)
        self._count += 1
        if part.last:
            must(f"b{self._digest.hexdigest()}" == self._key, f"value {self._key} is not what its key says")
            self.whole = True
        return self.whole
