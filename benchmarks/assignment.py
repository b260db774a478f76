"""How good the quick way of assigning is, and how long the exact one can take.

`linear_sum_assignment` is exact, but its time depends on the numbers: where all rows want the same columns it is three
orders of magnitude slower than on random ones of the same size. What stands in for it beyond EXACT_STEPS is compared with
the optimum on families of ranks, among them those that are slow.
"""

import time

import numpy as np

from harness import claim, end
from tercel.core import assign

SIZES = ((300, 1_000), (600, 1_200), (600, 600))
LARGE = (1_500, 10_000)


def families(rows: int, columns: int) -> list[tuple[str, "np.ndarray"]]:
    chance = np.random.default_rng(1)
    a, b, noise = chance.random(rows), chance.random(columns), chance.random((rows, columns))
    return [
        ("random", noise),
        ("one for all: a fast worker is fast for every task", np.outer(a, b)),
        ("sum", a[:, None] + b[None, :]),
        ("sum and noise", a[:, None] + b[None, :] + 0.1 * noise),
        ("the same tasks for all", b[None, :] + 0.01 * noise),
        ("few values", np.floor(5 * noise)),
        ("nearest", 1.0 - np.abs(a[:, None] - b[None, :])),
        ("few files", np.where(noise < 0.01, b[None, :], 0.0)),
    ]


def total(ranks: "np.ndarray", chosen: list[int]) -> float:
    return float(sum(ranks[row, column] for row, column in enumerate(chosen) if column >= 0))


def main() -> None:
    exact_steps = assign.EXACT_STEPS
    worst = 0.0
    for rows, columns in SIZES:
        for name, ranks in families(rows, columns):
            assign.EXACT_STEPS = 10**15
            began = time.perf_counter()
            optimum = total(ranks, assign.best(ranks))
            exact_s = time.perf_counter() - began
            assign.EXACT_STEPS = 0
            began = time.perf_counter()
            quick = total(ranks, assign.best(ranks))
            quick_s = time.perf_counter() - began
            short = (optimum - quick) / optimum
            worst = max(worst, short)
            print(
                f"  {rows} x {columns}, {name}: exact {exact_s * 1e3:.0f} ms, quick {quick_s * 1e3:.0f} ms, {short:.4%} short"
            )
    assign.EXACT_STEPS = exact_steps
    longest = 0.0
    for name, ranks in families(*LARGE):
        began = time.perf_counter()
        assign.best(ranks)
        took_s = time.perf_counter() - began
        longest = max(longest, took_s)
        print(f"  {LARGE[0]:,} x {LARGE[1]:,}, {name}: {took_s * 1e3:.0f} ms")
    claim("the quick way is short of the optimum by", worst * 100, 1.0, " %", at_most=True)
    claim("the longest assignment of 1,500 x 10,000", longest, 1.0, " s", at_most=True)


if __name__ == "__main__":
    main()
    end()
