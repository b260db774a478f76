"""What a worker gives while others use its node: examples, no flapping, and the paper's second experiment."""

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercel.core.model import Needs, Program
from tercel.core.reports import End, Report
from tercel.wire.messages import Brief, Offer
from tercel.worker.agent import Agent
from tercel.worker.options import WorkerOptions
from tercel.worker.pressure import DEADBAND, GROW_S, SHRINK_S, Level, Pressure, Reading, pressure_for

LOOK_S = 2.0
GIB = 2**30


def _pressure(cores: int = 8, keep_free: float = 1, mem_bytes: int = 16 * GIB, **more: float) -> Pressure:
    whole = Needs(round(1000 * (cores - keep_free)), mem_bytes)
    return Pressure(whole, cores=cores, mem_bytes=mem_bytes, keep_free=keep_free, **more)  # type: ignore[arg-type]


def _reading(
    others: float = 0.0, own: float = 0.0, cores: float = 8, mem_taken: int = 0, own_mem: int = 0
) -> Reading:
    return Reading(
        cores=cores,
        busy=others + own,
        own=own,
        mem_bytes=16 * GIB,
        mem_free_bytes=16 * GIB - mem_taken - own_mem,
        own_mem_bytes=own_mem,
    )


def _after(
    pressure: Pressure, reading: Reading, seconds: float, start: float = 0.0, spared: float = 0.0
) -> Needs:
    """What is given after it was read so for so long."""
    now = start
    given = pressure.on_reading(reading, spared, now)
    while now < start + seconds:
        now += LOOK_S
        given = pressure.on_reading(reading, spared, now)
    return given


# -- how much ---------------------------------------------------------------------------------------------


@pytest.mark.B(7, 13)
@pytest.mark.parametrize(
    ("others", "given"), [(0, 7), (0.4, 7), (1, 6), (2.8, 4), (4, 3), (6, 1), (7, 0), (7.9, 0)]
)
def test_what_others_use_and_what_is_kept_free_is_not_given(others: float, given: int) -> None:
    assert _after(_pressure(), _reading(others), 0).millicpus == 1000 * given


@pytest.mark.B(13)
def test_what_our_own_tasks_use_is_not_others() -> None:
    assert _after(_pressure(), _reading(others=0.2, own=7.0), 60).millicpus == 7000


def test_containers_are_our_own_though_their_processes_are_not_below_us() -> None:
    assert _after(_pressure(), _reading(others=4.0), 60, spared=4.0).millicpus == 7000


def test_some_cores_are_given_however_busy_the_node_is_if_the_options_say_so() -> None:
    assert _after(_pressure(floor=1.0), _reading(8), 60).millicpus == 1000


def test_of_cores_beyond_a_quota_others_may_take_all() -> None:
    """64 cores, of which a cgroup allows us 4."""
    pressure = Pressure(Needs(3000, 0), cores=4, mem_bytes=0, keep_free=1)
    assert _after(pressure, _reading(others=58, cores=64), 60).millicpus == 3000
    assert _after(pressure, _reading(others=62, cores=64), 60, start=100).millicpus == 1000


def test_a_little_of_the_memory_may_be_others_before_less_is_given() -> None:
    assert _after(_pressure(), _reading(mem_taken=2 * GIB, own_mem=12 * GIB), 60).mem_bytes == 16 * GIB
    assert _after(_pressure(), _reading(mem_taken=6 * GIB), 60).mem_bytes == 10 * GIB
    assert _after(_pressure(), _reading(mem_taken=6 * GIB, own_mem=10 * GIB), 60).mem_bytes == 10 * GIB


def test_resources_are_given_whatever_others_do() -> None:
    whole = Needs(7000, 0, "", (("gpus", 2000),))
    pressure = Pressure(whole, cores=8, mem_bytes=0, keep_free=1)
    assert _after(pressure, _reading(4), 60) == Needs(3000, 0, "", (("gpus", 2000),))


