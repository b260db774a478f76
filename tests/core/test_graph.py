"""Graphs: the machine against a naive evaluator, cycles against a naive search, and what a large graph costs."""

import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.accounts import Settings
from tercel.core.changes import Edge, JobAdded, Loaded
from tercel.core.effects import Offered
from tercel.core.graph import check_edges, find_cycle
from tercel.core.intervals import IntervalSet
from tercel.core.machine import Machine
from tercel.core.model import After, AfterKind, JobRow, JobSpec, Needs
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report

from .naive_graph import NaiveGraph, Task
from .transcript import Stage
from .wording import edges_of, options_of, row_of

# -- against a naive evaluator ------------------------------------------------------------------------------

KINDS = ("ok", "ok", "any", "notok", "each", "each-any", "each-notok")


def shapes(kinds: Iterable[str], endings: Iterable[str]) -> st.SearchStrategy[list[Any]]:
    """Jobs: tasks, needs (how many jobs back, how, whether of the first task only), edges, what failure means."""
    need = st.tuples(st.integers(1, 3), st.sampled_from(list(kinds)), st.booleans())
    edge = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
    job = st.tuples(
        st.sampled_from([1, 1, 2, 4]),
        st.lists(need, max_size=2),
        st.lists(edge, max_size=4),
        st.sampled_from(list(endings)),
        st.booleans(),
    )
    return st.lists(job, min_size=2, max_size=6)


def events(*kinds: str) -> st.SearchStrategy[list[Any]]:
    event = st.tuples(st.sampled_from(kinds), st.integers(0, 99), st.integers(1, 15))
    return st.lists(event, min_size=15, max_size=50)


class Pair:
    """The machine and the naive one through the same story, told as in scenarios/*.txt."""

    def __init__(self, jobs: list[Any]) -> None:
        self.stage, self.naive = Stage(), NaiveGraph()
        self.coming = [self.submission(id, *shape) for id, shape in enumerate(jobs, 1)]
        self.sizes = [shape[0] for shape in jobs]
        self.stage.play("worker w joins cpus=99")

    def submission(self, id: int, tasks: int, needs: Any, edges: Any, ending: str, in_flow: bool) -> str:
        words = [f"submit {id} tasks=0-{tasks - 1}"]
        after = {f"{how}:{id - back}{'.0' if first else ''}" for back, how, first in needs if back < id}
        words += [f"after={','.join(sorted(after))}"] if after else []
        arrows = {f"{max(a, b) % tasks}>{min(a, b) % tasks}" for a, b, back in edges if back == 0}
        arrows = {text for text in arrows if int(text[0]) > int(text[2])}
        arrows |= {f"{a % tasks}>{id - back}.0" for a, _, back in edges if 0 < back < id}
        words += [f"edges={','.join(sorted(arrows))}"] if arrows else []
        words += [f"{'max_fails' if ending == '1' else 'on_failure'}={ending}"]
        return " ".join(words + ["flow=1"] * in_flow)

    def step(self, what: str, choice: int, mask: int) -> None:
        flying = sorted(task for task, state in self.naive.state.items() if state == "flying")
        if what == "submit" and self.coming:
            words = self.coming.pop(0)
            self.stage.play(words)
            id, options = int(words.split()[1]), options_of(words.split()[2:])
            self.naive.add(row_of(id, options, 0.0), edges_of(id, options))
        elif what in ("finished", "failed") and flying:
            job, number = flying[choice % len(flying)]
            flight = self.stage.machine.jobs[job].flights[number]
            code = int(what == "failed")
            self.stage.play(f"w reports {self.stage._names[flight.attempt]} exit {code}")
            self.naive.end((job, number), what)
        elif what == "restart":
            names = [f"{self.stage._names[f.attempt]} waiting" for f in self._flights()]
            self.stage.play("the manager restarts")
            self.stage.play(f"worker w joins cpus=99 holding {', '.join(names)}")
        elif what in ("cancel", "hold", "release", "retry", "rollback") and self.naive.rows:
            ids = sorted(self.naive.rows)
            self.ask(what, ids[choice % len(ids)], mask)

    def ask(self, what: str, id: int, mask: int) -> None:
        chosen = [task for task in self.naive.tasks_of(id) if mask >> task[1] & 1]
        if chosen and (what in ("retry", "rollback") or id in self.stage.machine.jobs):
            numbers = ",".join(str(number) for _, number in chosen)
            self.stage.play(f"{what} {id}.{numbers}")
            getattr(self.naive, what)(chosen)

    def _flights(self) -> list[Any]:
        return list(self.stage.machine.workers["w"].flights.values())

    def compare(self) -> None:
        ours = {task: self.stage.state(f"{task[0]}.{task[1]}") for task in self.naive.state}
        assert ours == {task: self.naive.told(task) for task in self.naive.state}


