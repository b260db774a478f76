"""A sweep of a million points, handed in over HTTP: one row and one rule, not a million of anything."""

import statistics
import time
from collections.abc import Callable

from harness import claim, manager, place, run
from tercel.core.grids import Grid
from tercel.core.gridtext import Outside, parse_axis
from tercel.wire.api import Submission

TIMES = 9
NOWHERE = Outside(lines=lambda _: [], names=lambda _: [])


def median_s(measure: Callable[[], object]) -> float:
    """Of several, after one that warms up."""
    taken = []
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        measure()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


async def main() -> None:
    axes = tuple(parse_axis(text, NOWHERE) for text in ("C=0.001:1:0.001", "g=1:1000"))
    sweep = Submission(line="svm -C {C} -gamma {g}", grid=Grid(axes=axes), template=True)
    single = Submission(argv=("true",))
    with place() as at, manager(at) as managed:
        async with managed.client() as client:
            figures = {}
            for name, submission in (("single", single), ("sweep", sweep)):
                taken = []
                for _ in range(TIMES + 1):
                    began = time.perf_counter()
                    submitted = await client.submit(submission)
                    taken.append(time.perf_counter() - began)
                figures[name] = statistics.median(taken[1:])
            assert submitted.tasks == 1_000_000
        cli = {
            "single": median_s(lambda: at.run("submit", "--", "true", check=True)),
            "sweep": median_s(
                lambda: at.run("sweep", "svm -C {C} -gamma {g}", "C=0.001:1:0.001", "g=1:1000", check=True)
            ),
        }
        for name in ("single", "sweep"):
            print(
                f"{name}: {figures[name] * 1000:.2f} ms over HTTP, {cli[name] * 1000:.0f} ms by the command"
            )
        claim("submit of a 1,000,000-point sweep over HTTP", figures["sweep"], 0.3, " s", at_most=True)
        claim("the same by `tercel sweep`, Python's start included", cli["sweep"], 0.3, " s", at_most=True)
        claim(
            "over HTTP, against a job of one task",
            figures["sweep"] / figures["single"],
            3,
            " x",
            at_most=True,
        )


run(main())
