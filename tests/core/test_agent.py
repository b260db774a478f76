"""The worker's bookkeeping: rooms, lanes, debts; first by example, then against random histories."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tercel.core.errors import PeerError
from tercel.core.model import Call, Needs, Program
from tercel.core.presence import Held
from tercel.core.reports import End, Output, Report
from tercel.runners.contract import Launch
from tercel.wire.messages import Brief, Offer, Scattered
from tercel.worker import debts, lanes
from tercel.worker.agent import Agent

TWO_CPUS = Needs(2000, 1000)


def _agent(capacity: Needs = TWO_CPUS, **jobs: Needs) -> Agent:
    """Knows job 1, and others as `job2=Needs(…)`."""
    agent = Agent(capacity)
    for name, needs in {"job1": Needs(), **jobs}.items():
        agent.on_brief(Brief(int(name[3:]), Program(argv=("true",)), needs))
    return agent


def _report(attempt: int, job: int = 1, **fields: Any) -> Report:
    values: dict[str, Any] = {"end": End.EXITED, "code": 0, "started_at": 1.0, "wall_s": 1.0}
    return Report(job=job, task=attempt, attempt=attempt, cpu_s=0.0, max_rss_bytes=0, **(values | fields))


def _withdrawn(attempt: int) -> Report:
    return _report(attempt, end=End.INTERRUPTED, started_at=0.0, wall_s=0.0)


def _attempts(launches: list[Launch]) -> list[int]:
    return [launch.attempt for launch in launches]


def _lanes(launches: list[Launch]) -> dict[int, list[int]]:
    lanes: dict[int, list[int]] = {}
    for launch in launches:
        lanes.setdefault(launch.lane, []).append(launch.attempt)
    return lanes


def _short_job(agent: Agent) -> None:
    """Job 1 is known to have tasks of 10 ms: four more may wait in a lane."""
    agent.on_offer(Offer(1, 0, 0, 0))
    agent.launches()
    agent.on_ended([_report(0, wall_s=0.0101)])
    agent.on_ack([0])


# -- rooms and lanes ----------------------------------------------------------------------------------


def test_as_many_run_as_there_are_cpus() -> None:
    agent = _agent()
    assert agent.on_offer(Offer(1, 10, 14, 10)) == []
    assert _lanes(agent.launches()) == {0: [10], 1: [11]}
    assert agent.launches() == []
    agent.on_ended([_report(10)])
    assert _lanes(agent.launches()) == {0: [12]}
    assert agent.running_count == 2


def test_tasks_that_are_no_neighbours_come_in_one_offer() -> None:
    agent = _agent()
    assert agent.on_offer(Scattered(1, [3, 7, 8], 10, ["a", "b", "c"])) == []
    assert [(one.task, one.attempt, one.line) for one in agent.launches()] == [(3, 10, "a"), (7, 11, "b")]
    assert agent.drain() == [12]
    assert agent.on_offer(Scattered(1, [20, 22], 13)) == [13, 14]


@pytest.mark.parametrize(
    "offer",
    [
        Offer(1, 5, 4, 10),
        Offer(1, 0, 1, 10, ["only one"]),
        Scattered(1, [], 10),
        Scattered(1, [1, 3], 10, ["only one"]),
        Scattered(1, [1, 3], 10, None, [Call(b"")] * 3),
        Scattered(2, [1], 10),
    ],
)
def test_an_offer_that_cannot_be_is_refused(offer: Offer | Scattered) -> None:
    with pytest.raises(PeerError, match=f"the manager offered tasks of job {offer.job} with"):
        _agent().on_offer(offer)


def test_memory_counts_as_cpus_do() -> None:
    agent = _agent(job1=Needs(100, 600))
    agent.on_offer(Offer(1, 0, 1, 0))
    assert _attempts(agent.launches()) == [0]


def test_a_task_larger_than_the_worker_runs_alone() -> None:
    agent = _agent(job2=Needs(5000, 10**9))
    agent.on_offer(Offer(1, 0, 0, 0))
    agent.on_offer(Offer(2, 0, 0, 50))
    assert _attempts(agent.launches()) == [0]
    agent.on_ended([_report(0)])
    assert _attempts(agent.launches()) == [50]


def test_a_large_task_at_the_head_is_not_starved_by_small_ones_behind_it() -> None:
    agent = _agent(job2=Needs(2000, 0))
    agent.on_offer(Offer(1, 0, 0, 0))
    agent.on_offer(Offer(2, 0, 0, 50))
    agent.on_offer(Offer(1, 1, 3, 1))
    assert _attempts(agent.launches()) == [0]
    agent.on_ended([_report(0)])
    assert _attempts(agent.launches()) == [50]
    agent.on_ended([_report(50, job=2)])
    assert _attempts(agent.launches()) == [1, 2]


def test_short_tasks_wait_inside_lanes_evenly() -> None:
    agent = _agent()
    _short_job(agent)
    agent.on_offer(Offer(1, 10, 30, 10))
    assert sorted(len(line) for line in _lanes(agent.launches()).values()) == [5, 5]


def test_short_tasks_of_a_job_whose_lane_was_lost_run_one_by_one() -> None:
    """One of them may have killed its spawner: the next time it is clear which."""
    agent = _agent()
    _short_job(agent)
    agent.on_offer(Offer(1, 10, 13, 10))
    lost = _attempts(agent.launches())
    assert lost == [10, 11, 12, 13]
    agent.on_ended([_report(attempt, end=End.INTERRUPTED) for attempt in lost])
    agent.on_offer(Offer(1, 10, 13, 20))
    assert sorted(_lanes(agent.launches()).values()) == [[20], [21]]


def test_tasks_of_unknown_or_long_duration_do_not_wait_inside_lanes() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 9, 0))
    assert len(agent.launches()) == 2
    agent.on_ended([_report(0, wall_s=0.06)])
    assert len(agent.launches()) == 1


def test_a_lane_is_refilled_in_one_go_when_half_of_it_is_used_up() -> None:
    agent = _agent(Needs(1000, 0))
    _short_job(agent)
    agent.on_offer(Offer(1, 10, 40, 10))
    assert _attempts(agent.launches()) == [10, 11, 12, 13, 14]
    for attempt in (10, 11):
        agent.on_ended([_report(attempt, wall_s=0.0101)])
        assert agent.launches() == []
    agent.on_ended([_report(12, wall_s=0.0101)])
    assert _attempts(agent.launches()) == [15, 16, 17]


def test_a_lane_takes_nothing_of_another_job() -> None:
    agent = _agent(Needs(1000, 0), job2=Needs())
    _short_job(agent)
    agent.on_offer(Offer(1, 1, 2, 1))
    agent.on_offer(Offer(2, 0, 0, 50))
    agent.on_offer(Offer(1, 3, 3, 3))
    assert _attempts(agent.launches()) == [1, 2]


def test_there_are_never_more_lanes_than_processes_are_good_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LANES_MOST", 7)
    agent = _agent(Needs(1000, 0), job1=Needs(1, 0))
    agent.on_offer(Offer(1, 0, 99, 0))
    assert len(agent.launches()) == 7


def test_lane_numbers_are_used_again() -> None:
    agent = _agent()
    for first in range(0, 20, 2):
        agent.on_offer(Offer(1, first, first + 1, first))
        assert set(_lanes(agent.launches())) == {0, 1}
        agent.on_ended([_report(first), _report(first + 1)])


# -- lanes that turn out to be slow -------------------------------------------------------------------


def _one_lane_with_five() -> Agent:
    agent = _agent(Needs(1000, 0))
    _short_job(agent)
    agent.on_offer(Offer(1, 10, 14, 10))
    assert len(agent.launches()) == 5
    return agent


def test_what_waits_behind_one_that_lasts_is_withdrawn_and_keeps_its_place() -> None:
    agent = _one_lane_with_five()
    agent.on_offer(Offer(1, 15, 15, 15))
    assert agent.on_started([10]) == [10]
    assert agent.stuck([10]) == [11, 12, 13, 14]
    assert agent.stuck([10]) == []
    assert agent.on_ended([_withdrawn(attempt) for attempt in (11, 12, 13, 14)]) == []
    assert agent.launches() == [], "nothing is put behind it again"
    assert [h.started for h in agent.held()] == [True, False, False, False, False, False]
    agent.on_ended([_report(10, wall_s=0.0101)])
    assert _attempts(agent.launches()) == [11, 12, 13, 14, 15]


def test_one_that_began_before_it_could_be_withdrawn_is_reported_as_usual() -> None:
    agent = _one_lane_with_five()
    agent.on_started([10])
    agent.stuck([10])
    assert agent.on_ended([_report(10), _report(11)]) == [_report(10), _report(11)]


def test_one_that_was_interrupted_after_it_began_is_reported() -> None:
    agent = _one_lane_with_five()
    agent.stuck([10])
    interrupted = _report(11, end=End.INTERRUPTED)
    assert agent.on_ended([interrupted]) == [interrupted]


@pytest.mark.parametrize("how", ["cancelled", "taken back", "draining"])
def test_one_that_is_withdrawn_but_no_longer_wanted_here_is_reported_not_kept(how: str) -> None:
    agent = _one_lane_with_five()
    agent.stuck([10])
    if how == "cancelled":
        assert agent.on_cancel([11]) == ([11], [])
    elif how == "taken back":
        assert agent.on_take_back([11]) == []
    else:
        assert agent.drain() == []
    assert agent.on_ended([_withdrawn(11)]) == [_withdrawn(11)]
    assert 11 not in {launch.attempt for launch in agent.launches()}


def test_one_that_was_dropped_while_withdrawn_is_gone() -> None:
    agent = _one_lane_with_five()
    agent.stuck([10])
    assert agent.on_welcome([11]) == [11]
    assert agent.on_ended([_withdrawn(11)]) == []
    assert 11 not in {held.attempt for held in agent.held()}


# -- the manager's words ------------------------------------------------------------------------------


def test_an_offer_of_what_is_held_or_owed_already_changes_nothing() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 2, 0))
    agent.launches()
    agent.on_ended([_report(0)])
    agent.on_offer(Offer(1, 0, 2, 0))
    assert _attempts(agent.launches()) == [2]
    agent.on_ended([_report(1), _report(2)])
    assert agent.launches() == []


@pytest.mark.parametrize(
    "offer", [Offer(9, 0, 0, 0), Offer(1, 5, 4, 0), Offer(1, 0, 1, 0, ["one line"]), Offer(1, 0, 0, 0, [])]
)
def test_an_offer_that_makes_no_sense_is_the_managers_fault_and_changes_nothing(offer: Offer) -> None:
    agent = _agent()
    with pytest.raises(PeerError):
        agent.on_offer(offer)
    assert agent.idle


def test_take_back_gives_only_what_was_not_launched() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 4, 0))
    agent.launches()
    assert agent.on_take_back([1, 2, 4, 77]) == [2, 4, 77], "77 never came: it is not here either"
    assert [held.attempt for held in agent.held()] == [0, 1, 3]


def test_cancel_tells_what_to_kill_and_what_never_started() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 3, 0))
    agent.launches()
    assert agent.on_cancel([1, 3, 77]) == ([1], [3, 77])
    assert agent.on_ended([_report(1, end=End.CANCELLED)])


def test_draining_gives_back_the_queue_and_takes_nothing_more() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 4, 0))
    agent.launches()
    assert agent.drain() == [2, 3, 4]
    assert agent.on_offer(Offer(1, 5, 6, 5)) == [5, 6]
    assert agent.on_offer(Offer(99, 0, 0, 8)) == [8]
    assert agent.launches() == []
    agent.on_ended([_report(0), _report(1)])
    assert agent.idle
    assert list(agent.owed) == [0, 1]


def test_a_brief_is_kept_as_long_as_anything_of_its_job_is_held() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 2, 0))
    agent.launches()
    agent.on_forget(1)
    agent.on_ended([_report(0)])
    assert _attempts(agent.launches()) == [2]
    agent.on_ended([_report(1), _report(2)])
    with pytest.raises(PeerError):
        agent.on_offer(Offer(1, 3, 3, 3))


def test_a_new_link_begins_without_briefs_but_for_what_is_held() -> None:
    agent = _agent(job2=Needs())
    agent.on_offer(Offer(1, 0, 2, 0))
    agent.launches()
    agent.on_welcome([])
    agent.on_ended([_report(0)])
    assert _attempts(agent.launches()) == [2]
    with pytest.raises(PeerError):
        agent.on_offer(Offer(2, 0, 0, 50))


# -- debts --------------------------------------------------------------------------------------------


def test_hello_names_all_that_the_manager_may_believe_is_here() -> None:
    agent = _agent()
    agent.restore([_report(900, job=7)])
    agent.on_offer(Offer(1, 0, 3, 0))
    agent.launches()
    agent.on_ended([_report(0)])
    agent.on_welcome([1])
    assert agent.held() == [
        Held(1, 2, 2, False, False),
        Held(1, 3, 3, False, False),
        Held(7, 900, 900, True, True),
        Held(1, 0, 0, True, True),
    ]


def test_a_report_is_owed_until_it_is_acknowledged() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 0, 0))
    agent.launches()
    assert agent.on_ended([_report(0), _report(0), _report(55)]) == [_report(0)]
    agent.on_ack([0, 0, 55])
    assert agent.owed == {}


def test_what_is_dropped_is_killed_and_not_owed() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 4, 0))
    agent.launches()
    agent.on_ended([_report(0)])
    assert agent.on_welcome([0, 1, 3]) == [1]
    assert agent.on_ended([_report(1, end=End.CANCELLED)]) == []
    assert agent.owed == {}
    assert [held.attempt for held in agent.held()] == [2, 4]


def test_nothing_is_launched_while_too_much_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debts, "OWED_MOST_BYTES", 10_000)
    agent = _agent(Needs(1000, 0))
    agent.on_offer(Offer(1, 0, 9, 0))
    agent.launches()
    agent.on_ended([_report(0, out=Output(1, 1, bytes(6000)), err=Output(1, 1, bytes(6000)))])
    assert agent.clogged
    assert agent.launches() == []
    agent.on_ack([0])
    assert _attempts(agent.launches()) == [1]


def test_only_what_lasts_and_is_wanted_is_announced() -> None:
    agent = _agent()
    agent.on_offer(Offer(1, 0, 1, 0))
    agent.launches()
    agent.on_welcome([1])
    assert agent.on_started([0, 1, 55]) == [0]


# -- random histories ---------------------------------------------------------------------------------


class Histories(RuleBasedStateMachine):
    """Whatever happens in whatever order: nothing is lost, nothing runs twice, no room is overdrawn."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = Agent(Needs(3000, 3000, "", (("gpus", 2000),)), {"gpus": ("0", "1")})
        self.given = Needs(3000, 3000)
        self.next = 0
        self.offered: set[int] = set()
        self.returned: set[int] = set()
        self.running: dict[int, Launch] = {}
        self.dropped: set[int] = set()
        self.reported: set[int] = set()
        self.acked: set[int] = set()
        self.needs = {
            1: Needs(1000, 0),
            2: Needs(500, 1000),
            3: Needs(3000, 0),
            4: Needs(100, 0, "", (("gpus", 1000),)),
            5: Needs(100, 0, "", (("gpus", 400),)),
            6: Needs(1000, 500, "", (("gpus", 1000),)),
        }
        self.programs = {
            job: Program(argv=("true",), cleanup="clean" if job == 6 else "") for job in self.needs
        }
        self.uncleaned: dict[int, Launch] = {}
        """Attempts that have ended and are not cleaned up after: they still occupy their lanes."""
        self.cleaning: set[int] = set()

    @initialize()
    def brief(self) -> None:
        for job, needs in self.needs.items():
            self.agent.on_brief(Brief(job, self.programs[job], needs))

    @rule(job=st.integers(1, 6), count=st.integers(1, 12))
    def offer(self, job: int, count: int) -> None:
        self.agent.on_brief(Brief(job, self.programs[job], self.needs[job]))
        attempts = set(range(self.next, self.next + count))
        back = self.agent.on_offer(Offer(job, self.next, self.next + count - 1, self.next))
        self.next += count
        self.offered |= attempts
        self._give_back(back)

    @rule()
    def launch(self) -> None:
        before = self._occupied().keys()
        for launch in self.agent.launches():
            if launch.program.line:
                assert launch.attempt in self.uncleaned.keys() - self.cleaning
                assert launch.attempt in self.acked | self.dropped, "finished comes first"
                assert launch.lane == self.uncleaned[launch.attempt].lane
                self.cleaning.add(launch.attempt)
                continue
            assert not self.agent.paused
            assert launch.attempt not in self.running
            assert launch.attempt not in self.returned | self.reported | self.dropped
            self.running[launch.attempt] = launch
        after = self._occupied()
        if after.keys() - before and len(after) > 1:
            needs = [self.needs[launches[0].job] for launches in after.values()]
            assert sum(need.millicpus for need in needs) <= self.given.millicpus
            assert sum(need.mem_bytes for need in needs) <= self.given.mem_bytes

    def _some(self, data: st.DataObject, members: set[int]) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(members)), unique=True)) if members else []

    @rule(data=st.data(), wall_s=st.sampled_from([0.001, 0.02, 5.0]), end=st.sampled_from(list(End)))
    def end(self, data: st.DataObject, wall_s: float, end: End) -> None:
        ended = self._some(data, set(self.running))
        reports = [_report(a, job=self.running[a].job, wall_s=wall_s, end=end) for a in ended]
        self._ended(reports, set())

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        heads = {launches[0].attempt for launches in self._in_lanes().values()}
        started = self._some(data, heads)
        self.agent.on_started(started)
        stuck = self.agent.stuck(started)
        assert not set(stuck) & heads, "what runs is not withdrawn"
        self._ended(
            [_report(a, job=self.running[a].job, end=End.INTERRUPTED, started_at=0.0) for a in stuck],
            set(stuck),
        )

    @rule(data=st.data(), code=st.integers(0, 1))
    def clean(self, data: st.DataObject, code: int) -> None:
        for attempt in self._some(data, self.cleaning):
            assert self.agent.on_ended([_report(attempt, job=6, code=code)]) == []
            [(cleanup, _)] = self.agent.take_cleaned()
            assert cleanup.report.attempt == attempt
            self.cleaning.discard(attempt)
            del self.uncleaned[attempt]

    def _occupied(self) -> dict[int, list[Launch]]:
        lanes = self._in_lanes()
        for launch in self.uncleaned.values():
            assert launch.lane not in lanes, "nothing runs in what is being cleaned"
            lanes[launch.lane] = [launch]
        return lanes

    def _in_lanes(self) -> dict[int, list[Launch]]:
        lanes: dict[int, list[Launch]] = {}
        for launch in self.running.values():
            lanes.setdefault(launch.lane, []).append(launch)
        return lanes

    def _ended(self, reports: list[Report], may_come_back: set[int]) -> None:
        for report in reports:
            launch = self.running.pop(report.attempt)
            if launch.job == 6 and report.started_at and report.end is not End.REFUSED:
                self.uncleaned[report.attempt] = launch
        owed = {report.attempt for report in self.agent.on_ended(reports)}
        here = {held.attempt for held in self.agent.held()}
        for report in reports:
            known = report.attempt in owed or report.attempt in self.dropped
            assert known or (report.attempt in may_come_back and report.attempt in here)
        self.reported |= owed

    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        self._give_back(self.agent.on_take_back(self._some(data, self.offered)))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        kill, back = self.agent.on_cancel(self._some(data, self.offered))
        assert set(kill) <= set(self.running)
        self._give_back(back)

    @rule(data=st.data())
    def welcome(self, data: st.DataObject) -> None:
        drop = self._some(data, {held.attempt for held in self.agent.held()})
        kill = self.agent.on_welcome(drop)
        assert set(kill) == set(drop) & set(self.running)
        self.dropped |= set(drop)

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        acked = self._some(data, self.reported)
        self.agent.on_ack(acked)
        self.acked |= set(acked)

    @rule(job=st.integers(1, 6))
    def forget(self, job: int) -> None:
        self.agent.on_forget(job)

    @rule(millicpus=st.sampled_from([0, 500, 1000, 2000, 3000, 3000]), mem=st.sampled_from([0, 2000, 3000]))
    def give(self, millicpus: int, mem: int) -> None:
        self.given = Needs(millicpus, mem, "", (("gpus", 2000),))
        self._give_back(self.agent.set_capacity(self.given))

    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        self._give_back(self.agent.pause())
        heads = {launches[0].attempt for launches in self._in_lanes().values()}
        unbegun = [attempt for attempt in self.agent.lanes.unbegun() if attempt not in heads]
        self._ended(
            [_report(a, job=self.running[a].job, end=End.INTERRUPTED, started_at=0.0) for a in unbegun], set()
        )

    @rule()
    def resume(self) -> None:
        self.agent.resume()

    @precondition(lambda self: self.next > 100)
    @rule()
    def drain(self) -> None:
        self._give_back(self.agent.drain())

    def _give_back(self, attempts: list[int]) -> None:
        assert not set(attempts) & set(self.running)
        self.returned |= set(attempts)

    @invariant()
    def every_attempt_is_accounted_for(self) -> None:
        held = {h.attempt for h in self.agent.held() if not h.ended}
        owed = set(self.agent.owed)
        assert owed == self.reported - self.acked - self.dropped
        assert held | self.returned | self.reported | self.dropped == self.offered
        assert not held & (self.returned | self.reported | self.dropped)
        assert set(self.running) - self.dropped <= held

    @invariant()
    def no_room_is_overdrawn(self) -> None:
        lanes = self._occupied()
        jobs = [launches[0].job for launches in lanes.values()]
        assert all(len({launch.job for launch in launches}) == 1 for launches in lanes.values())
        if len(jobs) > 1:
            assert sum(self.needs[job].millicpus for job in jobs) <= 3000
            assert sum(self.needs[job].mem_bytes for job in jobs) <= 3000
        assert self.agent.running_count == len(lanes)
        assert self.agent.only_cleans == (bool(self.uncleaned) and not self.running)
        given, cleaned = self.agent.capacity.millicpus, 1000 * len(self.uncleaned)
        assert self.agent.offered.millicpus == max(0, given - cleaned)

    @invariant()
    def no_piece_is_shared_by_those_that_want_it_whole(self) -> None:
        shares: dict[str, int] = {}
        for launches in self._occupied().values():
            pieces = launches[0].env["CUDA_VISIBLE_DEVICES"]
            assert all(launch.env == launches[0].env for launch in launches)
            for name, amount in self.needs[launches[0].job].resources:
                assert name == "gpus" and pieces in ("0", "1")
                shares[pieces] = shares.get(pieces, 0) + amount
            assert self.needs[launches[0].job].resources or not pieces
        assert all(share <= 1000 for share in shares.values())

    @invariant()
    def nothing_stalls(self) -> None:
        if not self.running and any(not h.ended for h in self.agent.held()):
            launches = self.agent.launches()
            assert launches
            for launch in launches:
                self.running[launch.attempt] = launch


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
