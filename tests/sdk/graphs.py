"""Random graphs of calls, whose results are known."""

import random
from typing import Any

from tercel import Executor
from tercel.sdk.futures import TaskFuture
from tests.sdk import work


def random_graph(pool: Executor, count: int, seed: int) -> tuple[list[TaskFuture[Any]], list[int]]:
    """Calls that need some of those before them, and what they return if they are made here."""
    chance = random.Random(seed)
    futures: list[TaskFuture[Any]] = []
    results: list[int] = []
    for number in range(count):
        needs = [chance.randrange(number) for _ in range(chance.randrange(4))] if number else []
        shape = chance.choice([list, tuple, lambda parts: dict(enumerate(parts))])
        parts = shape([futures[need] for need in needs])
        futures.append(pool.submit(work.total, [number, parts]))
        results.append(number + sum(results[need] for need in needs))
    return futures, results
