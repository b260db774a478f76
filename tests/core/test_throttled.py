"""What a throttle makes of a round: no window sees more starts than it may, and nothing is forgotten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.accounts import Settings
from tercel.core.changes import Loaded
from tercel.core.effects import Offered
from tercel.core.explain import why_ready
from tercel.core.invariants import violations
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Needs
from tercel.core.presence import WorkerInfo
from tercel.core.throttles import Rate, Rates, Throttle, parse_rates


def pool(rates: Rates, workers: int, cpus: int) -> Machine:
    machine = Machine(Settings(rates=rates), Loaded(1, 1, [], [], []), 0.0)
    for number in range(workers):
        info = WorkerInfo(node=f"n{number % 2}", capacity=Needs(cpus * 1000, 0))
        machine.on_hello(f"w{number}", "1", info, [], 0.0)
    return machine


def submit(machine: Machine, tasks: int, rank: str = "") -> None:
    spec = JobSpec(argv=("x",), rank=rank)
    row = JobRow(id=1, owner="ada", spec=spec, ranges=((0, tasks - 1),), max_running=0, submitted_at=0.0)
    machine.on_accepted(row)


def starts(machine: Machine, until: float) -> list[tuple[float, str]]:
    """When a task was given out, and to which node, up to a time."""
    found, now = [], 0.0
    while True:
        machine.tick(now)
        machine.round()
        assert violations(machine) == []
        for effect in machine.take()[1]:
            if isinstance(effect, Offered):
                node = machine.workers[effect.leases[0].worker].info.node
                found += [(now, node)] * sum(lease.last - lease.first + 1 for lease in effect.leases)
        due = machine.next_deadline()
        if due is None or due > until:
            return found
        now = due


def most_within(times: list[float], window_s: float) -> int:
    return max((sum(at <= other < at + window_s for other in times) for at in times), default=0)


@pytest.mark.T(10, 11)
@pytest.mark.parametrize("rank", ["", "worker.cpus"])
def test_no_window_sees_more_starts_than_it_may_in_all_and_on_a_node(rank: str) -> None:
    machine = pool(parse_rates(["tapis"]), workers=4, cpus=50)
    submit(machine, 100, rank)
    found = starts(machine, 60.0)
    assert len(found) == 100
    assert most_within([at for at, _ in found], 2.0) == 10
    for node in ("n0", "n1"):
        assert most_within([at for at, where in found if where == node], 2.0) <= 8
    assert (
        max(at for at, _ in found) == 18.0
    )  # ten every two seconds, the first at once: the next slot, not a random time


def test_a_burst_goes_at_once_and_one_node_does_not_hold_up_another() -> None:
    machine = pool(Rates(launches=Rate(3, 5.0)), workers=2, cpus=50)
    submit(machine, 12)
    assert [at for at, _ in starts(machine, 60.0)] == [0.0] * 6 + [5.0] * 6


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        (Rates(starts=Rate(2, 10.0)), "2 per 10 s in all, no limit on one node; the next goes in 7 s"),
        (Rates(launches=Rate(1, 10.0)), "no limit in all, 1 per 10 s on one node; the next goes in 7 s"),
        (Rates(starts=Rate(2, 600.0)), "2 per 600 s in all, no limit on one node; the next goes in 10 min"),
    ],
)
def test_what_waits_for_a_throttle_says_for_which_and_until_when(rates: Rates, told: str) -> None:
    machine = pool(rates, workers=2, cpus=50)
    submit(machine, 5)
    assert len(starts(machine, 0.0)) == 2
    assert why_ready(machine, machine.jobs[1], 3.0) == f"starts are throttled: {told}"


def test_without_throttles_all_go_at_once() -> None:
    machine = pool(Rates(), workers=1, cpus=50)
    submit(machine, 50)
    assert starts(machine, 0.0) == [(0.0, "n0")] * 50


# -- slots that are booked ahead ------------------------------------------------------------------------------


def naively(granted: list[float], most: int, window_s: float, now: float) -> float:
    """The first moment, from now on and not before anybody who asked earlier, at which one more does no harm."""
    earliest = max([now, *granted])
    moments = sorted({earliest, *(at + window_s for at in granted if at + window_s > earliest)})
    return next(m for m in moments if sum(at > m - window_s for at in granted) < most)


@given(
    st.integers(1, 4),
    st.sampled_from([0.5, 1.0, 8.0]),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, 0.25, 1.0, 9.0])), max_size=40),
)
def test_each_who_books_has_the_next_free_slot_of_its_own_endpoint(
    most: int, window_s: float, asked: list[tuple[str, float]]
) -> None:
    throttle: Throttle[str] = Throttle(Rate(most, window_s))
    granted: dict[str, list[float]] = {"a": [], "b": []}
    now = 0.0
    for endpoint, later_s in asked:
        now += later_s
        at = throttle.book(endpoint, now)
        assert at == naively(granted[endpoint], most, window_s, now)
        granted[endpoint].append(at)
    for times in granted.values():
        assert times == sorted(times), "nobody is passed by who came later"
        assert most_within(times, window_s) <= most


def test_transfers_are_throttled_by_endpoint_and_not_at_all_unless_that_is_asked_for() -> None:
    machine = pool(parse_rates(["transfers=2/1s"]), workers=0, cpus=1)
    waits = [machine.book_transfers(["http://a:80"], 10.0) for _ in range(5)]
    assert waits == [0.0, 0.0, 1.0, 1.0, 2.0]
    assert machine.book_transfers(["http://b:80"], 10.0) == 0.0
    free = pool(Rates(), workers=0, cpus=1)
    assert {free.book_transfers(["http://a:80"], 10.0) for _ in range(100)} == {0.0}
    assert free.book_transfers([], 10.0) == 0.0


def test_booked_slots_move_with_a_clock_that_is_set() -> None:
    throttle: Throttle[str] = Throttle(Rate(1, 10.0))
    assert [throttle.book("a", 100.0) for _ in range(3)] == [100.0, 110.0, 120.0]
    throttle.move(1000.0)
    assert throttle.book("a", 1100.0) == 1130.0
