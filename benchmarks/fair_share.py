"""Fair share: hours of a virtual pool's time with the real machine. Not timed, and the same on every machine.

Long-run shares of processor time against the weights; how long ten tasks wait behind another user's million; and for how
long a queue that comes back from idleness keeps the others waiting.
"""

import random
import sys
from pathlib import Path

from harness import claim, end
from tercel.core.shares import HALF_LIFE_S

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.core.virtual_pool import (
    Length,
    VirtualPool,
    deviation,
)  # the same pool as in tests/core/test_fair_share.py

WORKERS, SLOTS = 8, 8
HOURS = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
LENGTHS_S = ((2, 10), (5, 60), (30, 30), (30, 180), (100, 600))


def lasting(least: float, most: float) -> Length:
    return lambda rng: rng.uniform(least, most)


def shares(weights: dict[str, float], lengths: dict[str, tuple[float, float]], seed: int) -> float:
    """After an hour of settling in, the largest deviation of a queue's share from what its weight gives it."""
    pool = VirtualPool(WORKERS, SLOTS, seed)
    for name, weight in weights.items():
        pool.queue(name, weight)
        pool.submit(100_000_000, lasting(*lengths[name]), queue=name)
    pool.run_until(3600.0)
    before = pool.usage()
    pool.run_until((1 + HOURS) * 3600.0)
    after = pool.usage()
    used = {name: after[name] - before[name] for name in weights}
    for name, weight in weights.items():
        share, due = used[name] / sum(used.values()), weight / sum(weights.values())
        least, most = lengths[name]
        print(f"     weight {weight:4.1f}, tasks of {least}-{most} s: {share:.2%} of the time, due {due:.2%}")
    return deviation(used, weights)


def random_shares(seed: int) -> float:
    rng = random.Random(seed)
    names = [f"q{number}" for number in range(rng.randint(2, 6))]
    weights = {name: round(rng.uniform(0.5, 8.0), 1) for name in names}
    return shares(weights, {name: rng.choice(LENGTHS_S) for name in names}, seed)


def wait_of_ten(busy: bool, queue: str) -> float:
    """Until the last of ten tasks of a second has begun, in lengths of a task."""
    pool = VirtualPool(WORKERS, SLOTS)
    pool.queue("lab")
    if busy:
        pool.submit(1_000_000, lambda _: 1.0, queue=queue, owner="ada")
    pool.run_until(600.5)
    ten = pool.submit(10, lambda _: 1.0, queue=queue, owner="bob")
    pool.run_until(10_000.0, over=lambda: len(pool.begins[ten]) == 10)
    return max(pool.begins[ten]) - 600.5


def longest_wait_beside_one_that_was_idle() -> float:
    """In half-lives, the longest time in which a queue of equal weight could begin nothing."""
    pool = VirtualPool(WORKERS, SLOTS)
    pool.queue("steady")
    pool.queue("idle")
    steady = pool.submit(100_000_000, lasting(10, 60), queue="steady")
    pool.run_until(8 * 3600.0)
    back = pool.now
    pool.submit(100_000_000, lasting(10, 60), queue="idle")
    pool.run_until(back + 8 * HALF_LIFE_S)
    begins = [at for at in pool.begins[steady] if at >= back]
    return max(b - a for a, b in zip([back, *begins], begins, strict=False)) / HALF_LIFE_S


worst = shares({"a": 1, "b": 2, "c": 5}, {"a": (2, 10), "b": (5, 60), "c": (30, 180)}, 1)
claim("weights 1:2:5, the heavy one with the long tasks: largest deviation", worst, 0.02, at_most=True)
worst = shares({"a": 5, "b": 2, "c": 1}, {"a": (2, 10), "b": (5, 60), "c": (30, 180)}, 2)
claim("weights 5:2:1, the heavy one with the short tasks: largest deviation", worst, 0.02, at_most=True)
worst = max(random_shares(seed) for seed in range(3, 8))
claim("random weights and lengths: largest deviation", worst, 0.02, at_most=True)
worst = shares({"a": 3, "b": 61}, {"a": (100, 600), "b": (5, 60)}, 9)
print(f"     which is {worst * 3 / 64:.2%} of the pool's time")
claim("due 3 of 64 slots, with tasks of 100-600 s: deviation, of its own share", worst, 0.02, at_most=True)
alone = wait_of_ten(busy=False, queue="")
for place, queue in (("each in a queue of their own", ""), ("both in one queue", "lab")):
    wait = wait_of_ten(busy=True, queue=queue)
    print(f"     ten tasks of a second begin after {wait:.1f} s, on an empty pool after {alone:.1f} s")
    claim(
        f"ten tasks beside another's 1,000,000, {place}: wait",
        wait - alone,
        2.0,
        " task lengths",
        at_most=True,
    )
wait = longest_wait_beside_one_that_was_idle()
claim("one that was idle comes back: others wait for at most", wait, 1.05, " half-lives", at_most=True)
end()
