"""Lanes hold resources and pieces of them; a worker that gives less, or pauses, gives back what has not begun."""

import pytest

from tercel.core.model import Needs, Program
from tercel.core.reports import End, Report
from tercel.runners.contract import Launch
from tercel.wire.messages import Brief, Offer
from tercel.worker.agent import Agent
from tercel.worker.lanes import variable_of

TWO_GPUS = Needs(8000, 1000, "", (("gpus", 2000), ("licence.matlab", 2000), ("port", 3000)))
PIECES = {"gpus": ("0", "GPU-7"), "port": ("a", "b", "c")}


def _agent(capacity: Needs = TWO_GPUS, pieces: dict[str, tuple[str, ...]] = PIECES, **jobs: Needs) -> Agent:
    agent = Agent(capacity, pieces)
    for name, needs in jobs.items():
        agent.on_brief(Brief(int(name[3:]), Program(argv=("true",)), needs))
    return agent


def _offer(agent: Agent, job: int, count: int) -> list[int]:
    """Attempts 100 * job, …"""
    return agent.on_offer(Offer(job, 0, count - 1, 100 * job))


def _ended(agent: Agent, attempt: int, **fields: float) -> None:
    wall_s = fields.get("wall_s", 1.0)
    agent.on_ended([Report(attempt // 100, attempt % 100, attempt, End.EXITED, 0, 1.0, wall_s, 0.0, 0)])


def _env(launches: list[Launch]) -> dict[int, dict[str, str]]:
    return {launch.attempt: launch.env for launch in launches}


@pytest.mark.must("a")
def test_each_piece_is_given_to_one_attempt_at_a_time() -> None:
    agent = _agent(job1=Needs(100, 0, "", (("gpus", 1000),)))
    _offer(agent, 1, 3)
    assert [e["CUDA_VISIBLE_DEVICES"] for e in _env(agent.launches()).values()] == ["0", "GPU-7"]
    _ended(agent, 101)
    assert _env(agent.launches()) == {102: {"CUDA_VISIBLE_DEVICES": "GPU-7", "TERCEL_RESOURCE_GPUS": "GPU-7"}}


def test_several_pieces_are_told_together() -> None:
    agent = _agent(job1=Needs(100, 0, "", (("gpus", 2000), ("port", 2000))))
    _offer(agent, 1, 1)
    assert _env(agent.launches()) == {
        100: {
            "CUDA_VISIBLE_DEVICES": "0,GPU-7",
            "TERCEL_RESOURCE_GPUS": "0,GPU-7",
            "TERCEL_RESOURCE_PORT": "a,b",
        }
    }


def test_parts_of_one_piece_are_shared() -> None:
    agent = _agent(job1=Needs(100, 0, "", (("gpus", 500),)), job2=Needs(100, 0, "", (("gpus", 1000),)))
    _offer(agent, 1, 2)
    _offer(agent, 2, 1)
    envs = _env(agent.launches())
    assert [envs[attempt]["CUDA_VISIBLE_DEVICES"] for attempt in (100, 101, 200)] == ["0", "0", "GPU-7"]


def test_who_asked_for_no_gpu_sees_none_where_there_are_some() -> None:
    agent = _agent(job1=Needs(100, 0))
    _offer(agent, 1, 1)
    assert _env(agent.launches()) == {100: {"CUDA_VISIBLE_DEVICES": ""}}
    bare = _agent(Needs(1000, 0), {}, job1=Needs(100, 0))
    _offer(bare, 1, 1)
    assert _env(bare.launches()) == {100: {}}


def test_countable_resources_bound_what_runs_side_by_side() -> None:
    agent = _agent(job1=Needs(100, 0, "", (("licence.matlab", 1000),)))
    _offer(agent, 1, 3)
    assert list(_env(agent.launches())) == [100, 101]
    assert agent.launches() == []
    _ended(agent, 100)
    assert list(_env(agent.launches())) == [102]


def test_who_waits_for_a_licence_is_passed_and_is_first_again_when_there_is_one() -> None:
    licence = (("licence.matlab", 1000),)
    small, large = Needs(1000, 0, "", licence), Needs(4000, 0, "", licence)
    agent = _agent(Needs(8000, 0, "", licence), {}, job1=small, job2=large, job3=Needs(2000, 0))
    _offer(agent, 1, 1)
    _offer(agent, 2, 2)
    _offer(agent, 3, 5)
    assert list(_env(agent.launches())) == [100, 300, 301, 302]
    _ended(agent, 300)
    assert list(_env(agent.launches())) == [303], "there is still no licence"
    _ended(agent, 100)
    assert list(_env(agent.launches())) == [], "there is one, and nobody passes for want of cpus"
    _ended(agent, 301)
    assert list(_env(agent.launches())) == [200]
    _ended(agent, 302)
    assert list(_env(agent.launches())) == [304]


def test_nobody_passes_with_a_piece_of_what_the_one_before_it_waits_for() -> None:
    """Or one that needs both GPUs would wait for ever beside many that need one."""
    both, one = Needs(100, 0, "", (("gpus", 2000),)), Needs(100, 0, "", (("gpus", 1000),))
    port = Needs(100, 0, "", (("port", 1000),))
    agent = _agent(job1=one, job2=both, job3=one, job4=port)
    for job in (1, 2, 3, 4):
        _offer(agent, job, 1)
    assert list(_env(agent.launches())) == [100, 400]
    _ended(agent, 100)
    assert list(_env(agent.launches())) == [200]
    _ended(agent, 200)
    assert list(_env(agent.launches())) == [300]


def test_pieces_of_places_that_are_being_cleaned_are_not_offered() -> None:
    agent = _agent()
    needs = Needs(1000, 10, "", (("gpus", 1000), ("licence.matlab", 500)))
    agent.on_brief(Brief(1, Program(argv=("true",), cleanup="wipe"), needs))
    _offer(agent, 1, 1)
    agent.launches()
    assert agent.offered == TWO_GPUS
    _ended(agent, 100)
    free = (("gpus", 1000), ("licence.matlab", 1500), ("port", 3000))
    assert agent.offered == Needs(7000, 990, "", free)
    agent.on_ack([100])
    agent.launches()
    _ended(agent, 100)
    assert agent.offered == TWO_GPUS


def test_short_ones_behind_one_another_in_a_lane_have_its_pieces() -> None:
    agent = _agent(job1=Needs(100, 0, "", (("gpus", 1000),)))
    _offer(agent, 1, 1)
    agent.launches()
    _ended(agent, 100, wall_s=0.001)
    agent.on_offer(Offer(1, 1, 20, 101))
    launches = agent.launches()
    assert len(launches) == 20
    assert {(launch.lane, launch.env["CUDA_VISIBLE_DEVICES"]) for launch in launches} == {
        (0, "0"),
        (1, "GPU-7"),
    }


def test_the_variable_of_a_resource_is_one_that_a_shell_can_name() -> None:
    assert variable_of("licence.matlab-7") == "TERCEL_RESOURCE_LICENCE_MATLAB_7"


# -- giving less ------------------------------------------------------------------------------------------


def test_what_no_longer_fits_even_alone_is_given_back_and_not_taken_until_there_is_more() -> None:
    agent = _agent(Needs(4000, 0), {}, job1=Needs(1000, 0), job2=Needs(3000, 0))
    _offer(agent, 1, 4)
    agent.launches()
    _offer(agent, 2, 2)
    agent.on_offer(Offer(1, 4, 5, 104))
    assert agent.set_capacity(Needs(2000, 0)) == [200, 201]
    assert agent.on_offer(Offer(2, 2, 2, 202)) == [202]
    assert agent.launches() == []
    assert agent.set_capacity(Needs(4000, 0)) == []
    assert agent.on_offer(Offer(2, 2, 2, 203)) == []


def test_what_runs_goes_on_and_nothing_new_begins_until_it_has_come_down_to_what_is_given() -> None:
    agent = _agent(Needs(4000, 0), {}, job1=Needs(1000, 0))
    _offer(agent, 1, 9)
    agent.launches()
    agent.set_capacity(Needs(2000, 0))
    begun: list[int] = []
    for attempt in (100, 101, 102):
        _ended(agent, attempt)
        begun += _env(agent.launches())
    assert begun == [104]
    assert agent.running_count == 2


def test_lanes_of_short_tasks_are_not_filled_up_while_there_are_too_many() -> None:
    agent = _agent(Needs(2000, 0), {}, job1=Needs(1000, 0))
    _offer(agent, 1, 1)
    agent.launches()
    _ended(agent, 100, wall_s=0.01)
    agent.on_offer(Offer(1, 1, 40, 101))
    first = agent.launches()
    agent.set_capacity(Needs(1000, 0))
    for launch in first:
        if launch.lane == first[0].lane:
            _ended(agent, launch.attempt, wall_s=0.01)
            assert agent.launches() == []
    assert agent.running_count == 1
    for launch in first:
        if launch.lane != first[0].lane:
            _ended(agent, launch.attempt, wall_s=0.01)
    assert agent.launches(), "the one that is left goes on"
    assert agent.running_count == 1


def test_nothing_begins_where_nothing_is_given() -> None:
    agent = _agent(Needs(4000, 0), {}, job1=Needs(1000, 0))
    _offer(agent, 1, 2)
    assert agent.set_capacity(Needs(0, 0)) == [100, 101]
    assert agent.launches() == []


# -- pausing ----------------------------------------------------------------------------------------------


def test_a_paused_agent_gives_back_what_waits_takes_nothing_and_recovers() -> None:
    agent = _agent(Needs(1000, 0), {}, job1=Needs(1000, 0))
    _offer(agent, 1, 3)
    agent.launches()
    assert agent.pause() == [101, 102]
    assert agent.on_offer(Offer(1, 3, 3, 103)) == [103]
    _ended(agent, 100)
    assert agent.launches() == []
    agent.resume()
    assert agent.on_offer(Offer(1, 3, 3, 103)) == []
    assert list(_env(agent.launches())) == [103]


def test_what_a_paused_agent_withdraws_from_lanes_is_reported_not_kept() -> None:
    agent = _agent(Needs(1000, 0), {}, job1=Needs(1000, 0))
    _offer(agent, 1, 1)
    agent.launches()
    _ended(agent, 100, wall_s=0.01)
    agent.on_offer(Offer(1, 1, 3, 101))
    assert list(_env(agent.launches())) == [101, 102, 103]
    agent.on_started([101])
    agent.pause()
    assert agent.lanes.unbegun() == [102, 103]
    assert agent.lanes.unbegun() == []
    withdrawn = Report(1, 2, 102, End.INTERRUPTED, 0, 0.0, 0.0, 0.0, 0)
    assert agent.on_ended([withdrawn]) == [withdrawn]
    assert [held.attempt for held in agent.held() if not held.ended] == [101, 103]
