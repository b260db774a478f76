"""How tasks are let go when what they waited for is back: against Tapis' fixed batches of ten, by the core on a virtual clock."""

import heapq
from collections.abc import Callable

import msgspec
import pytest

from tercel.core.accounts import Settings
from tercel.core.changes import AttemptLost, Loaded
from tercel.core.conditions import Verdict
from tercel.core.effects import Offered, Probe
from tercel.core.invariants import violations
from tercel.core.machine import Machine
from tercel.core.model import BlockRule, JobRow, JobSpec, Needs
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report
from tercel.core.states import TaskState

from .transcript import Stage

RULE = BlockRule(on="exit:75", tester="tcp:licence:1", at="site", policy="every 10s for 2d")


class Told(msgspec.Struct):
    """How it went."""

    took_s: float
    turned_away: int
    """Attempts that met the fault."""
    probes: int


class Licences:
    """An outside service with so many places, that is there or not. Its tester says only whether it answers."""

    def __init__(self, places: int, is_up: Callable[[float], bool]) -> None:
        self.places = places
        self.is_up = is_up
        self.used = 0

    def take(self, now: float) -> bool:
        if not self.is_up(now) or self.used >= self.places:
            return False
        self.used += 1
        return True


def run(licences: Licences, tasks: int, slots: int, lasts_s: float, fixed_wave: int = 0) -> Told:
    """All tasks to their end. Who gets no licence knows after a tenth of a second."""
    machine = Machine(Settings(fixed_wave=fixed_wave), Loaded(1, 1, [], [], []), 0.0)
    machine.on_hello("w", "1", WorkerInfo(node="n", capacity=Needs(slots * 1000, 0)), [], 0.0)
    spec = JobSpec(argv=("x",), block_on=(RULE,))
    machine.on_accepted(
        JobRow(id=1, owner="ada", spec=spec, ranges=((0, tasks - 1),), max_running=0, submitted_at=0.0)
    )
    events: list[tuple[float, int, Callable[[], None]]] = []
    told = Told(0.0, 0, 0)
    now, number = 0.0, 0

    def later(after_s: float, do: Callable[[], None]) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (now + after_s, number, do))

    def begin(task: int, attempt: int) -> None:
        licensed = licences.take(now)
        wall_s = lasts_s if licensed else 0.1

        def end() -> None:
            licences.used -= licensed
            report = Report(1, task, attempt, End.EXITED, 0 if licensed else 75, now - wall_s, wall_s, 0.0, 0)
            machine.on_reports("w", [report], now)

        later(wall_s, end)

    def answer(number: int) -> None:
        later(0.01, lambda: machine.on_tested(number, Verdict(licences.is_up(now)), now))

    while machine.jobs:
        machine.tick(now)
        machine.round()
        assert violations(machine) == []
        changes, effects = machine.take()
        told.turned_away += sum(
            isinstance(change, AttemptLost) and change.outcome.state is TaskState.BLOCKED
            for change in changes
        )
        for effect in effects:
            if isinstance(effect, Probe):
                told.probes += 1
                answer(effect.number)
            elif isinstance(effect, Offered):
                for lease in effect.leases:
                    for at, task in enumerate(range(lease.first, lease.last + 1)):
                        begin(task, lease.id + at)
        if not machine.jobs:
            break
        deadline = machine.next_deadline()
        due = events[0][0] if events else float("inf")
        if deadline is not None and deadline < due:
            now = max(now, deadline)
        else:
            now, _, do = heapq.heappop(events)
            do()
    told.took_s = now
    return told


def both(
    places: int, is_up: Callable[[float], bool], tasks: int, slots: int, lasts_s: float
) -> tuple[Told, Told]:
    """(ours, with batches of ten)."""
    ours, tens = (run(Licences(places, is_up), tasks, slots, lasts_s, fixed) for fixed in (0, 10))
    print(f"{places} places, {tasks} tasks on {slots} slots: ours {ours}, by tens {tens}")
    return ours, tens


@pytest.mark.T(6)
@pytest.mark.must("a")
def test_after_an_outage_a_large_pool_is_full_again_as_soon_as_without_any_pause() -> None:
    ours, tens = both(10**9, lambda now: now > 60, tasks=3000, slots=500, lasts_s=1.0)
    assert ours.took_s < 1.01 * tens.took_s
    assert ours.turned_away == tens.turned_away == 3000  # each of them met the outage once


def test_a_service_with_few_places_is_not_overrun() -> None:
    """The tester only says that it answers: how many it takes must be found out."""
    ours, tens = both(20, lambda now: now > 60, tasks=400, slots=200, lasts_s=2.0)
    assert ours.took_s < 0.9 * tens.took_s
    assert ours.took_s < 1.2 * (60 + 400 * 2.0 / 20)  # what it can be at best
    assert ours.turned_away < 0.05 * tens.turned_away


def test_a_service_that_comes_and_goes_costs_few_attempts() -> None:
    ours, tens = both(10**9, lambda now: now % 60 > 40, tasks=2000, slots=100, lasts_s=3.0)
    assert ours.took_s < 1.02 * tens.took_s
    assert ours.turned_away < tens.turned_away


def test_one_that_always_comes_back_keeps_no_other_from_going_on() -> None:
    """Its fault is its own, and looks like that of the others: the tester says that all is well."""
    stage = Stage()
    stage.play("worker w1 joins cpus=12")
    stage.play("submit 1 tasks=0-11 block=exit:75>tcp:licence:1;every_1s_for_1h")
    for task in range(12):
        stage.play(f"w1 reports 1.{task}a exit 75")
    for _ in range(200):
        for worker in stage.machine.workers.values():
            for flight in list(worker.flights.values()):
                code = 75 if flight.task == 0 else 0
                report = Report(1, flight.task, flight.attempt, End.EXITED, code, stage.now, 0.1, 0.0, 0)
                stage.machine.on_reports("w1", [report], stage.now)
        for number in list(stage.machine._probes):
            stage.machine.on_tested(number, Verdict(True), stage.now)
        stage.now += 1.0
        stage.machine.tick(stage.now)
        stage.machine.round()
    assert stage.machine.jobs[1].finished.ranges() == [(1, 11)]
