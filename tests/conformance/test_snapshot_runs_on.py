"""Random campaigns, put into a snapshot at any moment: restored elsewhere they end as they do where they never stopped.

How a campaign ends does not follow from when anything happens in it (see `campaigns`): where a restored one ends otherwise,
something was lost on the way.
"""

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.model import AfterKind, JobSpec, OnFailure, Role
from tercel.manager.access import Identity
from tercel.manager.restoring import restore
from tercel.stores.snapshot.saving import Choice
from tests.conformance.campaigns import DOOMED, RULES, Campaign, Shape

Step = tuple[str, int, int]
"""What happens; to which of those that there are; to which tasks of it, as a mask."""
ADA = Identity("ada", Role.ADMIN, "")
TESTERS = sorted({rule.tester for rule in RULES})


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    size = draw(st.sampled_from([5, 3, 4, 1]))
    times = st.lists(st.sampled_from([1, 0, 2, 0, 9]), min_size=size, max_size=size)
    kinds = st.sampled_from([AfterKind.OK, AfterKind.OK, AfterKind.ANY, AfterKind.NOTOK])
    return Shape(
        fails=tuple(draw(times)),
        meets=tuple(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))),
        retries=draw(st.integers(0, 3)),
        backoff_s=draw(st.sampled_from([0.0, 8.0])),
        rule=draw(st.sampled_from([*range(len(RULES)), None, None])),
        needs=tuple(draw(st.lists(st.tuples(st.integers(1, 3), kinds, st.booleans()), max_size=2))),
        edges=tuple(draw(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=2))),
        on_failure=draw(st.sampled_from([OnFailure.SKIP, OnFailure.SKIP, OnFailure.RUN])),
        most_running=draw(st.sampled_from([0, 0, 1])),
    )


EVENTS = [
    *["report"] * 6,
    *["submit"] * 3,
    *["answer"] * 2,
    *["break", "mend", "start", "wait", "hold", "release", "cancel", "worker leaves", *["retry"] * 3],
]
event = st.tuples(st.sampled_from(EVENTS), st.integers(0, 99), st.integers(1, 31))
events = st.lists(event, min_size=8, max_size=45)


# -- a campaign, and the same elsewhere ---------------------------------------------------------------------


def play(one: Campaign, steps: list[Step]) -> None:
    coming = list(enumerate(one.shapes.values(), 1))
    sizes = [len(shape.fails) for shape in one.shapes.values()]
    for what, choice, mask in [("submit", 0, 0)] * 2 + steps:
        flights, probes, jobs = one.flights(), list(one.manager.probes), list(one.machine.jobs.values())
        match what:
            case "submit" if coming:
                id, shape = coming.pop(0)
                one.submit(shape.spec(id, sizes), sizes[id - 1], shape.arrows(id, sizes), shape.most_running)
            case "report" if flights:
                one.report(flights[choice % len(flights)])
            case "start" if flights:
                flight = flights[choice % len(flights)]
                one.machine.on_started(flight.worker.id, [flight.attempt], one.manager.now)
                one.turn()
            case "answer" if probes:
                one.answer(probes[choice % len(probes)])
            case "break":
                one.breaks(TESTERS[choice % len(TESTERS)])
            case "mend":
                one.mends(TESTERS[choice % len(TESTERS)])
            case "wait":
                one.manager.now += choice
                one.turn()
            case "worker leaves":
                one.leave(one.workers[choice % len(one.workers)])
            case "hold" | "release" | "cancel" if jobs:
                one.ask(what, jobs[choice % len(jobs)], mask)
            case "retry" if jobs and one.rests:
                one.ask(what, jobs[choice % len(jobs)], mask)


class Elsewhere(msgspec.Struct, frozen=True):
    """Where it is restored, and how it goes on there."""

    away_s: float
    workers: str
    joined: bool
    """Before it is restored."""
    restarted: bool
    """After it was restored, that manager."""
    order: Step
    """What somebody asks for at once, there and here."""
    chosen: int
    """Jobs that are put into the snapshot, as a mask: what they need comes along. 0: all."""
    chance: tuple[int, int]
    mended_after: tuple[int, int]


