"""What a throttle makes of a round: no window sees more starts than it may, and nothing is forgotten."""

import pytest

from tercel.core.accounts import Settings
from tercel.core.changes import Loaded
from tercel.core.effects import Offered
from tercel.core.explain import why_ready
from tercel.core.invariants import violations
from tercel.core.machine import Machine
from tercel.core.model import JobRow, JobSpec, Needs
from tercel.core.presence import WorkerInfo
from tercel.core.throttles import Rate, Rates, parse_rates


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