def play(jobs: list[Any], steps: list[Any], early: int) -> Pair:
    pair = Pair(jobs)
    for what, choice, mask in [("submit", 0, 0)] * early + steps:
        pair.step(what, choice, mask)
        # What was cancelled occupies its worker until that says so.
        for flight in [flight for flight in pair._flights() if flight.ending]:
            pair.stage.play(f"w reports {pair.stage._names[flight.attempt]} cancelled")
        pair.compare()
    return pair


@pytest.mark.must("b")
@settings(max_examples=300, deadline=None)
@given(
    shapes(KINDS, ("skip", "skip", "run", "stop", "1")),
    events("submit", *["finished"] * 4, "failed", "cancel", "hold", "release", "restart"),
    st.integers(0, 3),
)
def test_whoever_may_run_runs_and_whoever_cannot_is_skipped(
    jobs: list[Any], steps: list[Any], early: int
) -> None:
    play(jobs, steps, early)


@pytest.mark.must("b")
@settings(max_examples=300, deadline=None)
@given(
    shapes(("ok", "ok", "each"), ("skip",)),
    events(
        "submit", "finished", "failed", "failed", "cancel", "hold", "release", "restart", "retry", "retry"
    ),
    st.integers(0, 6),
)
def test_a_retry_revives_exactly_what_was_skipped_for_it(
    jobs: list[Any], steps: list[Any], early: int
) -> None:
    pair = play(jobs, steps, early)
    skipped: set[Task] = {(job.id, n) for job in pair.stage.machine.jobs.values() for n in job.skipped}
    known = set(pair.stage.machine.jobs)
    assert skipped == {t for t, state in pair.naive.state.items() if state == "skipped" and t[0] in known}


# -- cycles -------------------------------------------------------------------------------------------------

GRAPH = st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4), max_size=8)


def naive_has_cycle(graph: dict[int, list[int]]) -> bool:
    """Whether anybody reaches itself."""

    def reach(node: int, seen: set[int]) -> set[int]:
        for other in graph.get(node, []):
            if other not in seen:
                seen.add(other)
                reach(other, seen)
        return seen

    return any(node in reach(node, set()) for node in graph)


@pytest.mark.must("e")
@settings(max_examples=500)
@given(GRAPH)
def test_a_cycle_is_found_if_there_is_one_and_it_is_real(graph: dict[int, list[int]]) -> None:
    cycle = find_cycle(lambda node: graph.get(node, []), graph)
    assert bool(cycle) == naive_has_cycle(graph)
    if cycle:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1, "no longer than it must be"
        assert all(b in graph[a] for a, b in pairwise(cycle))


def test_a_very_long_chain_is_searched_once_and_without_recursion() -> None:
    asked: list[int] = []

    def after(node: int) -> list[int]:
        asked.append(node)
        return [node + 1] if node < 99_999 else []

    assert find_cycle(after, range(99_999, -1, -1)) == []
    assert sorted(asked) == list(range(100_000))
    assert find_cycle(lambda node: [(node + 1) % 100_000], [0]) == [*range(100_000), 0]


