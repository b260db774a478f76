"""No task is passed over for ever, however large it is and however many small ones come."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.accounts import Settings
from tercel.core.changes import Loaded
from tercel.core.explain import why_ready
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Needs
from tercel.core.presence import Facts, WorkerInfo, WorkerState
from tercel.core.saving import PATIENCE_S
from tests.core.virtual_pool import VirtualPool


@pytest.mark.must("a")
@settings(max_examples=40, deadline=None)
@given(
    workers=st.integers(1, 3),
    cpus=st.integers(2, 4),
    seed=st.integers(0, 1000),
    small_s=st.sampled_from([0.05, 0.5, 3.0, 20.0]),
    others=st.booleans(),
)
def test_a_large_task_runs_although_small_ones_never_stop_coming(
    workers: int, cpus: int, seed: int, small_s: float, others: bool
) -> None:
    pool = VirtualPool(workers, cpus, seed)

    def length(rng: random.Random) -> float:
        return small_s * rng.uniform(0.5, 1.5)

    before = pool.submit(50, length)
    pool.run_until(3 * small_s)
    large = pool.submit(1, lambda _: 10.0, cpus=float(cpus))
    submitted_at = pool.now
    for _ in range(200):
        pool.submit(20, length, owner="bob" if others else "ada")
        pool.run_until(pool.now + small_s, over=lambda: bool(pool.begins[large]))
        if pool.begins[large]:
            break
    assert pool.begins[large], "it was passed over 200 times"
    # What came before it comes first. Then patience, then one worker's tasks run out; shares may let the other user go
    # first for a while.
    waited = pool.begins[large][0] - max(submitted_at, *pool.begins[before])
    assert waited <= PATIENCE_S + (8 if others else 5) * 1.5 * small_s + 1.0


def test_what_is_over_in_time_may_go_before_it() -> None:
    """A worker that is being emptied runs what will not be in the way: backfill."""
    pool = VirtualPool(1, 4)
    long = pool.submit(1, lambda _: 100.0, cpus=3.0, time_limit_s=100.0)
    pool.run_until(1.0)
    large = pool.submit(1, lambda _: 10.0, cpus=4.0, time_limit_s=10.0)
    pool.run_until(2.0)
    pool.submit(3, lambda _: 10.0, time_limit_s=10.0)
    pool.run_until(30.0)
    machine = pool.machine
    assert machine.workers["w0"].saving_for is machine.jobs[large]
    quick = pool.submit(1, lambda _: 10.0, time_limit_s=10.0)
    slow = pool.submit(1, lambda _: 500.0, time_limit_s=500.0)
    pool.run_until(300.0)
    assert pool.begins[quick][0] < pool.ended[long][0]
    assert pool.begins[slow][0] >= pool.begins[large][0] >= pool.ended[long][0]


def test_a_worker_is_not_kept_empty_for_what_is_held_or_has_gone_elsewhere() -> None:
    pool = VirtualPool(1, 2)
    pool.submit(2, lambda _: 50.0)
    pool.run_until(1.0)
    large = pool.submit(1, lambda _: 1.0, cpus=2.0)
    pool.submit(1000, lambda rng: rng.uniform(1.0, 2.0), cpus=0.5)
    pool.run_until(60.0, over=lambda: pool.machine.workers["w0"].saving_for is not None)
    machine = pool.machine
    if machine.workers["w0"].saving_for is not None:
        machine.on_cancel(machine.jobs[large], machine.jobs[large].ready.copy(), "", pool.now)
        assert machine.workers["w0"].saving_for is None


def crowded(pool: VirtualPool) -> int:
    """A large task among small ones that never stop coming, until a worker is saved for it."""
    pool.submit(40, lambda rng: rng.uniform(2.0, 4.0))
    large = pool.submit(1, lambda _: 10.0, cpus=4.0)
    for _ in range(100):
        pool.submit(8, lambda rng: rng.uniform(2.0, 4.0))
        pool.run_until(pool.now + 0.5)
        if pool.machine.jobs[large].saver is not None:
            return large
    raise AssertionError("nobody was saved")


@pytest.mark.parametrize("trouble", ["drain", "quarantine", "unhealthy"])
def test_another_worker_is_emptied_if_the_first_takes_nothing_any_more(trouble: str) -> None:
    pool = VirtualPool(2, 4)
    large = crowded(pool)
    saver = pool.machine.jobs[large].saver
    assert saver is not None
    if trouble == "drain":
        pool.machine.on_drain(saver.id, pool.now)
    elif trouble == "quarantine":
        pool.machine.on_quarantine(saver.id, "ada", "", pool.now)
    else:
        facts = Facts(unhealthy="disk full")
        pool.machine.on_presence(saver.id, WorkerState.BUSY, saver.capacity, pool.now, facts)
    for _ in range(20):
        pool.submit(8, lambda rng: rng.uniform(2.0, 4.0))
        pool.run_until(pool.now + 3.0)
    assert pool.begins[large]


def test_a_worker_that_is_empty_sooner_is_saved_instead() -> None:
    pool = VirtualPool(2, 4)
    pool.submit(1, lambda _: 100_000.0)
    pool.run_until(1.0)
    large = pool.submit(1, lambda _: 10.0, cpus=4.0)
    for _ in range(60):
        pool.submit(8, lambda rng: rng.uniform(2.0, 4.0))
        pool.run_until(pool.now + 3.0)
    assert pool.begins[large]


def test_what_takes_nothing_that_is_waited_for_goes_beside() -> None:
    """An array that is limited by its GPU does not keep the other cores empty."""
    machine = Machine(Settings(), Loaded(1, 1, [], [], []), 0.0)
    capacity = Needs(8000, 0, "", (("gpus", 1000),))
    machine.on_hello("w", "1", WorkerInfo(node="w", capacity=capacity, indices={"gpus": ("0",)}), [], 0.0)

    def submit(id: int, tasks: int, **asks: float) -> None:
        spec = JobSpec(argv=("x",), **asks)  # type: ignore[arg-type]
        row = JobRow(id=id, owner="ada", spec=spec, ranges=((0, tasks - 1),), max_running=0, submitted_at=0.0)
        machine.on_accepted(row, now=0.0)

    submit(1, 5, gpus=1.0)
    machine.round()
    for now in (1.0, 10.0, 20.0):
        machine.tick(now)
        submit(int(now) + 1, 2)
        machine.round()
    assert machine.workers["w"].saving_for is machine.jobs[1]
    assert len(machine.workers["w"].flights) == 7, "one core is kept for the next task with the GPU"
    assert "1 task of 1 job" in why_ready(machine, machine.jobs[21], 20.0) or not machine.jobs[21].ready
