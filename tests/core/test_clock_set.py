"""The clock is set by an hour, a day, a year: what was to happen happens when it was to, in truth."""

import pytest

from tercel.core.changes import WorkerSet
from tercel.core.conditions import Verdict
from tercel.core.joining import FORGET_OFFLINE_S
from tercel.core.standing import probe_at
from tercel.core.throttles import Rate, Rates

from .test_blocked_edges import LICENCE, NIGHT, condition, played
from .test_standing import Pool, failed_at, row
from .transcript import Stage

YEAR = 365 * 86_400.0
SETS = [-YEAR, -3600.0, 3600.0, YEAR]


def set_clock(stage: Stage, by_s: float) -> None:
    stage.now += by_s
    stage.machine.on_clock_set(by_s)


def said(told: list[str], what: str) -> list[str]:
    return [line for line in told if what in line]


@pytest.mark.parametrize("by_s", SETS)
def test_a_condition_is_tested_and_given_up_when_it_would_have_been(by_s: float) -> None:
    stage = played("worker w1 joins cpus=4", f"submit 1 tasks=0 {LICENCE}", "w1 reports 1.0a exit 75")
    stage.play("wait 4s")
    set_clock(stage, by_s)
    assert not said(stage.play("wait 5s"), "probe")
    assert said(stage.play("wait 1s"), "probe")
    set_clock(stage, by_s)
    stage.play("C1 not cleared: refused")
    assert said(stage.play("wait 10s"), "probe")
    assert condition(stage).row.opened_at == pytest.approx(stage.now - 20.0)
    stage.play("the manager restarts")
    assert condition(stage).row.next_test_at <= stage.now + 10.0


@pytest.mark.parametrize("by_s", SETS)
def test_a_probe_that_nobody_answers_is_asked_of_another_in_time(by_s: float) -> None:
    stage = played(
        "worker w1 joins cpus=4", f"submit 1 tasks=0 {LICENCE}", "w1 reports 1.0a exit 75", "wait 10s"
    )
    set_clock(stage, by_s)
    assert not said(stage.play("wait 39s"), "probe")
    assert said(stage.play("wait 1s"), "probe")


@pytest.mark.parametrize("by_s", SETS)
def test_a_worker_has_its_grace_and_a_retry_its_pause(by_s: float) -> None:
    stage = played(
        "worker w1 joins cpus=4",
        "worker w2 joins cpus=1",
        "submit 1 tasks=0 retries=1 backoff=30",
        "w1 reports 1.0a exit 1",
    )
    set_clock(stage, by_s)
    assert not said(stage.play("wait 29s"), "offer")
    assert said(stage.play("wait 1s"), "offer w1 1.0b")
    stage.play("w1 starts 1.0b")
    stage.play("w1 loses its link")
    set_clock(stage, by_s)
    assert not said(stage.play("wait 59s"), "offer")
    assert said(stage.play("wait 1s"), "offer w2 1.0c")


@pytest.mark.parametrize("by_s", SETS)
def test_throttles_grant_what_they_would_have(by_s: float) -> None:
    rates = Rates(starts=Rate(1, 10.0))
    stage = played("worker w1 joins cpus=4", "submit 1 tasks=0-1", rates=rates)
    set_clock(stage, by_s)
    assert not said(stage.play("wait 9s"), "offer")
    assert said(stage.play("wait 1s"), "offer")


@pytest.mark.parametrize("by_s", SETS)
def test_a_worker_in_quarantine_is_tried_when_it_would_have_been(by_s: float) -> None:
    pool = Pool("w1", "w2", "w3", "bad")
    pool.machine.on_accepted(row(1, 200))
    pool.play(failed_at("bad"))
    bad = pool.machine.workers["bad"]
    left_s = probe_at(bad.row) - pool.now
    assert left_s > 0 and bad.row.quarantined
    pool.now += by_s
    pool.machine.on_clock_set(by_s)
    pool.machine.tick(pool.now + left_s - 0.1)
    assert not bad.conduct.probing
    pool.machine.tick(pool.now + left_s + 0.1)
    assert bad.conduct.probing
    (kept,) = [change.worker for change in pool.machine.take()[0] if isinstance(change, WorkerSet)]
    assert kept == bad.row, "a manager that starts anew knows it too"


@pytest.mark.parametrize("by_s", SETS)
def test_what_waits_for_a_time_of_day_looks_at_the_new_clock_at_once(by_s: float) -> None:
    stage = played("worker w1 joins cpus=4", f"submit 1 tasks=0 {NIGHT}")
    waits = condition(stage)
    stage.machine.on_tested(waits.probe, Verdict(False, not_before_s=3600.0), stage.now)
    assert waits.row.next_test_at == stage.now + 3600.0
    set_clock(stage, by_s)
    assert said(stage.play("wait 0s"), "probe")


@pytest.mark.parametrize("by_s", SETS)
def test_a_large_task_is_waited_for_as_soon_as_it_would_have_been(by_s: float) -> None:
    stage = played("worker w1 joins cpus=2", "submit 1 tasks=0-1", "w1 starts 1.0a", "w1 starts 1.1a")
    stage.play("submit 2 tasks=0 cpus=2")
    stage.play("submit 3 tasks=0-9")
    stage.play("w1 reports 1.0a exit 0 after 100s")
    passed_at = stage.machine.jobs[2].passed_at
    assert passed_at is not None
    waited_s = stage.now - passed_at
    set_clock(stage, by_s)
    moved_at = stage.machine.jobs[2].passed_at
    assert moved_at is not None and stage.now - moved_at == pytest.approx(waited_s)


@pytest.mark.parametrize("by_s", SETS)
def test_a_worker_that_is_away_is_forgotten_when_it_would_have_been(by_s: float) -> None:
    stage = played("worker w1 joins cpus=4", "w1 loses its link", "wait 61s")
    set_clock(stage, by_s)
    stage.play(f"wait {FORGET_OFFLINE_S - 120:.0f}s")
    assert "w1" in stage.machine.workers
    stage.play("wait 120s")
    assert "w1" not in stage.machine.workers
