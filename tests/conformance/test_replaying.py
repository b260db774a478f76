"""Parts of a job as it stood at a moment: compared with a naive look at each attempt, for any way to cut them."""

import weakref
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tercel.core.forking import Past
from tercel.core.intervals import IntervalSet
from tercel.core.states import TaskState
from tercel.stores.codes import STATE_CODES
from tercel.stores.snapshot.records import (
    BlockedPart,
    HistoryPart,
    HistoryRow,
    JobsPart,
    LinesPart,
    NotesPart,
    OutcomeRow,
    OutcomesPart,
    SegmentPart,
    SpansPart,
)
from tercel.stores.snapshot.replaying import Replaying

JOB = 7
FINISHED, FAILED = STATE_CODES[TaskState.FINISHED], STATE_CODES[TaskState.FAILED]


def row(task: int, attempt: int, finished: bool, at: int) -> OutcomeRow:
    """Its output says which attempt it is of, and so does its worker."""
    state = FINISHED if finished else FAILED
    told = str(attempt).encode()
    return (
        task,
        attempt,
        state,
        attempt % 3,
        0,
        0,
        0.0,
        float(at),
        1.0,
        1.0,
        0,
        None,
        None,
        told,
        None,
        None,
    )


def earlier(task: int, attempt: int, finished: bool, at: int) -> HistoryRow:
    return (*row(task, attempt, finished, at), None, 1)


def cut(rows: list[tuple[int, int, bool, int]], size: int, *, history: bool) -> Iterator[JobsPart]:
    """Parts of so many rows, each with the segments of its attempts behind it; workers are numbered anew in each."""
    for at in range(0, len(rows), size):
        some = rows[at : at + size]
        names = {number: f"w{number}" for number in range(3)}
        if history:
            yield HistoryPart(JOB, names, [earlier(*one) for one in some])
        else:
            yield OutcomesPart(JOB, names, [row(*one) for one in some])
        for _, attempt, _, _ in some:
            yield from pieces(attempt)


class Traced(SegmentPart, frozen=True, weakref=True):
    """Of which it is known whether anybody holds it."""


def pieces(attempt: int) -> Iterator[SegmentPart]:
    yield SegmentPart(attempt, "out", 0, str(attempt).encode())


tries = st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=3)


@given(
    st.lists(tries, max_size=8),
    st.sets(st.integers(0, 7)),
    st.sets(st.integers(0, 7)),
    st.integers(0, 9),
    st.integers(1, 4),
)
def test_what_is_kept_is_what_each_task_had_then(
    told: list[list[tuple[bool, int]]], ended: set[int], again: set[int], at: int, size: int
) -> None:
    """`again`: tasks that are to run again although they had finished."""
    past = Past(float(at))
    history, records, expected = [], [], {}
    attempt = 0
    for task, ends in enumerate(told):
        rows = []
        for finished, when in sorted(ends, key=lambda one: one[1]):
            attempt += 1
            rows.append((task, attempt, finished, when))
        then = [one for one in rows if one[3] <= at]
        if then and then[-1][2] and task not in again:
            expected[task] = [one[1] for one in then]
        records += rows[-1:] if task in ended else []
        history += rows[:-1] if task in ended else rows
    past.take_earlier(history)
    past.take_records(records)
    kept = past.kept()
    kept.difference_update(IntervalSet((task, task) for task in again))
    parts: list[JobsPart] = [
        LinesPart(JOB, 0, [f"was {task}" for task in range(len(told))]),
        *cut(history, size, history=True),
        *cut(records, size, history=False),
        SpansPart(JOB, [(0, 0, FAILED, 1.0, "", 0)]),
        BlockedPart(JOB, [(0, 0, 1, 1.0)]),
        NotesPart(JOB, [(0, 0, 1.0, "held", "")]),
    ]
    others = [f"is {task}" for task in range(len(told))]

    found = list(Replaying(JOB, float(at), kept, past.chosen(), others, pieces).parts(parts))

    lines, *rest = found
    assert lines == LinesPart(JOB, 0, others)
    seen: dict[int, list[int]] = {}
    before: set[int] = set()
    spoke: list[int] = []
    tasks: list[int] = []
    for part in rest:
        match part:
            case HistoryPart(_, names, rows):
                assert not tasks, "records stand behind all of history"
                before = {one[1] for one in rows}
            case OutcomesPart(_, names, records_then):
                before = {one[1] for one in records_then}
                tasks += [one[0] for one in records_then]
            case SegmentPart(number):
                assert number in before, "pieces stand behind the part of their attempt"
                spoke.append(number)
                continue
            case _:
                raise AssertionError(part)
        for one in part.rows:
            assert names[one[3]] == f"w{one[1] % 3}"
            assert one[13] == str(one[1]).encode()
            seen.setdefault(one[0], []).append(one[1])
    assert seen == expected
    assert tasks == sorted(expected), "in order"
    assert sorted(spoke) == sorted(number for numbers in expected.values() for number in numbers)


def test_output_of_what_is_put_back_is_not_held_until_then() -> None:
    tasks = 200
    alive: weakref.WeakSet[SegmentPart] = weakref.WeakSet()
    most = 0

    def large(attempt: int) -> Iterator[SegmentPart]:
        nonlocal most
        piece = Traced(attempt, "out", 0, b"x")
        alive.add(piece)
        most = max(most, len(alive))
        yield piece

    def told() -> Iterator[JobsPart]:
        names = {number: f"w{number}" for number in range(3)}
        for task in range(tasks):
            yield HistoryPart(JOB, names, [earlier(task, task + 1, True, 1)])
            yield from large(task + 1)

    chosen = {task: task + 1 for task in range(tasks)}
    replaying = Replaying(JOB, 5.0, IntervalSet([(0, tasks - 1)]), chosen, None, large)
    spoke = sum(isinstance(part, SegmentPart) for part in replaying.parts(told()))
    assert spoke == tasks
    assert most < 5
