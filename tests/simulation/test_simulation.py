"""The real core and the real worker's agent through thousands of bad days (DESIGN.md section 3).

pytest tests/simulation --seed 4711             replays one seed (or TERCEL_SIM_SEED=4711, from anywhere)
TERCEL_SIM_SEEDS=200000 pytest tests/simulation -n 2 -k every_promise      a long soak
TERCEL_SIM_FIRST=1000000 TERCEL_SIM_SEEDS=50000 …                          of seeds never tried before
"""

import pytest

from .world import World, simulate


@pytest.mark.must("e", "b", "c")
def test_every_promise_holds_on_every_bad_day(seeds: range) -> None:
    for seed in seeds:
        simulate(seed)


@pytest.mark.must("e")
def test_a_seed_tells_the_same_story_every_time() -> None:
    stories = []
    for _ in range(2):
        world = World(7)
        world.run()
        stories.append((world.schedule.steps, world.now, world.schedule.trace()))
    assert stories[0] == stories[1]


@pytest.mark.must("e")
def test_bad_days_are_really_bad() -> None:
    """Over a few seeds everything that can happen does; a simulation in which nothing goes wrong shows nothing."""
    told = ""
    for seed in range(66):
        world = World(seed)
        world.run()
        told += world.schedule.trace()
    for event in (
        "manager crashes before write",
        "manager crashes written",
        "manager crashes committed",
        "manager crashes amid effects",
        "disk full",
        "frame lost",
        "frame repeated",
        "frame overtaken",
        "missing on the link",
        "cut w",
        "dark w",
        "partition w",
        "worker killed",
        "loses its spool",
        "worker drains",
        "worker leaves",
        "returned w",
        "cancel ",
        "retry ",
        "AttemptSpent",
        "Reopened",
        "refused",
        "interrupted",
        "storage False",
        "stage-out",
        "Park(",
        "Resume(",
        "Undo(",
        "MadeUndone(",
    ):
        assert event in told, f"nothing of this happened: {event}"
