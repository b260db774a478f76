"""Which tasks of a replayed campaign keep their records: compared with a naive answer, task by task."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.files import Input, Output
from tercel.core.forking import Copied, Past, affected, fates, is_changed
from tercel.core.grids import Axis, Grid
from tercel.core.intervals import IntervalSet
from tercel.core.model import After, AfterKind, JobSpec

TASKS = 5
Named = tuple[int, int]


def some(tasks: Iterable[int]) -> IntervalSet:
    return IntervalSet((task, task) for task in tasks)


def test_a_job_that_reads_or_leaves_other_files_runs_all_its_tasks_again() -> None:
    old = JobSpec(argv=("go",))
    for new in (
        JobSpec(argv=("go",), inputs=(Input(source="lfn:a"),)),
        JobSpec(argv=("go",), outputs=(Output(name="a", to=("lfn:a",)),)),
    ):
        assert is_changed(old, new)
        assert list(affected(old, new, some(range(TASKS)), None)) == list(range(TASKS))


# -- what runs again --------------------------------------------------------------------------------------


@st.composite
def campaigns(draw: st.DrawFn) -> list[Copied]:
    numbers = st.sets(st.integers(0, TASKS - 1))
    jobs: list[Copied] = []
    for id in range(11, 11 + draw(st.integers(1, 4))):
        ranges = tuple(some(draw(numbers.filter(bool))).ranges())
        every = list(IntervalSet(ranges))
        others = [2, *(job.id for job in jobs)]  # 2 is outside
        afters = st.builds(
            After,
            job=st.sampled_from(others),
            kind=st.sampled_from(AfterKind),
            tasks=st.sampled_from([(), ((0, 1),), ((3, 4),)]),
            each=st.booleans(),
        )
        spans = st.tuples(st.integers(0, TASKS - 1), st.integers(0, 2))
        edges = [
            (task, other, first, first + more)
            for task in every
            for other, (first, more) in draw(
                st.lists(st.tuples(st.sampled_from([id, *others]), spans), max_size=2)
            )
            if other != id or first + more < task  # so no circle
        ]
        kept = draw(numbers).intersection(every)
        after = tuple(draw(st.lists(afters, max_size=2)))
        jobs.append(Copied(id, ranges, some(kept), some(draw(numbers)), after, edges))
    return jobs


def naive(jobs: list[Copied]) -> set[Named]:
    """Every need of every task, one by one, until nothing more runs again."""
    there = {(job.id, task) for job in jobs for task in IntervalSet(job.ranges)}
    needs: set[tuple[Named, Named]] = set()
    for job in jobs:
        for task in IntervalSet(job.ranges):
            for after in job.after:
                for number in range(TASKS + 3):
                    inside = not after.tasks or any(low <= number <= high for low, high in after.tasks)
                    if inside and (not after.each or number == task):
                        needs.add(((job.id, task), (after.job, number)))
        for task, other, first, last in job.edges:
            needs |= {((job.id, task), (other, number)) for number in range(first, last + 1)}
    again = {
        (job.id, task)
        for job in jobs
        for task in IntervalSet(job.ranges)
        if task not in job.kept or task in job.affected
    }
    while more := {one for one, need in needs if need in again & there} - again:
        again |= more
    return again


@given(campaigns())
def test_what_runs_again_is_what_a_naive_look_at_each_need_finds(jobs: list[Copied]) -> None:
    found = fates(jobs)
    assert {(id, task) for id, fate in found.items() for task in fate.again()} == naive(jobs)


@given(campaigns())
def test_each_task_that_runs_again_does_so_for_one_reason(jobs: list[Copied]) -> None:
    for id, fate in fates(jobs).items():
        reasons = (fate.unfinished, fate.changed, fate.needy)
        assert len(fate.again()) == sum(map(len, reasons)), id


def test_the_longest_chain_in_one_job_runs_again_behind_its_first_task() -> None:
    count = 50_000
    edges = [(task, 1, task - 1, task - 1) for task in range(1, count)]
    every = IntervalSet([(0, count - 1)])
    fate = fates([Copied(1, ((0, count - 1),), every, some([0]), (), edges)])[1]
    assert (len(fate.changed), len(fate.needy)) == (1, count - 1)


# -- what had finished ------------------------------------------------------------------------------------

attempts = st.lists(st.tuples(st.booleans(), st.integers(0, 10)), max_size=4)


@given(st.lists(attempts, max_size=6), st.sets(st.integers(0, 5)), st.integers(0, 10))
def test_a_task_has_the_record_that_it_had_then(
    told: list[list[tuple[bool, int]]], ended: set[int], at: int
) -> None:
    """Attempts end one after the other; the last is the record, if its task has ended."""
    history, records, expected = [], [], {}
    for task, tries in enumerate(told):
        rows = [
            (task, 100 + n, finished, float(when))
            for n, (finished, when) in enumerate(sorted(tries, key=lambda one: one[1]))
        ]
        before = [row for row in rows if row[3] <= at]
        if before and before[-1][2]:
            expected[task] = before[-1][1]
        records += rows[-1:] if task in ended else []
        history += rows[:-1] if task in ended else rows
    past = Past(float(at))
    past.take_earlier(history)
    past.take_records(records)

    assert set(past.kept()) == set(expected)
    current = {task: attempt for task, attempt, _, when in records if when <= at}
    assert past.chosen() == {
        task: attempt for task, attempt in expected.items() if current.get(task) != attempt
    }


def test_now_only_records_count_and_what_is_to_run_again_has_none() -> None:
    past = Past(None)
    past.take_earlier([(0, 1, True, 5.0), (1, 2, False, 5.0)])
    past.take_records([(1, 3, True, 1e12), (2, 4, False, 1.0)])
    assert (set(past.kept()), past.chosen()) == ({1}, {})


# -- what is affected -------------------------------------------------------------------------------------

ALL = IntervalSet([(0, 3)])
LINES = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 1},
        {"mem_bytes": 5},
        {"retries": 3},
        {"queue": "q"},
        {"name": "n"},
        {"where": "worker.os == 'linux'"},
        {"time_limit_s": 5.0},
        {"max_fails": "3"},
    ],
)
def test_what_does_not_alter_results_affects_nothing(fields: dict[str, Any]) -> None:
    old = JobSpec(line="go")
    new = JobSpec(line="go", **fields)
    assert not is_changed(old, new)
    assert not affected(old, new, ALL, None)


@pytest.mark.parametrize(
    "fields", [{"cwd": "/x"}, {"env": {"A": "1"}}, {"task_id_argument": True}, {"container": "image"}]
)
def test_other_surroundings_affect_every_task(fields: dict[str, Any]) -> None:
    old, new = JobSpec(), JobSpec(**fields)
    texts = [(task, line, line) for task, line in enumerate(LINES)]
    assert is_changed(old, new)
    assert affected(old, new, ALL, texts) == ALL


def test_another_command_affects_every_task_of_a_job_without_points() -> None:
    assert affected(JobSpec(line="go"), JobSpec(line="come"), ALL, None) == ALL
    assert not affected(JobSpec(line="go"), JobSpec(line="go"), ALL, None)


def test_of_lines_those_are_affected_that_differ_and_had_finished() -> None:
    texts = list(zip(range(4), LINES, ["a", "B", "c", "D"], strict=True))
    assert affected(JobSpec(), JobSpec(), IntervalSet([(0, 2)]), texts) == some([1])


def test_points_whose_command_comes_out_the_same_are_not_affected() -> None:
    grid = Grid(axes=(Axis(name="a", values=("1", "2")), Axis(name="b", values=("1", "2"))))
    old = JobSpec(line="fit {a}", grid=grid, template=True)
    new = JobSpec(line="fit {b}", grid=grid, template=True)
    assert affected(old, new, ALL, None) == some([1, 2]), "1,2 and 2,1"
    assert affected(old, JobSpec(line="fit {a} -v", grid=grid, template=True), ALL, None) == ALL


def test_items_are_compared_by_the_command_and_by_what_else_a_task_can_read() -> None:
    items = ['{"a": 1, "b": 1}', '{"a": 1, "b": 2}', '{"a": "x", "b": "x"}', '{"a": "x", "b": "y"}']
    old, new = JobSpec(argv=("fit", "{a}"), template=True), JobSpec(argv=("fit", "{b}"), template=True)
    texts = [(task, item, item) for task, item in enumerate(items)]
    assert affected(old, new, ALL, texts) == some([1, 3])
    other = [(task, was, now if task else now.replace("}", ', "c": 1}')) for task, was, now in texts]
    assert affected(old, old, ALL, other) == some([0])