# -- when load counts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "options", "given"),
    [
        (8, {}, 3),
        (8, {"keep_free": 2}, 2),
        (8, {"cpus": 7}, 7),
        (8, {"cpus": 7, "keep_free": 1}, 3),
        (8, {"cpus": 2, "keep_free": 1}, 2),
        (2, {}, 2),
        (2, {"keep_free": 0}, 0),
    ],
)
def test_load_counts_unless_cpus_are_given_or_few(
    cores: int, options: dict[str, float], given: int, tmp_path: object
) -> None:
    worker = WorkerOptions(dir=tmp_path, **options)  # type: ignore[arg-type]
    keep = options.get("keep_free", 1 if cores > 2 else 0)
    whole = Needs(
        round(1000 * min(options.get("cpus", cores), cores if "cpus" in options else cores - keep)), 0
    )
    pressure = pressure_for(worker, whole, cores, 0)
    assert _after(pressure, _reading(min(4, cores), cores=cores), 60).millicpus == 1000 * given


def test_memory_counts_unless_it_is_given(tmp_path: object) -> None:
    for options, most in [
        ({}, 10),
        ({"mem_bytes": 16 * GIB}, 16),
        ({"mem_bytes": 16 * GIB, "keep_free": 1}, 10),
    ]:
        worker = WorkerOptions(dir=tmp_path, **options)  # type: ignore[arg-type]
        pressure = pressure_for(worker, Needs(7000, 16 * GIB), 8, 16 * GIB)
        assert _after(pressure, _reading(mem_taken=6 * GIB), 60).mem_bytes == most * GIB


# -- no flapping ------------------------------------------------------------------------------------------


def test_it_shrinks_after_a_while_and_grows_after_longer() -> None:
    pressure = _pressure()
    _after(pressure, _reading(0), 0)
    changes: list[tuple[float, int]] = []
    for tick in range(1, 60):
        now = LOOK_S * tick
        given = pressure.on_reading(_reading(3 if now < 40 else 0), 0, now).millicpus
        if not changes or changes[-1][1] != given:
            changes.append((now, given))
    (_, first), (shrunk, less), (grown, more) = changes
    assert (first, less, more) == (7000, 4000, 7000)
    assert SHRINK_S <= shrunk - 2 <= SHRINK_S + LOOK_S
    assert GROW_S <= grown - 40 <= GROW_S + LOOK_S


def test_a_burst_changes_nothing() -> None:
    pressure = _pressure()
    _after(pressure, _reading(0), 0)
    for tick in range(1, 500):
        burst = 6 if tick % 4 in (0, 1) else 0  # two measurements in four
        assert pressure.on_reading(_reading(burst), 0, LOOK_S * tick).millicpus == 7000


def test_the_first_measurement_counts_at_once_and_one_too_early_does_not() -> None:
    pressure = _pressure()
    early = Reading(cores=8, busy=None)
    assert pressure.on_reading(early, 0, 0.0).millicpus == 7000
    assert pressure.on_reading(_reading(3), 0, 2.0).millicpus == 4000
    assert pressure.on_reading(early, 0, 2.5).millicpus == 4000


@given(st.integers(0, 12), st.lists(st.floats(-DEADBAND, DEADBAND), min_size=1, max_size=200))
def test_noise_around_a_level_changes_nothing(level: int, noise: list[float]) -> None:
    follower = Level()
    follower.follow(float(level), 0.0)
    for tick, off in enumerate(noise, 1):
        assert follower.follow(level + off, LOOK_S * tick) == level


