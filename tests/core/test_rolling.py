"""What a rollback undoes: the plan, and the machine that follows it, against a naive one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.intervals import IntervalSet
from tercel.core.model import After, JobRow, JobSpec
from tercel.core.rolling import Standing, healthy, plan
from tercel.core.states import Checkpoint

from .test_graph import KINDS, events, play, shapes
from .transcript import Stage
from .wording import row_of


@pytest.mark.C(6)
@pytest.mark.must("a")
@settings(max_examples=400, deadline=None)
@given(
    shapes(KINDS, ("skip", "skip", "run")),
    events(
        "submit",
        *["finished"] * 4,
        "failed",
        "cancel",
        "hold",
        "release",
        "restart",
        *["rollback"] * 3,
    ),
    st.integers(0, 6),
)
def test_a_rollback_undoes_exactly_what_was_chosen_and_what_stands_on_it(
    jobs: list[Any], steps: list[Any], early: int
) -> None:
    play(jobs, steps, early)


def standing(
    id: int, size: int, *, after: tuple[After, ...] = (), **ended: list[tuple[int, int]]
) -> Standing:
    spec = JobSpec(argv=("true",), after=after)
    row = JobRow(id=id, owner="ada", submitted_at=0.0, max_running=0, spec=spec, ranges=[(0, size - 1)])
    names = ("finished", "failed", "cancelled", "skipped", "under_way")
    return Standing(row, *(IntervalSet(ended.get(name, [])) for name in names))


@pytest.mark.C(6)
def test_ten_million_tasks_are_planned_as_ranges() -> None:
    size = 10_000_000
    known = {
        1: standing(1, size, finished=[(0, size - 2)], failed=[(size - 1, size - 1)]),
        2: standing(2, size, after=(After(job=1, each=True),), finished=[(0, size - 2)]),
    }
    made = plan({1: IntervalSet([(0, size - 1)])}, known)
    assert made.parts[1].chosen.ranges() == [(0, size - 1)]
    assert made.parts[2].used.ranges() == [(0, size - 2)]
    assert not made.in_the_way
    assert not made.hopeless


@pytest.mark.C(6)
@settings(max_examples=200, deadline=None)
@given(
    st.sets(
        st.tuples(st.integers(1, 3), st.integers(0, 39), st.integers(0, 39), st.integers(0, 39)), max_size=25
    ),
    st.sets(st.integers(0, 39), min_size=1, max_size=9),
)
def test_all_that_single_tasks_need_of_ranges_however_long_is_followed(
    arrows: set[tuple[int, int, int, int]], chosen: set[int]
) -> None:
    """Each arrow: a task of job n needs tasks of job n - 1, or (of job 1) earlier ones of its own."""
    edges: dict[int, list[tuple[int, int, int, int]]] = {1: [], 2: [], 3: []}
    for job, task, one, other in arrows:
        first, last = sorted((one, other))
        if job > 1:
            edges[job].append((task, job - 1, first, last))
        elif first < task:
            edges[job].append((task, 1, first, min(last, task - 1)))
    known = {job: standing(job, 40, finished=[(0, 39)]) for job in edges}
    for job, some in edges.items():
        known[job].edges = sorted(some)
    undone = {(1, task) for task in chosen}
    grown = True
    while grown:
        behind = {
            (job, task)
            for job, some in edges.items()
            for task, other, first, last in some
            if any((other, number) in undone for number in range(first, last + 1))
        }
        grown = not behind <= undone
        undone |= behind
    parts = plan({1: IntervalSet((task, task) for task in chosen)}, known).parts
    assert {(job, task) for job, part in parts.items() for task in part.tasks} == undone


@pytest.mark.C(6)
def test_only_what_is_chosen_is_undone_if_that_is_asked_for() -> None:
    known = {
        1: standing(1, 2, finished=[(0, 1)]),
        2: standing(2, 1, after=(After(job=1),), finished=[(0, 0)]),
    }
    chosen = {1: IntervalSet([(0, 0)])}
    assert list(plan(chosen, known).parts) == [1, 2]
    assert list(plan(chosen, known, only=True).parts) == [1]


@pytest.mark.C(6)
def test_what_runs_with_results_that_would_be_undone_is_in_the_way() -> None:
    known = {
        1: standing(1, 2, finished=[(0, 1)]),
        2: standing(2, 3, after=(After(job=1),), under_way=[(1, 1)]),
    }
    assert plan({1: IntervalSet([(0, 0)])}, known).in_the_way == {2: IntervalSet([(1, 1)])}


@pytest.mark.C(6)
def test_a_task_whose_need_failed_stays_as_it_is_unless_that_is_undone_with_it() -> None:
    known = {
        1: standing(1, 1, failed=[(0, 0)]),
        2: standing(2, 1, after=(After(job=1),), cancelled=[(0, 0)], skipped=[(0, 0)]),
    }
    alone = plan({2: IntervalSet([(0, 0)])}, known)
    assert not alone.parts
    assert alone.hopeless == {2: IntervalSet([(0, 0)])}
    assert plan({1: IntervalSet([(0, 0)])}, known).parts[2].skipped == IntervalSet([(0, 0)])


def test_with_nothing_staged_the_last_healthy_checkpoint_is_the_acceptance() -> None:
    reads, reads_nothing = row_of(1, {"in": "https://store/x"}, 0.0), row_of(2, {}, 0.0)
    for asked in Checkpoint:
        assert healthy(asked, [reads]) is asked
        assert healthy(asked, [reads, reads_nothing]) is Checkpoint.ACCEPTED


@pytest.mark.C(6)
def test_a_job_that_waits_with_its_need_met_waits_again_if_that_is_rolled_back() -> None:
    stage = Stage()
    for event in (
        "worker w joins cpus=1",
        "submit 1 tasks=0-0",
        "w reports 1.0a exit 0",
        "submit 3 tasks=0-0",
        "submit 2 tasks=0-0 after=ok:1",
    ):
        stage.play(event)
    assert stage.state("2.0") == "ready", "3 has the only worker"
    stage.play("rollback 1")
    assert stage.state("1.0") == "ready"
    assert stage.state("2.0") == "waiting"
    told = [(note.what, note.note) for note in stage.store.notes(1, 0)]
    assert told == [("rolled back", "by ada")]
    assert len(stage.store.history(1, 0)) == 1