@pytest.mark.must("e")
def test_edges_are_a_cycle_only_among_the_jobs_own_tasks() -> None:
    ranges = [(0, 9)]
    assert check_edges([(1, 0, 0, 0), (2, 0, 0, 1)], 0, ranges) == []
    assert check_edges([(1, 7, 1, 1), (2, 7, 0, 9)], 0, ranges) == [], "tasks of another job"
    assert check_edges([(1, 0, 2, 5), (4, 0, 1, 1)], 0, ranges) == [1, 4, 1]
    assert check_edges([(3, 0, 3, 3)], 0, ranges) == [3, 3]
    assert check_edges([(1, 0, 20, 30), (25, 0, 1, 1)], 0, ranges) == [], "tasks that there are not"


# -- what it costs ------------------------------------------------------------------------------------------


def row(id: int, tasks: int = 1, after: Iterable[After] = ()) -> JobRow:
    spec = JobSpec(argv=("x",), after=tuple(after))
    return JobRow(id=id, owner="ada", spec=spec, ranges=((0, tasks - 1),), max_running=0, submitted_at=0.0)


def chain_of_jobs(n: int) -> list[tuple[JobRow, list[Edge]]]:
    return [(row(id, after=[After(job=id - 1)] if id > 1 else ()), []) for id in range(1, n + 1)]


def chain_of_tasks(n: int) -> list[tuple[JobRow, list[Edge]]]:
    return [(row(1, n), [(task, 1, task - 1, task - 1) for task in range(1, n)])]


def one_before_many_jobs(n: int) -> list[tuple[JobRow, list[Edge]]]:
    return [(row(1), [])] + [(row(id, after=[After(job=1)]), []) for id in range(2, n + 2)]


def one_before_many_arrows(n: int) -> list[tuple[JobRow, list[Edge]]]:
    return [(row(1), [])] + [(row(id), [(0, 1, 0, 0)]) for id in range(2, n + 2)]


def many_before_one(n: int) -> list[tuple[JobRow, list[Edge]]]:
    needs = [After(job=id, kind=AfterKind.OK) for id in range(1, n + 1)]
    return [(row(id), []) for id in range(1, n + 1)] + [(row(n + 1, after=needs), [])]


GRAPHS = (chain_of_jobs, chain_of_tasks, one_before_many_jobs, one_before_many_arrows, many_before_one)


def drain(graph: list[tuple[JobRow, list[Edge]]], first_code: int) -> Machine:
    """Through a pool with much room; the very first task ends with this code, all others finish."""
    machine = Machine(Settings(), Loaded(1, 1, [], [], []), 0.0)
    machine.on_hello("w", "1", WorkerInfo(node="n", capacity=Needs(10**9, 0)), [], 0.0)
    for one, edges in graph:
        machine.on_accepted(one, edges)
    while True:
        machine.round()
        _, effects = machine.take()
        reports = [
            Report(lease.job, task, lease.id + at, End.EXITED, code, 0.0, 100.0, 0.0, 0)
            for effect in effects
            if isinstance(effect, Offered)
            for lease in effect.leases
            for at, task in enumerate(range(lease.first, lease.last + 1))
            for code in [first_code if (lease.job, task) == (1, 0) else 0]
        ]
        if not reports:
            return machine
        machine.on_reports("w", reports, 0.0)


