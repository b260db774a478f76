"""Files of attempts, as the agent sees them: who waits for which, what is left to deliver, what is owed, what may be forgotten."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tercel.core.files import Hitch, Input, Made, Output, Trouble
from tercel.core.model import Call, Function, Needs, Program
from tercel.core.presence import Held
from tercel.core.reports import End, Report
from tercel.core.reports import Output as Said
from tercel.core.states import Stage
from tercel.wire.messages import Brief, Offer
from tercel.worker.agent import Agent
from tercel.worker.debts import Debts
from tercel.worker.held import Attempt

READS = (Input(source="https://s/x"),)
LEAVES = (Output(name="r.txt", to=("https://s/r/{task}",)),)
MADE = (Made("r.txt", "https://s/r/0", 3, "blake3:" + "0" * 64),)
DOWN = Hitch(Stage.STAGE_OUT, Trouble.DOWN, "https://s/", "it is down", kept=True)
NEVER = Hitch(Stage.STAGE_OUT, Trouble.REFUSED, "https://s/", "it is refused")


def _agent(cpus: int = 8, **program: Any) -> Agent:
    """Knows job 1, which reads a file and leaves one, and job 2, which does neither."""
    agent = Agent(Needs(1000 * cpus, 0), outgoing="/o")
    fields = {"argv": ("true",), "inputs": READS, "outputs": LEAVES} | program
    agent.on_brief(Brief(1, Program(**fields), Needs(1000, 0)))
    agent.on_brief(Brief(2, Program(argv=("true",)), Needs(1000, 0)))
    return agent


def _offer(agent: Agent, first: int = 0, last: int = 0, job: int = 1) -> list[int]:
    return agent.on_offer(Offer(job, first, last, first))


def _bring(agent: Agent, *wants: Attempt) -> None:
    for held in wants or agent.wants():
        held.gathers = held.job.gathers(held.task, held.line)
        assert agent.on_brought(held.attempt, [("/cache/x", "x")] if held.job.program.inputs else [])


def _ran(attempt: int, **fields: Any) -> Report:
    values: dict[str, Any] = {"end": End.EXITED, "code": 0, "gathered": (("r.txt", 3),)}
    return Report(
        1, attempt, attempt, **(values | fields), started_at=5.0, wall_s=1.0, cpu_s=0.0, max_rss_bytes=0
    )


def _left(agent: Agent, attempt: int = 0, **fields: Any) -> Report:
    """An attempt that has run, and whose files are to be delivered."""
    _offer(agent, attempt, attempt)
    _bring(agent)
    assert [launch.attempt for launch in agent.launches()] == [attempt]
    assert agent.on_ended([_ran(attempt, **fields)]) == []
    ((report, _),) = agent.take_left()
    return report


def _launched(agent: Agent) -> list[int]:
    return [launch.attempt for launch in agent.launches()]


# -- bringing ---------------------------------------------------------------------------------------------


def test_attempt_waits_for_its_files_and_is_launched_with_links_to_them() -> None:
    agent = _agent()
    _offer(agent)
    _offer(agent, 7, 7, job=2)
    assert _launched(agent) == [7], "who reads nothing does not wait for who does"
    (held,) = agent.wants()
    assert agent.wants() == [], "each is told once"
    assert agent.held() == [Held(1, 0, 0, False, False), Held(2, 7, 7, True, False)]
    _bring(agent, held)
    (launch,) = agent.launches()
    assert (launch.links, launch.gathers) == ([("/cache/x", "x")], [("r.txt", "finished")])
    assert launch.gather_dir == "/o/0"


@pytest.mark.parametrize("first", ["values", "files"])
def test_attempt_that_awaits_values_and_files_is_launched_when_it_has_both(first: str) -> None:
    agent = _agent(argv=(), function=Function(code=b"f"))
    agent.on_offer(Offer(1, 0, 0, 0, None, [Call(b"", ("b7",))]))
    (held,) = agent.wants()
    assert agent.fetches() == ["b7"]
    steps: list[Callable[[], None]] = [lambda: agent.on_value("b7", b"7", 1), lambda: _bring(agent, held)]
    for step in steps if first == "values" else reversed(steps):
        assert _launched(agent) == []
        step()
    (launch,) = agent.launches()
    assert (launch.inputs, launch.links) == ({"b7": b"7"}, [("/cache/x", "x")])


def test_values_that_are_gone_end_an_attempt_whose_files_come_later() -> None:
    agent = _agent(argv=(), function=Function(code=b"f"))
    agent.on_offer(Offer(1, 0, 0, 0, None, [Call(b"", ("b7",))]))
    agent.wants()
    (report,) = agent.fail_staging(agent.on_value_gone("b7"), "gone", 9.0, "ENOENT")
    assert (report.end, report.errno) == (End.INTERRUPTED, "ENOENT")
    assert agent.take_unwanted() == [0]
    assert not agent.on_brought(0, [])
    assert agent.on_unbrought(0, DOWN, 9.0) == []
    assert (_launched(agent), list(agent.owed)) == ([], [0])


@pytest.mark.parametrize("how", ["cancelled", "taken back", "drained", "paused", "dropped", "shrunk"])
def test_attempt_that_waits_for_files_is_given_back_and_lets_go_of_them(how: str) -> None:
    agent = _agent()
    _offer(agent, 0, 1)
    agent.wants()
    if how == "cancelled":
        assert agent.on_cancel([0, 1]) == ([], [0, 1])
    elif how == "taken back":
        assert agent.on_take_back([0, 1]) == [0, 1]
    elif how == "drained":
        assert agent.drain() == [0, 1]
    elif how == "paused":
        assert agent.pause() == [0, 1]
    elif how == "dropped":
        assert agent.on_welcome([0, 1]) == []
    else:
        assert agent.set_capacity(Needs(500, 0)) == [0, 1]
    assert agent.take_unwanted() == [0, 1]
    assert agent.take_unwanted() == []
    assert not agent.on_brought(0, [("/cache/x", "x")])
    assert agent.on_unbrought(1, DOWN, 9.0) == []
    assert (agent.held(), _launched(agent), agent.idle) == ([], [], True)


def test_attempt_that_is_given_back_before_anybody_began_to_bring_is_not_brought() -> None:
    agent = _agent()
    _offer(agent, 0, 1)
    agent.on_take_back([0])
    assert [held.attempt for held in agent.wants()] == [1]


def test_less_capacity_leaves_those_that_still_fit() -> None:
    agent = _agent()
    _offer(agent)
    agent.wants()
    assert agent.set_capacity(Needs(1000, 0)) == []
    assert agent.take_unwanted() == []
    assert agent.on_brought(0, [])


def test_what_cannot_be_brought_is_reported_and_nothing_of_it_stays() -> None:
    agent = _agent()
    _offer(agent)
    agent.wants()
    hitch = Hitch(Stage.STAGE_IN, Trouble.DOWN, "https://s/", "no answer")
    (report,) = agent.on_unbrought(0, hitch, 9.0)
    assert (report.end, report.hitch, report.note) == (End.UNSTAGED, hitch, "no answer")
    assert agent.held() == [Held(1, 0, 0, True, True)]
    assert agent.take_unwanted() == [0]
    agent.on_ack([0])
    assert (agent.held(), agent.idle) == ([], True)


def test_pins_of_an_attempt_end_with_it_and_not_before() -> None:
    agent = _agent(outputs=())
    _offer(agent)
    _bring(agent)
    _launched(agent)
    assert agent.take_unwanted() == []
    (report,) = agent.on_ended([_ran(0, gathered=())])
    assert (report.files, agent.take_unwanted()) == ((), [0])


def test_attempt_that_comes_back_from_its_lane_keeps_its_files() -> None:
    agent = _agent(cpus=1, outputs=())
    _offer(agent, 0, 2)
    _bring(agent)
    _launched(agent)
    agent.on_ended([msgspec.structs.replace(_ran(0), wall_s=0.001)])
    assert agent.take_unwanted() == [0]
    assert _launched(agent) == [1, 2]
    assert agent.stuck([1]) == [2]
    assert agent.on_ended([Report(1, 2, 2, End.INTERRUPTED, 0, 0.0, 0.0, 0.0, 0)]) == []
    assert agent.take_unwanted() == []
    agent.on_ended([_ran(1)])
    (launch,) = agent.launches()
    assert (launch.attempt, launch.links) == (2, [("/cache/x", "x")])


# -- undoing ----------------------------------------------------------------------------------------------


def test_what_is_to_be_undone_is_the_next_attempts_and_it_waits_for_that() -> None:
    agent = _agent(inputs=(), outputs=())
    agent.on_undo(1, 3, ["https://s/r/3"], [])
    _offer(agent, 2, 3)
    (held,) = agent.wants()
    assert (held.attempt, held.undo, _launched(agent)) == (3, ["https://s/r/3"], [2])
    _bring(agent, held)
    assert _launched(agent) == [3]
    _offer(agent, 3, 3)
    assert agent.wants() == [], "it is undone once"


def test_what_is_to_be_undone_may_be_told_in_pieces() -> None:
    agent = _agent()
    agent.on_undo(1, 0, ["https://s/r/0"], [4, 5])
    agent.on_undo(1, 0, ["https://s/r/1"], [4, 5])
    _offer(agent)
    (held,) = agent.wants()
    assert (held.undo, held.lost) == (["https://s/r/0", "https://s/r/1"], [4, 5])


def test_undoing_stops_when_the_attempt_is_given_back() -> None:
    """Somebody else runs it next: what that delivers must not be removed by who was late."""
    agent = _agent(inputs=())
    agent.on_undo(1, 0, ["https://s/r/0"], [])
    _offer(agent)
    agent.wants()
    assert agent.on_take_back([0]) == [0]
    assert agent.take_unwanted() == [0]


@pytest.mark.parametrize("how", ["draining", "paused", "too large", "new link"])
def test_what_was_to_be_undone_for_an_offer_that_is_not_taken_is_forgotten(how: str) -> None:
    agent = _agent(inputs=())
    agent.on_undo(1, 0, ["https://s/r/0"], [])
    if how == "draining":
        agent.drain()
    elif how == "paused":
        agent.pause()
    elif how == "too large":
        agent.set_capacity(Needs(500, 0))
    else:
        agent.on_welcome([])
        agent.on_brief(Brief(1, Program(argv=("true",), outputs=LEAVES), Needs(1000, 0)))
    if how != "new link":
        assert _offer(agent) == [0]
    agent.draining = False
    agent.resume()
    agent.set_capacity(Needs(8000, 0))
    agent.on_offer(Offer(1, 0, 0, 50))
    (held,) = agent.wants()
    assert held.undo == []


# -- delivering -------------------------------------------------------------------------------------------


def test_end_is_reported_when_its_files_are_delivered_and_not_before() -> None:
    agent = _agent()
    _left(agent)
    assert (agent.owed, agent.idle) == ({}, False)
    assert agent.held() == [Held(1, 0, 0, True, False)]
    assert agent.on_cancel([5]) == ([], [5])
    (report,) = agent.on_delivered(0, MADE)
    assert (report.end, report.files, report.gathered) == (End.EXITED, MADE, ())
    assert agent.held() == [Held(1, 0, 0, True, True)]
    assert agent.idle
    assert agent.on_delivered(0, MADE) == [], "it is reported once"


@pytest.mark.parametrize("end", [End.SIGNALLED, End.TIMED_OUT, End.EXCEEDED])
def test_every_end_of_its_own_is_delivered(end: End) -> None:
    assert _left(_agent(), end=end, code=9).end is end


@pytest.mark.parametrize(
    "fields",
    [
        {"end": End.CANCELLED},
        {"end": End.INTERRUPTED},
        {"end": End.REFUSED, "gathered": ()},
        {"end": End.UNSTAGED, "hitch": NEVER},
    ],
)
def test_other_ends_are_reported_at_once_and_what_they_left_may_go(fields: dict[str, Any]) -> None:
    agent = _agent()
    _offer(agent)
    _bring(agent)
    _launched(agent)
    (report,) = agent.on_ended([_ran(0, **fields)])
    assert (report.gathered, agent.take_left()) == ((), [])
    assert agent.take_undelivered() == [0]
    assert agent.take_undelivered() == []


def test_nobody_delivers_what_an_attempt_left_that_was_dropped() -> None:
    agent = _agent()
    _offer(agent)
    _bring(agent)
    _launched(agent)
    assert agent.on_welcome([0]) == [0]
    assert agent.on_ended([_ran(0)]) == []
    assert (agent.take_left(), agent.take_undelivered(), agent.idle) == ([], [0], True)


def test_who_leaves_nothing_is_reported_at_once() -> None:
    agent = _agent(outputs=())
    _offer(agent)
    _bring(agent)
    _launched(agent)
    assert len(agent.on_ended([_ran(0, gathered=())])) == 1
    assert agent.take_undelivered() == []


def test_hitch_that_passes_parks_and_another_does_not() -> None:
    agent = _agent()
    _left(agent, 0)
    _left(agent, 1)
    (report,) = agent.on_undelivered(0, DOWN)
    assert (report.end, report.hitch, report.gathered) == (End.UNSTAGED, DOWN, ())
    (report,) = agent.on_undelivered(1, NEVER)
    assert (report.end, report.hitch) == (End.UNSTAGED, NEVER)
    assert list(agent.parcels.parked) == [0]
    assert agent.idle, "what is parked waits for others"
    assert agent.held() == [Held(1, 0, 0, True, True), Held(1, 1, 1, True, True)]
    agent.on_ack([0, 1])
    assert agent.held() == [Held(1, 0, 0, True, False, True)]


def test_parked_attempt_goes_on_and_its_real_end_is_reported_then() -> None:
    agent = _agent()
    _left(agent, code=3)
    agent.on_undelivered(0, DOWN)
    agent.on_ack([0])
    (going,) = agent.parcels.resume([0, 77])
    assert (going.end, going.code, going.gathered) == (End.EXITED, 3, (("r.txt", 3),))
    assert agent.parcels.resume([0]) == [], "it goes on once, however often that is said"
    assert not agent.idle
    (report,) = agent.on_delivered(0, MADE)
    assert (report.end, report.code, report.files) == (End.EXITED, 3, MADE)
    assert 0 not in agent.parcels


def test_what_this_node_lost_is_run_again() -> None:
    agent = _agent()
    _left(agent, value=Said(1, 1, b"x"))
    (report,) = agent.on_spoilt(0, "r.txt is gone", "ENOENT")
    assert (report.end, report.errno, report.note) == (End.INTERRUPTED, "ENOENT", "r.txt is gone")
    assert (report.value, report.gathered) == (None, ())
    assert 0 not in agent.parcels
    assert agent.on_spoilt(0, "", "EIO") == []


def test_report_that_cannot_be_registered_yet_is_parked_and_told_again() -> None:
    agent = _agent()
    _left(agent)
    agent.on_delivered(0, MADE)
    agent.on_park([0, 5])
    assert (agent.owed, list(agent.parcels.parked)) == ({}, [0])
    (going,) = agent.parcels.resume([0])
    assert going.files == MADE, "if nothing of it is here any more, that is still where it is"


@pytest.mark.parametrize("where", ["under way", "parked"])
@pytest.mark.parametrize("tell", [True, False])
def test_parcel_that_nobody_wants_is_dropped(where: str, tell: bool) -> None:
    agent = _agent()
    _left(agent)
    if where == "parked":
        agent.on_undelivered(0, DOWN)
        agent.on_ack([0])
    gone, owed = agent.drop_parcels([0, 5], tell=tell)
    assert (gone, 0 in agent.parcels) == ([0], False)
    if tell and where == "under way":
        assert [(r.end, r.code, r.started_at, r.gathered) for r in owed] == [(End.CANCELLED, 0, 5.0, ())]
    else:
        assert owed == []
    assert agent.on_delivered(0, MADE) == []
    assert agent.on_undelivered(0, DOWN) == []


def test_attempt_that_is_being_delivered_is_here_and_cannot_be_given_back() -> None:
    agent = _agent()
    _left(agent)
    assert agent.on_take_back([0]) == []
    assert agent.drain() == []
    assert not agent.idle
    agent.on_undelivered(0, DOWN)
    agent.on_ack([0])
    assert agent.on_take_back([0]) == []


# -- after a restart --------------------------------------------------------------------------------------

PARCEL = _ran(0)
SPOOLED = {
    "none": [],
    "delivered": [msgspec.structs.replace(PARCEL, files=MADE, gathered=())],
    "waits": [msgspec.structs.replace(PARCEL, end=End.UNSTAGED, hitch=DOWN, gathered=())],
    "never": [msgspec.structs.replace(PARCEL, end=End.UNSTAGED, hitch=NEVER, gathered=())],
}


@pytest.mark.parametrize("spooled", list(SPOOLED))
@pytest.mark.parametrize("parcel", [True, False])
def test_after_a_restart_all_that_is_known_is_told_and_only_what_waits_is_parked(
    spooled: str, parcel: bool
) -> None:
    agent = Agent(Needs(1000, 0))
    agent.restore(SPOOLED[spooled], [PARCEL] if parcel else [])
    assert list(agent.owed.values()) == SPOOLED[spooled]
    assert (0 in agent.parcels) is (parcel and spooled in ("none", "waits"))
    expected = {
        (True, True): [Held(1, 0, 0, True, True)],
        (True, False): [Held(1, 0, 0, True, True)],
        (False, True): [Held(1, 0, 0, True, False, True)],
        (False, False): [],
    }
    assert agent.held() == expected[spooled != "none", parcel]
    assert agent.idle
    agent.on_ack([0])
    assert agent.held() == ([Held(1, 0, 0, True, False, True)] if 0 in agent.parcels else [])


def test_attempt_that_is_reported_once_more_is_owed_once() -> None:
    """Or a worker whose attempts are parked often would start nothing any more."""
    debts = Debts()
    for _ in range(2):
        debts.add(msgspec.structs.replace(PARCEL, out=Said(2**26, 2**26, bytes(2**26))))
    debts.forget([0])
    assert not debts.owed
    assert not debts.clogged
    debts.add(PARCEL)
    assert not debts.clogged
