"""The worker's bookkeeping of cleanups: finished first, then the cleanup, then its place is free again."""

from typing import Any

import pytest

from tercel.core.model import Keep, Limits, Needs, Program
from tercel.core.reports import End, Output, Report
from tercel.wire.messages import Brief, Offer
from tercel.worker.agent import Agent
from tercel.worker.cleaning import Cleanup, cleans_after, last_words

PROGRAM = Program(argv=("work",), env={"A": "1"}, cwd="/data", cleanup="./wipe.sh", cleanup_limit_s=60.0)

pytestmark = pytest.mark.K(12, 13, 16)


def report(attempt: int, **fields: Any) -> Report:
    values: dict[str, Any] = {"end": End.EXITED, "code": 0, "started_at": 1.0, "wall_s": 0.001}
    return Report(job=1, task=attempt, attempt=attempt, cpu_s=0.0, max_rss_bytes=0, **(values | fields))


def agent_with(*attempts: int, program: Program = PROGRAM, cpus: int = 2) -> Agent:
    """These have been offered, and what fits is launched."""
    agent = Agent(Needs(cpus * 1000, 8))
    agent.on_brief(Brief(1, program, Needs(1000, 3)))
    agent.on_offer(Offer(1, attempts[0], attempts[-1], attempts[0]))
    agent.launches()
    return agent


def test_the_place_is_free_only_when_the_cleanup_is_done() -> None:
    agent = agent_with(10, 11, 12)
    [owed] = agent.on_ended([report(10)])
    assert agent.launches() == [], "it is not acknowledged, so its cleanup waits, and so does the next task"
    assert agent.offered == Needs(1000, 5)
    agent.on_ack([owed.attempt])
    [cleanup] = agent.launches()
    assert (cleanup.lane, cleanup.task, cleanup.attempt, cleanup.program.line) == (0, 10, 10, "./wipe.sh")
    assert agent.launches() == []
    assert not agent.only_cleans, "11 runs"
    assert agent.on_ended([report(10)]) == [], "how a cleanup ends is not reported"
    assert [(done.task, end.code) for done, end in agent.take_cleaned()] == [("1.10", 0)]
    assert agent.take_cleaned() == []
    assert agent.offered == agent.capacity
    assert [launch.attempt for launch in agent.launches()] == [12]


def test_it_is_idle_when_all_is_cleaned_up() -> None:
    agent = agent_with(10)
    agent.on_ended([report(10)])
    assert (agent.idle, agent.only_cleans) == (False, True)
    agent.on_ack([10])
    agent.launches()
    assert (agent.idle, agent.only_cleans) == (False, True)
    agent.on_ended([report(10, code=1)])
    assert (agent.idle, agent.only_cleans) == (True, False)


def test_short_tasks_are_not_put_behind_one_that_is_cleaned_up_after() -> None:
    agent = agent_with(10, 11, 12, cpus=1)
    for attempt in (10, 11):
        agent.on_ended([report(attempt)])
        agent.on_ack([attempt])
        assert [launch.attempt for launch in agent.launches()] == [attempt]
        agent.on_ended([report(attempt)])
        assert [launch.attempt for launch in agent.launches()] == [attempt + 1]


@pytest.mark.parametrize(
    ("fields", "cleans"),
    [
        ({}, True),
        ({"code": 1}, True),
        ({"end": End.SIGNALLED, "code": 9}, True),
        ({"end": End.TIMED_OUT}, True),
        ({"end": End.EXCEEDED}, True),
        ({"end": End.CANCELLED}, True),
        ({"end": End.INTERRUPTED}, True),
        ({"end": End.INTERRUPTED, "started_at": 0.0}, False),
        ({"end": End.REFUSED}, False),
    ],
)
def test_there_is_a_cleanup_however_the_task_ended_if_it_ran(fields: dict[str, Any], cleans: bool) -> None:
    assert cleans_after(PROGRAM, report(1, **fields)) is cleans
    assert cleans_after(Program(argv=("work",)), report(1, **fields)) is False


def test_what_nobody_wants_to_hear_of_is_cleaned_up_after_at_once() -> None:
    agent = agent_with(10)
    assert agent.on_welcome([10]) == [10]
    assert agent.on_ended([report(10, end=End.CANCELLED)]) == []
    assert [launch.attempt for launch in agent.launches()] == [10]


def test_a_cleanup_is_begun_also_while_draining_and_when_asked_back() -> None:
    agent = agent_with(10)
    agent.on_ended([report(10)])
    agent.drain()
    assert agent.on_cancel([10]) == ([], []), "it has ended, and is owed"
    agent.on_ack([10])
    assert len(agent.launches()) == 1
    assert agent.on_cancel([10]) == ([], [10]), "as a task it is not here any more"
    assert not agent.in_lane(10)
    agent.on_ended([report(10)])
    assert agent.idle


def test_it_is_run_where_the_task_ran_and_is_told_how_that_ended() -> None:
    agent = agent_with(10)
    agent.on_ended([report(10, end=End.SIGNALLED, code=9)])
    agent.on_ack([10])
    [launch] = agent.launches()
    program = launch.program
    assert program.env == {"A": "1", "TERCEL_EXIT_CODE": "137", "TERCEL_END": "signalled"}
    assert (program.cwd, program.time_limit_s, program.cleanup) == ("/data", 60.0, "")
    assert (program.limits, program.sandbox, program.container) == (Limits(), Keep.REMOVE, "")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, ""),
        ({"code": 3}, "the cleanup after 1.10 failed with exit code 3"),
        ({"end": End.TIMED_OUT}, "the cleanup after 1.10 was killed: it took longer than 60 s"),
        (
            {"end": End.SIGNALLED, "code": 9, "note": "ended by SIGKILL"},
            "the cleanup after 1.10 failed: ended by SIGKILL",
        ),
        (
            {"end": End.INTERRUPTED, "wall_s": 0.5, "note": "the worker stopped"},
            "the cleanup after 1.10 was ended: the worker stopped",
        ),
        (
            {"end": End.INTERRUPTED, "wall_s": 0.0, "note": "its spawner was lost"},
            "the cleanup after 1.10 could not be run: its spawner was lost",
        ),
    ],
)
def test_a_cleanup_that_fails_is_told(fields: dict[str, Any], says: str) -> None:
    agent = agent_with(10)
    agent.on_ended([report(10)])
    agent.on_ack([10])
    agent.launches()
    agent.on_ended([report(10, **fields)])
    [(cleanup, end)] = agent.take_cleaned()
    assert isinstance(cleanup, Cleanup)
    assert cleanup.fault(end) == says


def test_of_a_cleanups_output_the_end_is_shown() -> None:
    out = "\n".join(f"line {number}" for number in range(30)).encode() + b"\n"
    end = report(1, out=Output(len(out), len(out), out), err=Output(3, 3, b"\xff!\n"))
    lines = last_words(end).splitlines()
    assert (len(lines), lines[0], lines[1], lines[-1]) == (21, "", "    line 11", "    \ufffd!")


def test_the_place_of_one_whose_report_is_set_aside_is_cleaned() -> None:
    """What it left may wait for days until its names are free; its place must not."""
    agent = agent_with(10)
    agent.on_ended([report(10)])
    agent.on_park([10])
    [cleanup] = agent.launches()
    assert cleanup.attempt == 10
    agent.on_ended([report(10)])
    assert agent.idle