def lines_run(do: Callable[[], object]) -> int:
    """Lines of Python, each time round a loop counted anew: a measure of work that no other process disturbs."""
    count = 0

    def trace(*_: object) -> Any:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("code", [0, 1], ids=["finished", "failed"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_a_graph_drains_at_a_cost_in_proportion_to_its_size(graph: Callable[[int], Any], code: int) -> None:
    small, large = graph(250), graph(1000)
    assert not drain(large, code).jobs, "all has ended"
    assert lines_run(lambda: drain(large, code)) < 1.3 * 4 * lines_run(lambda: drain(small, code))


def test_a_retry_in_a_chain_of_tasks_costs_in_proportion_to_its_length() -> None:
    """All but the first, which failed: not one of them can run."""

    def hopeless(n: int) -> int:
        machine = Machine(Settings(), Loaded(1, 1, [], [], []), 0.0)
        ((one, edges),) = chain_of_tasks(n)
        job = machine.on_accepted(one, edges)
        machine.on_cancel(job, IntervalSet([(0, 0)]), "enough", 0.0)
        return lines_run(lambda: machine.on_retry(job, IntervalSet([(1, n - 1)]), 0.0))

    assert hopeless(1000) < 1.3 * 4 * hopeless(250)


def test_twenty_thousand_jobs_in_a_chain_and_tasks_in_a_graph_drain() -> None:
    for graph in (chain_of_jobs(20_000), chain_of_tasks(20_000), one_before_many_arrows(20_000)):
        for code in (0, 1):
            assert not drain(graph, code).jobs


def test_one_that_cannot_run_any_more_takes_no_other_along_when_the_manager_starts() -> None:
    """Both need the same job, which has ended. The first is skipped while the second has not looked yet."""
    stage = Stage()
    for event in ("worker w1 joins cpus=1", "submit 1 tasks=0", "w1 reports 1.0a exit 1"):
        stage.play(event)
    for id, kind in ((2, AfterKind.OK), (3, AfterKind.NOTOK)):  # accepted, and then the manager was killed
        spec = JobSpec(argv=("true",), after=(After(job=1, kind=kind),))
        row = JobRow(id=id, owner="ada", spec=spec, ranges=((0, 0),), max_running=0, submitted_at=stage.now)
        stage.store.write([JobAdded(row, (), (), ())])
    stage.store.commit()
    stage.play("the manager restarts")
    assert list(stage.machine.jobs) == [3]
    assert stage.machine.jobs[3].ready.ranges() == [(0, 0)]


def graph_of(*events: str) -> Stage:
    stage = Stage()
    for event in ("worker w1 joins cpus=4", *events):
        stage.play(event)
    return stage


@pytest.mark.parametrize("restarts", [False, True])
def test_a_need_that_is_said_more_than_once_is_one(restarts: bool) -> None:
    """Counted twice and met once, it would be waited for for ever."""
    stage = graph_of("submit 1 tasks=0-2 edges=2>0-1,2>1,2>0-1")
    if restarts:
        stage.play("the manager restarts")
        stage.play("worker w1 joins cpus=4 holding 1.0a waiting, 1.1a waiting")
    for task in (0, 1):
        stage.play(f"w1 reports 1.{task}a exit 0")
    assert stage.state("1.2") == "offered"


def test_of_reports_that_come_together_each_is_heard_by_who_needs_it() -> None:
    stage = graph_of(
        "submit 1 tasks=0-1",
        "submit 2 tasks=0-1 after=each:1",
        "submit 3 tasks=0-1 edges=0>1.0,1>1.1",
        "submit 4 tasks=0-1 after=each-notok:1",
    )
    flights = stage.machine.jobs[1].flights
    ends = [Report(1, task, flights[task].attempt, End.EXITED, task, 0.0, 1.0, 0.0, 0) for task in (0, 1)]
    stage.machine.on_reports("w1", ends, stage.now)
    for id, runs, skipped in ((2, 0, 1), (3, 0, 1), (4, 1, 0)):
        job = stage.machine.jobs[id]
        assert (job.ready.ranges(), job.cancelled.ranges()) == ([(runs, runs)], [(skipped, skipped)])


def test_what_is_under_way_when_a_manager_starts_waits_for_nothing_any_more() -> None:
    """It had all that it needs, whatever became of that since."""
    stage = graph_of(
        "submit 1 tasks=0", "submit 2 tasks=0-1 edges=0>1.0,1>0", "w1 reports 1.0a exit 0", "retry all 1.0"
    )
    stage.play("the manager restarts")
    assert (stage.state("2.0"), stage.machine.jobs[2].unmet) == ("offered", {1: 1})
