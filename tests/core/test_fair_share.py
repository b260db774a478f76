"""Shares of a busy pool in the long run, with the real machine and no processes. benchmarks/fair_share.py runs for longer."""

import pytest

from tercel.core.shares import HALF_LIFE_S

from .virtual_pool import Length, VirtualPool, deviation


def lasting(least: float, most: float) -> Length:
    return lambda rng: rng.uniform(least, most)


@pytest.mark.must("b")
@pytest.mark.parametrize(
    ("weights", "lengths"),
    [
        ({"a": 1.0, "b": 2.0, "c": 5.0}, {"a": (5, 15), "b": (30, 60), "c": (60, 180)}),
        ({"a": 5.0, "b": 2.0, "c": 1.0}, {"a": (5, 15), "b": (30, 60), "c": (60, 180)}),
        ({"short": 1.0, "long": 1.0}, {"short": (4, 5), "long": (100, 500)}),
    ],
    ids=["heavy are long", "heavy are short", "equal weights"],
)
@pytest.mark.B(14)
def test_long_run_shares_are_within_two_percent_of_the_weights(
    weights: dict[str, float], lengths: dict[str, tuple[float, float]]
) -> None:
    pool = VirtualPool(workers=4, slots=8)
    for name, weight in weights.items():
        pool.queue(name, weight)
        pool.submit(10_000_000, lasting(*lengths[name]), queue=name)
    pool.run_until(1800.0)
    before = pool.usage()
    pool.run_until(1800.0 + 4 * 3600.0)
    after = pool.usage()
    assert deviation({name: after[name] - before[name] for name in weights}, weights) <= 0.02


@pytest.mark.must("b")
@pytest.mark.parametrize("queue", ["", "lab"], ids=["in queues of their own", "in one queue"])
def test_a_user_with_a_million_tasks_does_not_delay_anothers_ten(queue: str) -> None:
    pool = VirtualPool(workers=4, slots=4)
    pool.queue("lab")
    pool.submit(1_000_000, lambda _: 1.0, queue=queue, owner="ada")
    pool.run_until(100.5)
    ten = pool.submit(10, lambda _: 1.0, queue=queue, owner="bob")
    pool.run_until(200.0, over=lambda: len(pool.ended[ten]) == 10)
    waited = max(pool.begins[ten]) - 100.5
    assert waited <= 2.0, "two lengths of a task; first come first served would be 17 hours"


@pytest.mark.must("b")
@pytest.mark.T(12)
def test_users_of_one_queue_share_it_alike() -> None:
    pool = VirtualPool(workers=2, slots=8)
    pool.queue("lab")
    for owner, length in (("ada", (5, 10)), ("bob", (60, 120)), ("eve", (10, 100))):
        pool.submit(1_000_000, lasting(*length), queue="lab", owner=owner)
    pool.run_until(1800.0)
    before = pool.usage()
    pool.run_until(1800.0 + 4 * 3600.0)
    users = dict.fromkeys(("user ada", "user bob", "user eve"), 1.0)
    after = pool.usage()
    assert deviation({name: after[name] - before[name] for name in users}, users) <= 0.02


@pytest.mark.must("b")
def test_a_queue_that_was_idle_comes_first_for_a_while_and_no_longer() -> None:
    """It has had nothing lately, which weighs as much as all the others had lately: a half-life of the pool's time."""
    pool = VirtualPool(workers=2, slots=8)
    pool.queue("a")
    pool.queue("b")
    first = pool.submit(1_000_000, lasting(10, 20), queue="a")
    pool.run_until(4 * 3600.0)
    pool.submit(1_000_000, lasting(10, 20), queue="b")
    back = pool.now
    pool.run_until(back + 4 * HALF_LIFE_S)
    begins = [at for at in pool.begins[first] if at >= back]
    gaps = [later - earlier for earlier, later in zip([back, *begins], begins, strict=False)]
    assert max(gaps) <= HALF_LIFE_S * 1.05


@pytest.mark.must("b")
def test_caps_hold_at_every_moment_and_what_they_leave_is_used_by_others() -> None:
    pool = VirtualPool(workers=2, slots=8)
    pool.queue("capped", weight=100.0, max_running=3, user_max=2)
    pool.queue("free")
    for owner in ("ada", "bob"):
        pool.submit(1_000_000, lasting(5, 50), queue="capped", owner=owner)
    pool.submit(1_000_000, lasting(5, 50), queue="free")
    for minute in range(1, 60):
        pool.run_until(minute * 60.0)
        capped, free = pool.machine.queues["capped"], pool.machine.queues["free"]
        assert capped.account.under_way == 3
        assert sorted(user.under_way for user in capped.users.values()) == [1, 2]
        assert free.account.under_way == 13
