"""No task is passed over for ever, however large it is and however many small ones come."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