elsewheres = st.builds(
    Elsewhere,
    away_s=st.sampled_from([0.0, 40.0, 1e6]),
    workers=st.sampled_from(["x1 x2", "w1 w2", "w1", "x1"]),
    joined=st.booleans(),
    restarted=st.booleans(),
    order=st.tuples(
        st.sampled_from(["", "", "hold", "release", "cancel"]), st.integers(0, 9), st.integers(1, 31)
    ),
    chosen=st.sampled_from([0, 0, 1, 2, 4, 9, 20]),
    chance=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    mended_after=st.tuples(st.integers(1, 25), st.integers(1, 25)),
)


def work_already(there: Campaign) -> None:
    """It has jobs of its own, whose numbers are taken, and which may wait for the same things."""
    there.join()
    for rule in RULES[:4]:
        there.submit(JobSpec(argv=("other",), block_on=(rule,)), 1)
        there.report(there.flights()[0])


async def restored(one: Campaign, there: Campaign, path: Path, elsewhere: Elsewhere) -> dict[int, int]:
    """What its jobs are called there."""
    chosen = frozenset(id for id in range(1, len(one.shapes) + 1) if elsewhere.chosen >> (id - 1) & 1)
    await one.manager.snapshots.save(path, Choice(jobs=chosen or None))
    if elsewhere.joined:
        there.join()
    ids = dict((await restore(there.manager, ADA, path, again=False)).jobs)
    before = {(ids[job], task): count for (job, task), count in one.manager.spent.items() if job in ids}
    there.manager.spent.update(before)
    return ids


def stand_alike(one: Campaign, there: Campaign, ids: dict[int, int]) -> None:
    assert {id: there.standing(number) for id, number in ids.items()} == {id: one.standing(id) for id in ids}


async def run_on_in_both(one: Campaign, there: Campaign, path: Path, elsewhere: Elsewhere) -> None:
    ids = await restored(one, there, path, elsewhere)
    stand_alike(one, there, ids)
    if elsewhere.restarted:
        there.restart()
        stand_alike(one, there, ids)
    there.join()
    what, choice, mask = elsewhere.order
    unfinished = sorted(ids.keys() & one.machine.jobs.keys())
    if what and unfinished:
        id = unfinished[choice % len(unfinished)]
        one.ask(what, one.machine.jobs[id], mask)
        there.ask(what, there.machine.jobs[ids[id]], mask)
    for campaign, seed, turns in zip((one, there), elsewhere.chance, elsewhere.mended_after, strict=True):
        campaign.run_on(random.Random(seed), turns)
        assert not campaign.machine.conditions, "nobody waits for them any more"
    assert {id: there.results(number) for id, number in ids.items()} == {id: one.results(id) for id in ids}


@pytest.mark.C(8)
@pytest.mark.must("c")
@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside others"])
@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([("memory", "sqlite"), ("sqlite", "memory"), ("memory", "memory"), ("sqlite", "sqlite")]),
    st.lists(shapes(), min_size=3, max_size=5),
    st.sets(st.sampled_from([tester for tester in TESTERS if tester != DOOMED])),
    events,
    elsewheres,
)
def test_a_restored_campaign_ends_as_it_does_where_it_never_stopped(
    others: bool,
    kinds: tuple[str, str],
    jobs: list[Shape],
    well: set[str],
    steps: list[Step],
    elsewhere: Elsewhere,
) -> None:
    with TemporaryDirectory() as made, ExitStack() as stack:
        directory = Path(made)
        one = Campaign(directory / "one", kinds[0], jobs, set(TESTERS) - well, "w1 w2")
        stack.callback(one.close)
        one.join()
        play(one, steps)
        there = Campaign(directory / "there", kinds[1], jobs, one.broken, elsewhere.workers)
        stack.callback(there.close)
        there.manager.now = one.manager.now + elsewhere.away_s
        if others:
            work_already(there)
        asyncio.run(run_on_in_both(one, there, directory / "one.tercel", elsewhere))
