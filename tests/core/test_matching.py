"""Kinds and shapes against a matcher that asks every worker about every task; ranks against all assignments there are."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tercel.core import assign
from tercel.core.accounts import Settings
from tercel.core.changes import Leased, Loaded
from tercel.core.explain import why_ready
from tercel.core.invariants import violations
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Needs
from tercel.core.presence import Facts, Gpu, WorkerInfo, WorkerState
from tercel.core.reports import End, Report

GB = 2**30

WHERE: dict[str, Callable[[dict[str, Any]], bool]] = {
    "": lambda w: True,
    'worker.os == "linux"': lambda w: w["os"] == "linux",
    "worker.mem >= 4*GB": lambda w: w["mem"] >= 4 * GB,
    "worker.gpu.mem >= 20*GB": lambda w: w["gpus"] > 0 and w["gpu_mem"] >= 20 * GB,
    "worker.mem_free >= 2*GB": lambda w: w["mem_free"] >= 2 * GB,
    '"a" in worker.tags && worker.cpus > 1': lambda w: "a" in w["tags"] and w["cpus"] > 1,
    'worker.name != "w1"': lambda w: w["name"] != "w1",
    "worker.mem / 0 == 1": lambda w: False,
    'worker.resource["licence"] >= 1.0': lambda w: w["licences"] >= 1,
    "task.cpus * 2.0 <= worker.cpus": lambda w: w["task_cpus"] * 2 <= w["cpus"],
}
"""What users write, and what it means."""

WORKER = st.fixed_dictionaries(
    {
        "os": st.sampled_from(["linux", "darwin"]),
        "cpus": st.integers(1, 4),
        "mem": st.sampled_from([1 * GB, 4 * GB, 8 * GB]),
        "mem_free": st.sampled_from([GB, 2 * GB, 6 * GB]),
        "tags": st.sets(st.sampled_from(["a", "b", "c"])),
        "gpus": st.integers(0, 2),
        "gpu_mem": st.sampled_from([10 * GB, 40 * GB]),
        "licences": st.integers(0, 2),
    }
)
JOB = st.fixed_dictionaries(
    {
        "cpus": st.sampled_from([0.5, 1.0, 2.0]),
        "mem": st.sampled_from([0, 0, GB, 3 * GB]),
        "gpus": st.sampled_from([0.0, 0.0, 0.25, 0.6, 1.0, 2.0]),
        "licences": st.sampled_from([0.0, 0.0, 1.0]),
        "requires": st.sets(st.sampled_from(["a", "b", "c"]), max_size=2),
        "where": st.sampled_from(list(WHERE)),
        "tasks": st.integers(1, 5),
        "priority": st.sampled_from([0, 1000]),
    }
)


def machine() -> Machine:
    return Machine(Settings(), Loaded(1, 1, [], [], []), 0.0)


def spec_of(job: dict[str, Any]) -> JobSpec:
    return JobSpec(
        argv=("x",),
        cpus=job["cpus"],
        mem_bytes=job["mem"],
        gpus=job["gpus"],
        resources={"licence": job["licences"]} if job["licences"] else {},
        requires=tuple(sorted(job["requires"])),
        where=job["where"],
        priority=job["priority"],
    )


def row_of(id: int, tasks: int, spec: JobSpec, max_running: int = 0) -> JobRow:
    ranges = ((0, tasks - 1),)
    return JobRow(id=id, owner="ada", spec=spec, ranges=ranges, max_running=max_running, submitted_at=0.0)


def join(pool: Machine, name: str, worker: dict[str, Any]) -> None:
    resources = [("licence", worker["licences"] * 1000)] if worker["licences"] else []
    if worker["gpus"]:
        resources.append(("gpus", worker["gpus"] * 1000))
    info = WorkerInfo(
        node=name,
        capacity=Needs(worker["cpus"] * 1000, worker["mem"], "", tuple(sorted(resources))),
        os=worker["os"],
        tags=tuple(sorted(worker["tags"])),
        gpus=tuple(Gpu(str(at), "x", worker["gpu_mem"]) for at in range(worker["gpus"])),
        indices={"gpus": tuple(map(str, range(worker["gpus"])))} if worker["gpus"] else {},
    )
    pool.on_hello(name, "1", info, [], 0.0)
    facts = Facts(mem_free_bytes=worker["mem_free"])
    pool.on_presence(name, WorkerState.AVAILABLE, info.capacity, 0.0, facts)


def offers(pool: Machine) -> list[tuple[str, int, int]]:
    pool.round()
    assert violations(pool) == []
    changes, _ = pool.take()
    leases = [change.lease for change in changes if isinstance(change, Leased)]
    return [(one.worker, one.job, task) for one in leases for task in range(one.first, one.last + 1)]


class NaiveWorker:
    """What is left of it."""

    def __init__(self, name: str, worker: dict[str, Any]) -> None:
        self.facts = {**worker, "name": name}
        self.cpus, self.mem, self.licences = worker["cpus"], worker["mem"], worker["licences"]
        self.gpus = [1000] * worker["gpus"]
        """Of each piece."""

    def may(self, job: dict[str, Any]) -> bool:
        return job["requires"] <= self.facts["tags"] and WHERE[job["where"]](
            {**self.facts, "task_cpus": job["cpus"]}
        )

    def take(self, job: dict[str, Any]) -> bool:
        if not self.may(job) or job["cpus"] > self.cpus or job["mem"] > self.mem:
            return False
        if job["licences"] > self.licences or not self._take_gpus(round(job["gpus"] * 1000)):
            return False
        self.cpus -= job["cpus"]
        self.mem -= job["mem"]
        self.licences -= job["licences"]
        return True

    def _take_gpus(self, amount: int) -> bool:
        if 0 < amount < 1000:
            fitting = [piece for piece in self.gpus if piece >= amount]
            if not fitting:
                return False
            self.gpus[self.gpus.index(min(fitting))] -= amount
            return True
        if self.gpus.count(1000) * 1000 < amount:
            return False
        for _ in range(amount // 1000):
            self.gpus[self.gpus.index(1000)] = 0
        return True


@pytest.mark.must("a")
@pytest.mark.K(3, 4)
@settings(max_examples=1000, deadline=None)
@given(st.lists(WORKER, min_size=1, max_size=5), st.lists(JOB, min_size=1, max_size=7))
def test_kinds_and_shapes_match_as_asking_every_worker_about_every_task(
    workers: list[dict[str, Any]], jobs: list[dict[str, Any]]
) -> None:
    """No task goes where it must not, nothing is given twice, and nobody idles who could run something."""
    pool = machine()
    for id, job in enumerate(jobs, 1):
        pool.on_accepted(row_of(id, job["tasks"], spec_of(job)))
    given_out, expected = [], []
    left = {id: list(range(job["tasks"])) for id, job in enumerate(jobs, 1)}
    order = sorted(left, key=lambda id: (jobs[id - 1]["priority"], id))
    for number, worker in enumerate(workers):
        join(pool, f"w{number}", worker)
        given_out += offers(pool)
        naive = NaiveWorker(f"w{number}", worker)
        for id in order:
            while left[id] and naive.take(jobs[id - 1]):
                expected.append((f"w{number}", id, left[id].pop(0)))
    assert sorted(given_out) == sorted(expected)


@pytest.mark.must("a")
@settings(max_examples=300, deadline=None)
@given(st.lists(WORKER, min_size=2, max_size=6), st.lists(JOB, min_size=1, max_size=6))
def test_a_whole_pool_at_once_gives_nothing_to_whom_it_must_not_go(
    workers: list[dict[str, Any]], jobs: list[dict[str, Any]]
) -> None:
    """In one round, ranked or not."""
    pool = machine()
    for number, worker in enumerate(workers):
        join(pool, f"w{number}", worker)
    for id, job in enumerate(jobs, 1):
        spec = spec_of(job)
        ranks = ["", "worker.cpus", "worker.gpu.mem", "task.id % 2 == 0 ? worker.mem : -worker.mem"]
        ranked = JobSpec(**{f: getattr(spec, f) for f in spec.__struct_fields__} | {"rank": ranks[id % 4]})
        pool.on_accepted(row_of(id, job["tasks"], ranked))
    naive = {f"w{number}": NaiveWorker(f"w{number}", worker) for number, worker in enumerate(workers)}
    for name, id, _ in sorted(offers(pool), key=lambda offer: (-jobs[offer[1] - 1]["gpus"], offer)):
        assert naive[name].may(jobs[id - 1])
        one = naive[name]
        one.cpus -= jobs[id - 1]["cpus"]
        one.mem -= jobs[id - 1]["mem"]
        one.licences -= jobs[id - 1]["licences"]
        assert min(one.cpus, one.mem, one.licences) >= 0
    for worker in pool.workers.values():
        for piece in worker.info.indices.get("gpus", ()):
            parts = [
                amount for taken in worker.taken.values() for _, amount, pieces in taken if piece in pieces
            ]
            assert sum(min(part, 1000) for part in parts) <= 1000
            assert len(parts) <= 1 or max(parts) < 1000, "a whole piece is one task's alone"


@pytest.mark.must("a")
@pytest.mark.O(11)
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 2), min_size=1, max_size=4),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(1, 9)), max_size=12),
    st.sampled_from(
        ["worker.cached_bytes", "worker.cached_bytes + 2*worker.cpus", "(1 + task.id) * worker.cpus"]
    ),
)
def test_the_total_rank_is_the_highest_there_is(
    slots: list[int], tasks: int, cached: list[tuple[int, int, int]], rank: str
) -> None:
    pool = machine()
    speed = {f"w{number}": count for number, count in enumerate(slots)}
    for name, count in speed.items():
        pool.on_hello(name, "1", WorkerInfo(node=name, capacity=Needs(count * 1000, 0)), [], 0.0)
    data: dict[tuple[str, int], int] = {}
    for number, task, size in cached:
        if number < len(slots) and task < tasks:
            data[f"w{number}", task] = size
            pool.on_cached(f"w{number}", [(f"f{task}", size)], [])
    inputs = [(f"f{task}",) for task in range(tasks)]
    pool.on_accepted(
        row_of(1, tasks, JobSpec(argv=("x",), rank=rank)),
        inputs=None if inputs is None else dict(enumerate(inputs)),
    )

    def worth(name: str, task: int) -> int:
        if "task.id" in rank:
            return (1 + task) * speed[name]
        return data.get((name, task), 0) + (2 * speed[name] if "cpus" in rank else 0)

    places = [name for name, count in speed.items() for _ in range(count)]
    chosen = offers(pool)
    assert len(chosen) == min(len(places), tasks)
    best = max(
        sum(worth(name, task) for name, task in zip(some, which, strict=True))
        for some in itertools.combinations(places, len(chosen))
        for which in itertools.permutations(range(tasks), len(chosen))
    )
    assert sum(worth(name, task) for name, _, task in chosen) == best


@pytest.mark.O(11)
def test_the_overlay_papers_way_would_be_worse() -> None:
    """It takes the largest, deletes row and column, and so on: 10 + 0 where 9 + 9 is there."""
    assert assign.best([[10, 9], [9, 0]]) == [1, 0]
    assert assign.best_with_rest([0, 0], [{0: 10, 1: 9}, {0: 9}]) == [1, 0]


ranks = st.one_of(st.integers(-9, 9).map(float), st.sampled_from([float("-inf"), float("nan")]))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_what_has_no_rank_comes_last_and_nothing_is_left_over(
    rows: int, columns: int, data: st.DataObject
) -> None:
    matrix = [[data.draw(ranks) for _ in range(columns)] for _ in range(rows)]
    chosen = assign.best(matrix)
    taken = [column for column in chosen if column >= 0]
    assert len(taken) == len(set(taken)) == min(rows, columns)


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 6), st.data())
def test_taking_turns_and_swapping_comes_close(rows: int, data: st.DataObject) -> None:
    """What stands in for the exact way where that could take long: here on small ones, all of which can be tried."""
    columns = data.draw(st.integers(rows, 6))
    matrix = [[data.draw(st.integers(0, 100)) for _ in range(columns)] for _ in range(rows)]
    exact = assign.best(matrix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assign, "EXACT_STEPS", 0)
        quick = assign.best(matrix)
    assert sorted(set(quick)) == sorted(quick)

    def total(chosen: list[int]) -> int:
        return sum(matrix[row][column] for row, column in enumerate(chosen))

    assume(total(exact) > 0)
    assert total(quick) <= total(exact)
    assert total(quick) >= 0.75 * total(exact)


@pytest.mark.must("d")
def test_a_rank_that_is_not_a_number_is_the_lowest_and_excludes_nobody() -> None:
    for rank in ("worker.gpu.mem", "0.0 / (worker.cpus - worker.cpus)", "1 / (worker.mem - worker.mem)"):
        pool = machine()
        pool.on_hello("w0", "1", WorkerInfo(node="a", capacity=Needs(1000, 0)), [], 0.0)
        pool.on_accepted(row_of(1, 2, JobSpec(argv=("x",), rank=rank)))
        assert offers(pool) == [("w0", 1, 0)]
        gpu = WorkerInfo(node="b", capacity=Needs(1000, 0), gpus=(Gpu("0", "x", 1),))
        pool.on_hello("w1", "1", gpu, [], 0.0)
        assert offers(pool) == [("w1", 1, 1)]


def test_a_worker_that_is_preferred_gets_the_only_task() -> None:
    pool = machine()
    for name, cpus in (("small", 1), ("large", 4), ("medium", 2)):
        pool.on_hello(name, "1", WorkerInfo(node=name, capacity=Needs(cpus * 1000, 0)), [], 0.0)
    pool.on_accepted(row_of(1, 1, JobSpec(argv=("x",), rank="worker.cpus")))
    assert offers(pool) == [("large", 1, 0)]
    pool.on_accepted(row_of(2, 1, JobSpec(argv=("x",), rank="-worker.cpus")))
    assert offers(pool) == [("small", 2, 0)]


def test_a_job_of_low_rank_is_not_passed_over_for_ever() -> None:
    """Better ones come all the time; after a while it is its turn."""
    pool = machine()
    pool.on_hello("w", "1", WorkerInfo(node="w", capacity=Needs(1000, 0)), [], 0.0)
    pool.on_cached("w", [("here", 100)], [])
    spec = JobSpec(argv=("x",), rank="worker.cached_bytes", time_limit_s=60.0)
    pool.on_accepted(row_of(1, 1, spec), inputs={0: ("elsewhere",)})
    served: list[int] = []
    for id in range(2, 30):
        pool.on_accepted(row_of(id, 1, spec), inputs={0: ("here",)})
        now = 2.0 * id
        for attempt in list(pool.workers["w"].flights):
            flight = pool.workers["w"].flights[attempt]
            pool.on_returned("w", [attempt])
            pool.on_cancel(flight.job, flight.job.ready.copy(), "", now)
        pool.tick(now)
        served += [job for _, job, _ in offers(pool)]
        if 1 in served:
            break
    assert served.index(1) > 5


@pytest.mark.must("d")
def test_ranks_beyond_all_bounds_end_nothing() -> None:
    pool = machine()
    pool.on_hello("w", "1", WorkerInfo(node="w", capacity=Needs(4000, 0)), [], 0.0)
    rank = "task.id == 0 ? 1.7e308 : task.id == 1 ? -1.7e308 : 1.0 / double(worker.gpus)"
    pool.on_accepted(row_of(1, 4, JobSpec(argv=("x",), rank=rank)))
    assert len(offers(pool)) == 4
    assert sorted(assign.best_with_rest([1.7e308, -1.7e308], [{0: 1.7e308}, {0: 1.7e308}])) == [-1, 0]


def test_tags_that_nobody_has_cost_no_shapes() -> None:
    pool = machine()
    for number in range(3):
        pool.on_hello(f"w{number}", "1", WorkerInfo(node="w", capacity=Needs(1000, 0), tags=("a",)), [], 0.0)
    for id in range(1, 101):
        pool.on_accepted(row_of(id, 1, JobSpec(argv=("x",), requires=(f"run-{id}",))))
        assert offers(pool) == []
    assert pool.ready.significant.generation <= 1
    pool.on_tag("w1", ["run-7"], [], 0.0)
    assert offers(pool) == [("w1", 7, 0)]


def test_a_condition_on_the_time_left_is_asked_again_as_it_goes_by() -> None:
    pool = machine()
    info = WorkerInfo(node="w", capacity=Needs(1000, 0), time_left_s=7200.0)
    pool.on_hello("w", "1", info, [], 0.0)
    pool.on_accepted(row_of(1, 1, JobSpec(argv=("x",), where="worker.time_left < 3600.0")))
    assert offers(pool) == []
    pool.tick(3700.0)
    pool.on_presence("w", WorkerState.AVAILABLE, info.capacity, 3700.0)
    assert offers(pool) == [("w", 1, 0)]


def test_what_was_cut_off_by_its_workers_end_is_not_given_to_one_with_less_time() -> None:
    pool = machine()
    pool.on_hello("short", "1", WorkerInfo(node="s", capacity=Needs(1000, 0), time_left_s=10.0), [], 0.0)
    pool.on_accepted(row_of(1, 1, JobSpec(argv=("x",))))
    assert offers(pool) == [("short", 1, 0)]
    (flight,) = pool.workers["short"].flights.values()
    report = Report(1, 0, flight.attempt, End.INTERRUPTED, 0, 1.0, 9.0, 0.0, 0, "its worker's time was up")
    pool.on_reports("short", [report], 10.0)
    pool.on_bye("short", 10.0)
    pool.on_hello("short", "2", WorkerInfo(node="s", capacity=Needs(1000, 0), time_left_s=10.0), [], 11.0)
    assert offers(pool) == []
    pool.on_hello("long", "1", WorkerInfo(node="l", capacity=Needs(1000, 0)), [], 12.0)
    assert offers(pool) == [("long", 1, 0)]


@pytest.mark.must("d")
def test_an_expression_that_an_earlier_version_took_keeps_nobody_from_starting() -> None:
    pool = machine()
    pool.on_hello("w", "1", WorkerInfo(node="w", capacity=Needs(2000, 0)), [], 0.0)
    pool.on_accepted(row_of(1, 1, JobSpec(argv=("x",), where="worker.colour == 'red'")))
    pool.on_accepted(row_of(2, 1, JobSpec(argv=("x",), rank="worker.colour")))
    assert offers(pool) == [("w", 2, 0)]
    assert "false: 0 of 1 worker" in why_ready(pool, pool.jobs[1], 0.0)