@given(st.lists(st.floats(0, 16), min_size=1, max_size=300))
def test_whatever_is_measured_it_changes_only_after_it_was_so_for_long_enough(measured: list[float]) -> None:
    follower = Level()
    level = follower.follow(measured[0], 0.0)
    since = 0
    for tick, value in enumerate(measured[1:], 1):
        now_level = follower.follow(value, LOOK_S * tick)
        if now_level != level:
            shrinks = now_level > level
            lasted_s = LOOK_S * (tick - since)
            assert lasted_s >= (SHRINK_S if shrinks else GROW_S)
            needed = 1 + int((SHRINK_S if shrinks else GROW_S) / LOOK_S)
            window = measured[tick - needed + 1 : tick + 1]
            assert all(v > level if shrinks else v < level for v in window), "all of it was on that side"
            level, since = now_level, tick


@given(st.floats(0, 16), st.integers(0, 16))
def test_what_stays_as_it_is_is_arrived_at(measured: float, start: int) -> None:
    follower = Level()
    follower.follow(float(start), 0.0)
    for tick in range(1, 30):
        follower.follow(measured, LOOK_S * tick)
    assert abs(follower.steps - measured) <= DEADBAND


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 3.0), st.floats(0.5, 7.0))
def test_noisy_use_by_others_does_not_make_it_flap(seed: int, noise: float, mean: float) -> None:
    """However noisy: no more than one change in a quarter of a minute, over an hour; few when it is steady."""
    chance = random.Random(seed)
    pressure = _pressure()
    given_before, changes = -1, 0
    for tick in range(1800):
        others = min(8.0, max(0.0, chance.gauss(mean, noise)))
        given_now = pressure.on_reading(_reading(others), 0, LOOK_S * tick).millicpus
        changes += given_now != given_before
        given_before = given_now
    assert changes <= 3600 / 12
    if noise <= 0.1:
        assert changes <= 4


# -- the paper's experiment -------------------------------------------------------------------------------


class Node:
    """A real agent and its pressure, on cores that others use too; tasks take whatever the script says."""

    def __init__(self, cores: int, keep_free: int, others: float, seed: int) -> None:
        self.cores, self.others = cores, others
        self.pressure = _pressure(cores, keep_free)
        self.agent = Agent(Needs(1000 * (cores - keep_free), 0))
        self.agent.on_brief(Brief(1, Program(argv=("work",)), Needs(1000, 0)))
        self.chance = random.Random(seed)
        self.ended = 0
        self.next = 0
        self.ends: list[tuple[float, int]] = []

    def step(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            attempt = heapq.heappop(self.ends)[1]
            self.agent.on_ended([Report(1, attempt, attempt, End.EXITED, 0, 1.0, 60.0, 60.0, 0)])
            self.agent.on_ack([attempt])
            self.ended += 1
        own = len(self.ends)
        others = max(0.0, self.chance.gauss(self.others, 0.15)) if self.others else 0.0
        scale = min(1.0, self.cores / max(1e-9, own + others))  # the kernel shares what there is
        reading = Reading(cores=self.cores, busy=(own + others) * scale, own=own * scale, mem_bytes=0)
        self.agent.set_capacity(self.pressure.on_reading(reading, 0.0, now))
        waiting = sum(not held.started for held in self.agent.held())
        if waiting < 2 * self.cores:  # the manager has always more, offered as far as there is room
            self.agent.on_offer(Offer(1, self.next, self.next + self.cores - 1, self.next))
            self.next += self.cores
        for launch in self.agent.launches():
            heapq.heappush(self.ends, (now + self.chance.uniform(45.0, 75.0), launch.attempt))


@pytest.mark.B(13)
@pytest.mark.parametrize(("cores", "keep_free"), [(4, 0), (8, 0), (32, 1), (64, 1)])
def test_node_with_half_its_cores_taken_by_others_runs_half_as_many_tasks(cores: int, keep_free: int) -> None:
    free, taken = Node(cores, keep_free, 0.0, 1), Node(cores, keep_free, cores / 2, 2)
    now = 0.0
    while now < 4 * 3600:
        now += LOOK_S
        free.step(now)
        taken.step(now)
    assert taken.ended / free.ended == pytest.approx(0.5, abs=0.05)
