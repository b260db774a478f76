"""What `tercel pool --why` says of a worker."""

import pytest

from tercel.core.idling import why_idle
from tercel.core.model import Needs
from tercel.core.presence import Facts, Reservation, WorkerInfo, WorkerRow, WorkerState
from tercel.core.workers import Worker

NOW = 10_000.0


def worker(name: str = "w7") -> Worker:
    one = Worker(name, NOW - 30)
    one.describe(WorkerInfo(node="n", capacity=Needs(2000, 0)), NOW)
    one.online = True
    return one


def test_a_worker_that_takes_what_it_is_given_needs_no_reason() -> None:
    assert why_idle(worker(), NOW) == ""


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            WorkerRow(name="w7", quarantined="by ada: loud", quarantined_at=NOW - 5),
            "quarantined by ada: loud; `tercel worker release w7` ends it",
        ),
        (
            WorkerRow(name="w;id", quarantined="by ada: odd", quarantined_at=NOW - 5),
            "quarantined by ada: odd; `tercel worker release 'w;id'` ends it",
        ),
        (
            WorkerRow(name="w7", quarantined="failed 9 of 9", quarantined_at=NOW - 5, pause_s=3600.0),
            "quarantined: failed 9 of 9; it is tried with a task in 60 m",
        ),
    ],
)
def test_quarantine_is_told_with_the_evidence_and_how_it_ends(row: WorkerRow, told: str) -> None:
    one = worker(row.name)
    one.row = row
    assert why_idle(one, NOW) == told


def test_a_worker_that_is_tried_says_how_that_goes() -> None:
    one = worker()
    one.row = WorkerRow(name="w7", quarantined="failed 9 of 9", quarantined_at=NOW - 99, pause_s=60.0)
    one.conduct.probing, one.conduct.passed = True, 1
    assert why_idle(one, NOW).endswith("; it is tried with one task at a time, and 1 of 2 went well")


def test_several_reasons_are_all_told() -> None:
    one = worker()
    one.facts = Facts(unhealthy="its disk is full")
    one.reservation = Reservation(id=3, owner="root", queue="vision", user="ada", until=NOW + 7200, lend=True)
    one.reported_state = WorkerState.CLEANING
    one.ends_at = NOW + 90
    assert why_idle(one, NOW).split("; ") == [
        "unhealthy: its disk is full",
        "reserved for queue vision and user ada for another 2 h (reservation 3)",
        "others may use it while it would be idle",
        "cleaning up after a task",
        "its time is up in 90 s: it takes only tasks that end before",
    ]


def test_a_node_that_is_busy_with_other_things_says_so() -> None:
    one = worker()
    one.capacity = Needs(0, 0)
    assert why_idle(one, NOW) == "its node is busy with other things, and gives nothing to tasks for now"


def test_a_worker_that_cleans_up_is_not_called_busy_with_other_things() -> None:
    one = worker()
    one.capacity, one.reported_state = Needs(0, 0), WorkerState.CLEANING
    assert why_idle(one, NOW) == "cleaning up after a task"


def test_of_one_that_is_away_its_quarantine_is_told_too() -> None:
    one = worker()
    one.online, one.since, one.note = False, NOW - 30, "left"
    one.row = WorkerRow(name="w7", quarantined="by ada: loud", quarantined_at=NOW - 50)
    assert why_idle(one, NOW) == (
        "left 30 s ago; quarantined by ada: loud; `tercel worker release w7` ends it"
    )


def test_a_worker_that_drains_says_that_and_nothing_else() -> None:
    one = worker()
    one.draining = True
    one.facts = Facts(unhealthy="x")
    assert why_idle(one, NOW).startswith("draining: ")


def test_of_one_that_is_away_it_is_told_whether_it_is_waited_for() -> None:
    one = worker()
    one.online, one.since, one.lost_at = False, NOW - 30, NOW + 30
    assert why_idle(one, NOW) == "away for 30 s; others get what it has in 30 s unless it comes back"
    one.given_up = True
    assert why_idle(one, NOW) == "away for 30 s; what it had was given to others"
    one.reported_state = WorkerState.CLEANING
    assert why_idle(one, NOW).endswith("it may be restarting its machine, and is expected back")
    one.reported_state, one.note = WorkerState.AVAILABLE, "left"
    assert why_idle(one, NOW + 7200) == "left 2 h ago"
