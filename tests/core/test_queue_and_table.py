"""The tasks that are blocked and the table of who waits for what are one truth, whatever happens (T13)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core import states
from tercel.core.accounts import Settings
from tercel.core.machine import Machine

from .transcript import Stage

RULE = "exit:75>tcp:licence:1;every_10s_for_1h"
OTHER = "exit:76>tcp:quota:1;every_10s_for_1m"
STEPS = st.tuples(
    st.sampled_from(
        [
            *["75"] * 4,
            *["76"] * 2,
            "0",
            "1",
            *["wait"] * 3,
            *["cleared", "cleared for 1", "not cleared"] * 2,
            "release C",
            "fail C",
            "pause C",
            "resume C",
            "cancel",
            "hold",
            "release",
            "retry",
            "rollback",
            "crash",
        ]
    ),
    st.integers(0, 99),
    st.integers(1, 15),
)


class Watched:
    def __init__(self) -> None:
        self.stage = Stage()
        self.play("worker w joins cpus=3")
        self.play(f"submit 1 tasks=0-3 block={RULE}")
        self.play(f"submit 2 tasks=0-3 block={RULE}")
        self.play(f"submit 3 tasks=0-3 block={OTHER} after=ok:1")

    def play(self, event: str) -> None:
        self.stage.play(event)
        self.compare()

    def step(self, what: str, choice: int, mask: int) -> None:
        machine = self.stage.machine
        if what.isdigit():
            flights = [f for f in machine.workers["w"].flights.values() if not f.ending]
            if flights:
                flight = flights[choice % len(flights)]
                self.play(f"w reports {self.stage._names[flight.attempt]} exit {what}")
        elif what == "wait":
            self.play(f"wait {1 + choice}s")
        elif what == "crash":
            held = [self.stage._names[f.attempt] for f in machine.workers["w"].flights.values()]
            self.stage._probes.clear()
            self.play("the manager restarts")
            self.play(f"worker w joins cpus=3 holding {', '.join(f'{name} waiting' for name in held)}")
        elif "cleared" in what:
            if self.stage._probes:
                asked = sorted(self.stage._probes)[choice % len(self.stage._probes)]
                self.play(f"{asked} {what}")
        elif what.endswith("C"):
            if machine.conditions:
                id = sorted(machine.conditions)[choice % len(machine.conditions)]
                more = {"fail C": ": no hope", "release C": f" {mask}"}.get(what, "")
                self.play(f"{what}{id}{more}")
        else:
            job = 1 + choice % 3
            tasks = ",".join(str(task) for task in range(4) if mask >> task & 1)
            if what in ("retry", "rollback") or job in machine.jobs:
                self.play(f"{what} {job}.{tasks}")
        for flight in [f for f in self.stage.machine.workers["w"].flights.values() if f.ending]:
            self.play(f"w reports {self.stage._names[flight.attempt]} cancelled")

    def compare(self) -> None:
        """What the store has, what the machine has, and what a machine would have that starts now."""
        table, open_conditions = self._table()
        assert self._queue(self.stage.machine) == table
        assert {id for _, id, _ in table} == open_conditions == set(self.stage.machine.conditions)
        again = Machine(Settings(grace_s=60.0), self.stage.store.load(), self.stage.now)
        assert self._queue(again) == table

    def _table(self) -> tuple[dict[tuple[int, int, states.Stage], list[Any]], set[int]]:
        lives = [live for job in (1, 2, 3) if (live := self.stage.store.live(job)) is not None]
        table = {(live.job.id, id, stage): ranges for live in lives for id, stage, ranges in live.blocked}
        rows = self.stage.store.conditions(open_only=True, before=None, limit=100)
        return table, {row.id for row in rows}

    @staticmethod
    def _queue(machine: Machine) -> dict[tuple[int, int, states.Stage], list[Any]]:
        return {
            (job.id, condition.id, stage): both.ranges()
            for job in machine.jobs.values()
            for condition, tasks in job.blocks.items()
            for stage, met in job.stages.items()
            if (both := tasks.intersection(met))
        }


@pytest.mark.T(13)
@pytest.mark.must("a")
@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=10, max_size=40))
def test_queue_and_table_cannot_diverge(steps: list[tuple[str, int, int]]) -> None:
    watched = Watched()
    for what, choice, mask in steps:
        watched.step(what, choice, mask)
