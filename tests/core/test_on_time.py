"""Very many things outside stay broken for hours, by the core on a virtual clock: when is each of them tested?"""

import heapq
import random
from collections.abc import Callable, Sequence

import pytest

from tercel.core.accounts import Settings
from tercel.core.changes import JobAdded
from tercel.core.conditions import Place, Verdict
from tercel.core.effects import Probe
from tercel.core.machine import Machine
from tercel.core.model import BlockRule, JobRow, JobSpec, Needs
from tercel.core.presence import WorkerInfo
from tercel.core.reports import End, Report
from tercel.stores.memory import MemoryStore

EACH = 50
"""As many rules as a job may have."""
HOUR = 3600.0


class Outside:
    """Each task waits for something of its own. Whoever tests it sees after a while that it is still broken."""

    def __init__(self, answer_s: Callable[[], float] = lambda: 0.0) -> None:
        self.now = 0.0
        self.store = MemoryStore()
        self.machine = Machine(Settings(), self.store.load(), self.now)
        self.asked: list[tuple[float, int]] = []
        """When which condition was tested."""
        self.pauses: dict[int, list[float]] = {}
        """By condition: how long after it broke, and after each test, it is to be tested."""
        self._answer_s = answer_s
        self._answers: list[tuple[float, int, int]] = []
        """When which test of which condition is answered."""
        self._under_way: set[int] = set()

    def breaks(self, job: int, policies: Sequence[str], places: Sequence[Place]) -> None:
        """Every task of a job that is submitted now meets a fault of its own."""
        rules = tuple(
            BlockRule(
                on=f"exit:{number + 1}",
                tester=f"tcp:host-{job}-{number}:1",
                at=places[number % len(places)],
                policy=policies[number % len(policies)],
            )
            for number in range(EACH)
        )
        row = JobRow(
            id=job,
            owner="ada",
            spec=JobSpec(argv=("x",), block_on=rules),
            ranges=((0, EACH - 1),),
            max_running=0,
            submitted_at=self.now,
        )
        self.store.write([JobAdded(row)])
        self.machine.on_accepted(row, now=self.now)
        self._step()
        flights = list(self.machine.jobs[job].flights.values())
        assert len(flights) == EACH
        known = set(self.machine.conditions)
        for flight in flights:
            report = Report(job, flight.task, flight.attempt, End.EXITED, flight.task + 1, 0.0, 0.1, 0.0, 0)
            self.machine.on_reports("w", [report], self.now)
        for id in self.machine.conditions.keys() - known:
            self._is_to_be_tested(id)
        self._step()

    def join(self, cpus: int) -> None:
        self.machine.on_hello("w", "1", WorkerInfo(node="n", capacity=Needs(cpus * 1000, 0)), [], self.now)

    def restart(self) -> None:
        assert not self._under_way, "whose answers would be lost"
        self.store.crash()
        self.machine = Machine(Settings(), self.store.load(), self.now)

    def run(self, until: float) -> None:
        """The clock goes to the next thing that the machine wants done, or that is answered, and to no other time."""
        while True:
            due = self.machine.next_deadline()
            answer = self._answers[0][0] if self._answers else until
            at = answer if due is None else min(due, answer)
            if at >= until:
                self.now = until
                return
            self.now = max(self.now, at)
            while self._answers and self._answers[0][0] <= self.now:
                _, number, id = heapq.heappop(self._answers)
                self._under_way.discard(id)
                self.machine.on_tested(number, Verdict(False, note="refused"), self.now)
                self._is_to_be_tested(id)
            self._step()

    def due_at(self, id: int) -> float:
        return self.machine.conditions[id].row.next_test_at

    def _is_to_be_tested(self, id: int) -> None:
        self.pauses.setdefault(id, []).append(self.due_at(id) - self.now)

    def _step(self) -> None:
        self.machine.tick(self.now)
        self.machine.round()
        changes, effects = self.machine.take()
        self.store.write(changes)
        self.store.commit()
        for effect in effects:
            if isinstance(effect, Probe):
                self._ask(effect)

    def _ask(self, probe: Probe) -> None:
        id = probe.condition.id
        assert id not in self._under_way, "one at a time"
        assert self.now == self.due_at(id), "neither late nor early"
        self._under_way.add(id)
        self.asked.append((self.now, id))
        heapq.heappush(self._answers, (self.now + self._answer_s(), probe.number, id))


