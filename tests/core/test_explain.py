"""No task waits without a reason, in one sentence. (Most sentences are told in scenarios/*.txt.)"""

import pytest

from tercel.core.sizes import size

from .transcript import Stage


def explained(*events: str, task: str = "1.0") -> str:
    stage = Stage()
    for event in events:
        stage.play(event)
    return stage.explain(task)


def test_nobody_is_there() -> None:
    assert "no worker is connected: start one" in explained("submit 1")


def test_nobody_is_there_but_somebody_may_come_back() -> None:
    told = explained("worker w1 joins cpus=1", "submit 1 tasks=0-1", "w1 loses its link", task="1.1")
    assert told == "no worker is connected; 1 worker may still come back"


def test_memory_that_nobody_has_is_told_with_counts() -> None:
    told = explained(
        *[f"worker w{n} joins cpus=1 mem={16 * 2**30}" for n in range(3)], f"submit 1 mem={64 * 2**30}"
    )
    assert told == "waits for memory ≥ 64 GB: 0 of 3 workers have it; the largest has 16 GB"


def test_cores_that_others_use_are_told() -> None:
    told = explained("worker w1 joins cpus=8", "w1 gives cpus=2", "submit 1 cpus=4")
    assert told == (
        "1 of 1 worker could run it, but all of them are short of the cores or memory it needs, as others use them"
    )


def test_all_busy_tells_how_many_come_before() -> None:
    told = explained("worker w1 joins cpus=1", "submit 1 tasks=0-4", "submit 2 priority=2000", task="2.0")
    assert told.endswith("all busy; 4 tasks of 1 job come before it")
    told = explained(
        "worker w1 joins cpus=1", "submit 2 priority=2000 tasks=0-4", "submit 1 tasks=0-1", task="1.1"
    )
    assert told.endswith("it is next in line")


def test_under_way_tells_where_and_since_when() -> None:
    begin = ("worker w1 joins cpus=1", "submit 1")
    assert explained(*begin) == "is at w1, about to start or waiting there for a slot"
    assert explained(*begin, "w1 starts 1.0a", "wait 5s") == "runs on w1 since 5 s"
    away = (*begin, "w1 starts 1.0a", "w1 loses its link", "wait 20s")
    assert explained(*away) == "ran on w1, which is away; others get it in 40 s unless that worker returns"


def test_after_a_restart_it_is_said_whom_we_wait_for() -> None:
    told = explained("worker w1 joins cpus=1", "submit 1", "the manager restarts", "wait 1s")
    assert told == "was offered to w1, which is away; others get it in 59 s unless that worker returns"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KB"),
        (2**30, "1 GB"),
        (64 * 2**30, "64 GB"),
        (2**60, "1048576 TB"),
    ],
)
def test_sizes_are_told_as_people_read_them(number: int, text: str) -> None:
    assert size(number) == text
