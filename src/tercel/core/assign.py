"""Rows to columns, for the highest total: which task to which place.

Exact where that is sure to be quick. `linear_sum_assignment` takes a millisecond or half a minute for the same size,
depending on the numbers (where all rows want the same columns it looks at everything again for each row): some
rows² × columns steps at worst, a nanosecond each. Beyond EXACT_STEPS, rows choose in turn, the keenest first, and then
swap with one another while that helps: within a percent of the optimum on all families of ranks that
benchmarks/assignment.py tries, most of them within a thousandth.

numpy and scipy are imported when somebody first has something to assign: most managers never do.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

EXACT_STEPS = 200_000_000
"""200 ms."""
SWAP_ROUNDS = 6
SWAP_PAIRS = 5_000_000
"""Swapping looks at all pairs of rows in each round: at so many in all."""
FEW = 32
"""Columns that are worth more to a row than all others: if there are no more, on average, only those matter."""
_WORTH_SWAPPING = 1e-9
MOST = 1e150
"""Ranks beyond that are as good as that."""
LOWEST = float("-inf")
"""The rank of what has none."""


@cache
def _numbers() -> tuple[Any, Any, Any, Any]:
    import numpy  # noqa: PLC0415
    import scipy.optimize  # noqa: PLC0415
    import scipy.sparse  # noqa: PLC0415
    import scipy.sparse.csgraph  # noqa: PLC0415

    return numpy, scipy.optimize, scipy.sparse, scipy.sparse.csgraph


def prepare() -> None:
    """Have what is needed at hand: it takes half a second to come, once."""
    _numbers()


def column(values: Sequence[float]) -> "numpy.ndarray":
    array: numpy.ndarray = _numbers()[0].asarray(values, dtype=float)
    return array


def best(matrix: "Sequence[Sequence[float]] | numpy.ndarray") -> list[int]:
    """A column for each row, -1 for rows that get none because there are fewer columns."""
    np, optimize, _, _ = _numbers()
    ranks = _finite(np, np.asarray(matrix, dtype=float))
    rows, columns = ranks.shape
    if min(rows, columns) ** 2 * max(rows, columns) <= EXACT_STEPS:
        chosen = [-1] * rows
        for row, column in zip(*optimize.linear_sum_assignment(ranks, maximize=True), strict=True):
            chosen[row] = int(column)
        return chosen
    if rows <= columns:
        return _large(np, ranks)
    chosen = [-1] * rows
    for column, row in enumerate(_large(np, ranks.T)):
        chosen[row] = column
    return chosen


def _large(np: Any, ranks: "numpy.ndarray") -> list[int]:
    """Not more rows than columns."""
    least = ranks.min(axis=1)
    more = ranks > least[:, None]
    if int(more.sum()) > FEW * len(ranks):
        return [int(column) for column in _in_turn(np, ranks)]
    special: list[dict[int, float]] = [{} for _ in least]
    for row, column in zip(*(index.tolist() for index in more.nonzero()), strict=True):
        special[row][column] = float(ranks[row, column])
    chosen = best_with_rest(least.tolist(), special)
    free = iter(sorted(set(range(ranks.shape[1])).difference(chosen)))
    return [column if column >= 0 else next(free) for column in chosen]


def _finite(np: Any, ranks: "numpy.ndarray") -> "numpy.ndarray":
    """What has no rank comes after all that have one; none is so large that sums of them overflow."""
    known = np.isfinite(ranks)
    ranks = np.clip(ranks, -MOST, MOST)
    if known.all():
        return ranks
    low, high = (ranks[known].min(), ranks[known].max()) if known.any() else (0.0, 0.0)
    filled: numpy.ndarray = np.where(known, ranks, low - (high - low) - 1.0)
    return filled


def _in_turn(np: Any, ranks: "numpy.ndarray") -> "numpy.ndarray":
    rows, columns = ranks.shape
    free = np.zeros(columns)
    chosen = np.empty(rows, dtype=int)
    for row in np.argsort(-ranks.max(axis=1), kind="stable"):
        column = int(np.argmax(ranks[row] + free))
        chosen[row] = column
        free[column] = -np.inf
    return _swapped(np, ranks, chosen)


def _swapped(np: Any, ranks: "numpy.ndarray", chosen: "numpy.ndarray") -> "numpy.ndarray":
    every = np.arange(len(chosen))
    for _ in range(min(SWAP_ROUNDS, SWAP_PAIRS // len(chosen) ** 2)):
        here = ranks[:, chosen]
        own = here.diagonal()
        gains = here + here.T - own[:, None] - own[None, :]
        partner = gains.argmax(axis=1)
        gain = gains[every, partner]
        swapped = np.zeros(len(chosen), dtype=bool)
        least = _WORTH_SWAPPING * (1.0 + float(np.abs(own).max()))
        for row in np.argsort(-gain, kind="stable"):
            if gain[row] <= least:
                break
            other = partner[row]
            if not swapped[row] and not swapped[other]:
                swapped[row] = swapped[other] = True
                chosen[row], chosen[other] = chosen[other], chosen[row]
        if not swapped.any():
            break
    return chosen


def best_with_rest(base: Sequence[float], special: Sequence[dict[int, float]]) -> list[int]:
    """A column for each row, where most columns are alike: `base` is what any of those is worth to the row.

    There are enough of them for all. `special`: what others are worth, by column. Returns -1 for "any other".
    """
    base = _all_finite(base, special)
    first = [_keenest(worth, row) for worth, row in zip(base, special, strict=True)]
    wanted = [column for column in first if column >= 0]
    if len(wanted) == len(set(wanted)):
        return first  # everybody's first choice
    np, _, sparse, csgraph = _numbers()
    rows: list[int] = []
    columns: list[int] = []
    worth: list[float] = []
    number = {column: at for at, column in enumerate(dict.fromkeys(c for row in special for c in row))}
    for row, (least, more) in enumerate(zip(base, special, strict=True)):
        better = [(number[column], value) for column, value in more.items() if value > least]
        rows += [row] * (len(better) + 1)
        columns += [column for column, _ in better]
        columns.append(len(number) + row)
        worth += [value - least for _, value in better]
        worth.append(0.0)
    # What is 0 in a sparse matrix is not there: all are raised alike, which changes nothing between assignments.
    values = np.asarray(worth) + (max(worth) or 1.0)
    graph = sparse.csr_matrix((values, (rows, columns)), shape=(len(base), len(number) + len(base)))
    names = list(number)
    chosen = [-1] * len(base)
    for row, column in zip(*csgraph.min_weight_full_bipartite_matching(graph, maximize=True), strict=True):
        if column < len(names):
            chosen[row] = names[column]
    return chosen


def _all_finite(base: Sequence[float], special: Sequence[dict[int, float]]) -> Sequence[float]:
    if not any(worth == LOWEST for worth in base):
        return base
    known = [worth for worth in base if worth != LOWEST]
    known += [worth for row in special for worth in row.values() if worth != LOWEST]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return [worth if worth != LOWEST else low - (high - low) - 1.0 for worth in base]


def _keenest(base: float, special: dict[int, float]) -> int:
    column = max(special, key=special.__getitem__, default=-1)
    return column if column >= 0 and special[column] > base else -1