# -- on time ------------------------------------------------------------------------------------------------

PAUSES: dict[str, Callable[[int], float]] = {
    "every 2m for 2d": lambda _: 120.0,
    "every 30s x4, then 5m for 2d": lambda tests: 30.0 if tests < 4 else 300.0,
    "every 1m x2, 4m x2, then 10m for 2d": lambda tests: (60.0, 60.0, 240.0, 240.0, 600.0)[min(tests, 4)],
}
"""Until the next test after so many, read off by hand."""


@pytest.mark.must("d")
@pytest.mark.T(5, 7)
def test_10000_conditions_are_tested_when_they_are_due_for_an_hour() -> None:
    rng = random.Random(5)
    outside = Outside(answer_s=lambda: rng.uniform(0.01, 20.0))
    outside.join(cpus=10_000)
    for job in range(1, 201):
        outside.breaks(job, list(PAUSES), (Place.MANAGER, Place.SITE))
        outside.run(until=job * 0.3)
    outside.run(until=HOUR)
    conditions = outside.machine.conditions
    assert len(conditions) == len(outside.pauses) == 10_000
    asked: dict[int, int] = {}
    for _, id in outside.asked:
        asked[id] = asked.get(id, 0) + 1
    for id, condition in conditions.items():
        pause_s = PAUSES[condition.row.policy]
        assert outside.pauses[id] == pytest.approx([pause_s(n) for n in range(len(outside.pauses[id]))])
        if not condition.probe:
            assert condition.row.next_test_at >= HOUR, "none is forgotten"
        assert asked[id] == len(outside.pauses[id]) - (not condition.probe)


# -- spread -------------------------------------------------------------------------------------------------

BACKOFF, FIRST_S, MOST_S = "backoff 5s to 10m for 2d", 5.0, 600.0


def backing_off(*restarts: float) -> Outside:
    """A thousand that broke at the same moment, for three hours; the manager is restarted at times."""
    outside = Outside()
    outside.join(cpus=EACH)
    for job in range(1, 21):
        outside.breaks(job, [BACKOFF], [Place.MANAGER])
    for at in restarts:
        outside.run(until=at)
        outside.restart()
    outside.run(until=3 * HOUR)
    assert len(outside.pauses) == 1000
    return outside


@pytest.mark.T(7)
def test_pauses_of_a_backoff_are_drawn_from_the_whole_interval_and_do_not_cluster() -> None:
    """Full jitter: what broke together is not tested together."""
    outside = backing_off()
    for tests in range(3, 20):  # before that the shortest pause there may be cuts into it
        longest_s = min(MOST_S, FIRST_S * 2**tests)
        shares = [pauses[tests] / longest_s for pauses in outside.pauses.values()]
        assert sum(shares) / len(shares) == pytest.approx(0.5, abs=0.02)
        tenths = [sum(tenth <= 10 * share < tenth + 1 for share in shares) for tenth in range(10)]
        assert all(80 <= count <= 120 for count in tenths), (tests, tenths)
    for id, pauses in outside.pauses.items():
        shares = [pause_s / MOST_S for pause_s in pauses[7:]]
        assert sum(shares) / len(shares) == pytest.approx(0.5, abs=0.1), f"C{id} is no luckier than others"


@pytest.mark.T(7)
def test_a_restarted_manager_goes_on_with_the_same_pauses() -> None:
    assert backing_off(7.0, 600.5, HOUR).asked == backing_off().asked
