"""Calls and the values that they refer to: who waits for what, what is asked for, what may go."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.errors import PeerError
from tercel.core.model import Call, Function, Needs, Program
from tercel.core.reports import End, Report
from tercel.wire.messages import Brief, Offer
from tercel.worker import held, staging
from tercel.worker.agent import Agent
from tercel.worker.staging import Staging


def _agent(cpus: int = 8, function: Function = Function(code=b"f")) -> Agent:  # noqa: B008
    """Knows job 1, of a function, and job 2, of a command."""
    agent = Agent(Needs(1000 * cpus, 0))
    agent.on_brief(Brief(1, Program(function=function), Needs()))
    agent.on_brief(Brief(2, Program(argv=("true",)), Needs()))
    return agent


def _offer(agent: Agent, *values: tuple[str, ...], first: int = 0) -> list[int]:
    calls = [Call(b"args", keys) for keys in values]
    return agent.on_offer(Offer(1, first, first + len(calls) - 1, first, None, calls))


def _launched(agent: Agent) -> list[int]:
    return [launch.attempt for launch in agent.launches()]


def _ended(agent: Agent, attempt: int) -> None:
    agent.on_ended([Report(1, attempt, attempt, End.EXITED, 0, 1.0, 1.0, 0.0, 0)])


# -- waiting for values -----------------------------------------------------------------------------------


def test_call_without_values_is_launched_with_its_arguments() -> None:
    agent = _agent()
    _offer(agent, ())
    (launch,) = agent.launches()
    assert launch.call == Call(b"args")
    assert launch.inputs == {}
    assert launch.program.function == Function(code=b"f")


def test_call_waits_for_its_values_and_blocks_nobody() -> None:
    agent = _agent()
    _offer(agent, ("t3.1", "b7"), ())
    agent.on_offer(Offer(2, 9, 9, 9))
    assert _launched(agent) == [1, 9]
    assert agent.fetches() == ["t3.1", "b7"]
    agent.on_value("b7", b"seven", 5)
    assert _launched(agent) == []
    agent.on_value("t3.1", "/a/file", 100_000)
    (launch,) = agent.launches()
    assert (launch.attempt, launch.inputs) == (0, {"t3.1": "/a/file", "b7": b"seven"})


def test_each_value_is_asked_for_once_however_many_need_it() -> None:
    agent = _agent()
    _offer(agent, ("b7",), ("b7", "b8"))
    assert agent.fetches() == ["b7", "b8"]
    _offer(agent, ("b8", "b8"), first=2)
    assert agent.fetches() == []
    agent.on_value("b8", b"", 0)
    agent.on_value("b7", b"", 0)
    assert _launched(agent) == [2, 0, 1]
    _offer(agent, ("b7",), first=3)
    assert agent.fetches() == []
    assert _launched(agent) == [3]


def test_large_function_is_a_value_of_each_of_its_calls() -> None:
    agent = _agent(function=Function(value="bf"))
    _offer(agent, (), ("b7",))
    assert agent.fetches() == ["bf", "b7"]
    agent.on_value("bf", "/f", 10)
    assert [(launch.attempt, launch.inputs) for launch in agent.launches()] == [(0, {"bf": "/f"})]
    agent.on_value("b7", b"7", 1)
    assert [launch.inputs for launch in agent.launches()] == [{"bf": "/f", "b7": b"7"}]


@pytest.mark.parametrize("how", ["cancelled", "taken back", "drained", "dropped"])
def test_attempt_that_waits_for_values_is_given_back_at_once(how: str) -> None:
    agent = _agent()
    _offer(agent, ("b7",), ("b8",))
    agent.fetches()
    if how == "cancelled":
        assert agent.on_cancel([0]) == ([], [0])
    elif how == "taken back":
        assert agent.on_take_back([0]) == [0]
    elif how == "dropped":
        assert agent.on_welcome([0]) == []
    else:
        assert agent.drain() == [0, 1]
    assert not agent.awaits("b7")
    assert agent.awaits("b8") is (how != "drained")
    agent.on_value("b7", b"", 0)
    assert _launched(agent) == []
    assert 0 not in {held.attempt for held in agent.held()}


def test_attempt_that_waits_for_values_is_held_but_not_started() -> None:
    agent = _agent()
    _offer(agent, ("b7",))
    assert [(held.attempt, held.started, held.ended) for held in agent.held()] == [(0, False, False)]
    assert not agent.idle


def test_value_that_is_not_needed_before_it_was_asked_for_is_not_asked_for() -> None:
    agent = _agent()
    _offer(agent, ("b7",))
    agent.on_take_back([0])
    assert agent.fetches() == []
    _offer(agent, ("b7",), first=1)
    assert agent.fetches() == ["b7"]


def test_attempts_whose_value_is_gone_end_as_interrupted_unless_somebody_was_quicker() -> None:
    agent = _agent()
    _offer(agent, ("b7",), ("b7", "b8"), ("b8",), ("b7",))
    agent.fetches()
    attempts = agent.on_value_gone("b7")
    assert attempts == [0, 1, 3]
    assert agent.on_take_back([3]) == [3]
    reports = agent.fail_staging(attempts, "gone", 77.0)
    assert [(r.attempt, r.end, r.started_at, r.note) for r in reports] == [
        (0, End.INTERRUPTED, 77.0, "gone"),
        (1, End.INTERRUPTED, 77.0, "gone"),
    ]
    assert list(agent.owed) == [0, 1]
    assert [held.attempt for held in agent.held() if not held.ended] == [2]
    _offer(agent, ("b7",), first=10)
    assert agent.fetches() == ["b7"], "who needs it later asks anew"


def test_value_that_had_to_go_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MEMORY_BYTES", 0)
    agent = _agent(cpus=1)
    _offer(agent, ("b7",))
    agent.on_value("b7", b"7", 1)
    agent.launches()
    _ended(agent, 0)
    assert not agent.awaits("b7")
    _offer(agent, ("b7",), first=1)
    assert agent.fetches() == ["b7"], "there was no room for it when nobody needed it"


@pytest.mark.parametrize(
    "offer",
    [
        Offer(1, 0, 0, 0),
        Offer(1, 0, 1, 0, None, [Call(b"")]),
        Offer(2, 0, 0, 0, None, [Call(b"")]),
        Offer(1, 0, 0, 0, ["a line"]),
    ],
)
def test_offer_that_does_not_fit_its_brief_is_the_managers_fault(offer: Offer) -> None:
    agent = _agent()
    with pytest.raises(PeerError):
        agent.on_offer(offer)
    assert agent.idle


def test_more_short_calls_than_commands_wait_in_a_lane() -> None:
    agent = _agent(cpus=1)
    _offer(agent, ())
    agent.launches()
    agent.on_ended([Report(1, 0, 0, End.EXITED, 0, 1.0, 1e-5, 0.0, 0)])
    _offer(agent, *[()] * 2000, first=1)
    assert len(agent.launches()) == 1 + held.CALLS_AHEAD_MOST


# -- what may go ------------------------------------------------------------------------------------------


def test_what_is_needed_stays_and_of_the_rest_what_was_used_last() -> None:
    values = Staging(20)
    for attempt, key in enumerate(["a", "b", "c"]):
        assert not values.need(attempt, [key])
        values.arrived(key, f"/{key}", 10)
    assert values.take_dropped() == [], "all are needed"
    values.release(1, ["b"])
    assert values.take_dropped() == ["/b"]
    values.release(2, ["c"])
    values.release(0, ["a"])
    assert values.need(4, ["c"])
    values.release(4, ["c"])
    assert not values.need(5, ["d"])
    values.arrived("d", "/d", 10)
    assert values.take_dropped() == ["/a"], "c was used after it"


def test_what_a_task_returned_goes_with_the_last_that_needs_it() -> None:
    """It may be computed again, and be another value under the same key."""
    values = Staging()
    values.need(1, ["t3.1", "t3.2", "b7"])
    values.need(2, ["t3.2"])
    values.arrived("t3.1", b"1", 1)
    values.arrived("t3.2", "/2", 1)
    values.arrived("b7", b"7", 1)
    values.release(1, ["t3.1", "t3.2", "b7"])
    assert values.take_dropped() == []
    values.release(2, ["t3.2"])
    assert values.take_dropped() == ["/2"]
    assert values.need(3, ["b7"])
    assert not values.need(4, ["t3.1"])


def test_memory_and_disk_have_limits_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MEMORY_BYTES", 3)
    values = Staging()
    values.need(1, ["a", "b"])
    values.arrived("a", b"aaaa", 4)
    values.arrived("b", "/b", 1000)
    values.release(1, ["a", "b"])
    assert values.take_dropped() == []
    assert values.need(2, ["b"])
    assert not values.need(3, ["a"])


def test_values_in_files_are_told_when_they_come_and_when_they_go() -> None:
    values = Staging(15)
    values.need(1, ["a", "b", "c"])
    values.arrived("a", "/a", 10)
    values.arrived("b", b"small", 5)
    values.arrived("c", "/c", 12)
    assert values.take_news() == ([("a", 10), ("c", 12)], [])
    assert values.take_news() is None
    values.release(1, ["a", "b", "c"])
    assert values.take_news() == ([], ["a"])
    assert values.kept() == [("c", 12)]


def test_what_is_told_in_full_is_no_news_any_more() -> None:
    values = Staging()
    values.need(1, ["a"])
    values.arrived("a", "/a", 10)
    assert values.kept() == [("a", 10)]
    assert values.take_news() is None


def test_nothing_stays_where_nothing_may() -> None:
    values = Staging(0)
    values.need(1, ["a"])
    values.arrived("a", "/a", 10)
    values.release(1, ["a"])
    assert values.take_dropped() == ["/a"]
    assert values.kept() == []


KEYS = st.sampled_from(["a", "b", "c", "t1", "t2", "t3"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("need"), st.sets(KEYS, min_size=1)),
        st.tuples(st.just("release"), st.integers(0, 30)),
        st.tuples(st.just("arrived"), KEYS, st.booleans()),
        st.tuples(st.just("gone"), KEYS),
    ),
    max_size=60,
)


@pytest.fixture
def little_room() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "MEMORY_BYTES", 2)
        yield


@pytest.mark.usefixtures("little_room")
@given(STEPS)
def test_no_attempt_is_forgotten_and_no_needed_value_goes(steps: list[tuple[object, ...]]) -> None:
    """Against books that are kept the slow way: who needs what, what was asked for."""
    values = Staging(2)
    told: dict[str, int] = {}
    needs: dict[int, set[str]] = {}
    ready: set[int] = set()
    lost: set[int] = set()
    asked: set[str] = set()
    paths: dict[str, str] = {}
    for number, (what, subject, *rest) in enumerate(steps):
        if what == "need":
            needs[number] = set(subject)  # type: ignore[call-overload]
            if values.need(number, sorted(needs[number])):
                ready.add(number)
        elif what == "release" and needs:
            attempt = sorted(needs)[int(subject) % len(needs)]  # type: ignore[call-overload]
            values.release(attempt, sorted(needs.pop(attempt)))
            ready.discard(attempt)
            lost.discard(attempt)
        elif what == "arrived" and subject in asked:
            place = f"/{subject}{number}" if rest[0] else b"x"
            if isinstance(place, str):
                paths[place] = str(subject)
            ready |= set(values.arrived(str(subject), place, 1))
            asked.discard(str(subject))
        elif what == "gone" and subject in asked:
            lost |= set(values.gone(str(subject)))
            asked.discard(str(subject))
        asked = {key for key in asked if values.awaits(key)}
        new = values.take_new()
        assert asked.isdisjoint(new), "asked for once"
        asked |= set(new)
        came, went = values.take_news() or ([], [])
        told.update(came)
        for key in went:
            told.pop(key, None)
        assert told == dict(values.kept()), "what the manager was told is what is kept"
        for path in values.take_dropped():
            assert all(paths[path] not in needs[attempt] for attempt in needs), "still needed"
        for attempt, keys in needs.items():
            if attempt in ready:
                assert values.inputs(keys).keys() == keys
            elif attempt not in lost:
                assert any(values.awaits(key) for key in keys), "it waits for nothing"
