"""A worker heeds its node: it gives less while others use it, and nothing while it is not fit."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from tercel.core.model import Needs
from tercel.core.reports import End
from tercel.wire.messages import FromWorker, Hello, Offer, Presence, Returned, Welcome
from tercel.worker import watching
from tercel.worker.facts import EVERY_S, Telling
from tercel.worker.pressure import Pressure, Reading
from tests.worker.stage import FakeLink, Stage, now, report, virtual

GIB = 2**30


async def _presence(link: FakeLink, **fields: object) -> Presence:
    """The next one of which this is true."""
    while True:
        presence = await link.expect(Presence)
        if all(getattr(presence.facts, name, None) == value for name, value in fields.items()):
            return presence


async def _said(link: FakeLink, seconds: float) -> list[FromWorker]:
    """All that is said in this time."""
    said: list[FromWorker] = []
    try:
        async with asyncio.timeout(seconds):
            while True:
                said += await link.frame()
    except TimeoutError:
        return said


async def _capacity(link: FakeLink, millicpus: int) -> None:
    while (await link.expect(Presence)).capacity.millicpus != millicpus:
        pass


# -- load -------------------------------------------------------------------------------------------------


@virtual
@pytest.mark.B(13)
async def test_it_gives_less_while_others_use_the_node_and_more_when_they_are_gone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=4, minds=True)
    link = await stage.joined(heartbeat_s=1000.0)
    await link.offer(0, 5)
    await stage.runner.until_running(100, 101, 102, 103)
    stage.senses.reading = Reading(cores=4, busy=4.0, own=2.0)
    await _capacity(link, 2000)
    assert stage.runner.killed == [], "nothing that runs is ended for it"
    stage.runner.end(100, 101)
    await link.expect_reports(2)
    assert sorted(stage.runner.running) == [102, 103]
    stage.runner.end(102)
    await stage.runner.until_running(104)
    stage.senses.reading = Reading(cores=4, busy=1.0, own=1.0)
    while len(stage.runner.running) < 3:
        await link.frame()
    await stage.killed()


@virtual
@pytest.mark.B(13)
async def test_what_no_longer_fits_is_given_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=4, minds=True)
    link = await stage.joined(heartbeat_s=1000.0)
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    await link.offer(1, 1, job=2, millicpus=4000)
    stage.senses.reading = Reading(cores=4, busy=3.0, own=1.0)
    assert await link.expect(Returned) == Returned([101])
    await stage.killed()


# -- health -----------------------------------------------------------------------------------------------


@virtual
@pytest.mark.O(1)
async def test_an_unhealthy_worker_joins_takes_nothing_says_why_and_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tercel.worker")
    stage = Stage(tmp_path, ill="no scratch disk")
    link = await stage.joined(heartbeat_s=1000.0)
    assert stage.senses.checks == 1, "before it joined"
    assert (await link.expect(Presence)).facts.unhealthy == "no scratch disk"
    await link.offer(0, 1)
    assert await link.expect(Returned) == Returned([100, 101])
    stage.senses.ill = ""
    await _presence(link, unhealthy="")
    assert now() == pytest.approx(watching.RECHECK_S, abs=1.0)
    await link.send(Offer(1, 2, 2, 102))
    await stage.runner.until_running(102)
    assert "Taking no tasks: no scratch disk." in caplog.text
    assert "Taking tasks again" in caplog.text
    await stage.killed()


@virtual
@pytest.mark.O(1)
async def test_one_that_falls_ill_gives_back_what_has_not_begun_and_finishes_the_rest(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(4)
    stage.senses.reading = Reading(cores=2, busy=None, disk_bytes=100 * GIB, disk_free_bytes=0)
    assert await link.expect(Returned) == Returned([102, 103, 104])
    stage.runner.end(100)
    await link.expect_reports(1)
    assert sorted(stage.runner.running) == [101]
    assert stage.runner.killed == []
    assert stage.runner.withdrawn == [100, 101], "which does nothing to what has begun"
    stage.senses.reading = Reading(cores=2, busy=None, disk_bytes=100 * GIB, disk_free_bytes=50 * GIB)
    await _presence(link, unhealthy="")
    await stage.killed()


@virtual
async def test_its_owners_check_is_asked_every_minute(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined(heartbeat_s=1000.0)
    await _said(link, 3 * watching.CHECK_EVERY_S + 1)
    assert stage.senses.checks == 4
    stage.senses.ill = "a\x1b[31m " + "x" * 2000
    why = (await _unhealthy(link)).facts.unhealthy
    assert why.isprintable() and len(why) <= 500, "or the manager would not believe a word"
    await stage.killed()


async def _unhealthy(link: FakeLink) -> Presence:
    while not (presence := await link.expect(Presence)).facts.unhealthy:
        pass
    return presence


@virtual
async def test_what_was_in_a_lane_and_had_not_begun_is_told_when_it_falls_ill(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.at_work(1)
    stage.senses.reading = Reading(cores=2, busy=None, disk_bytes=100 * GIB, disk_free_bytes=0)
    await stage.runner.until(lambda: bool(stage.runner.withdrawn))
    stage.runner.end(101, end=End.INTERRUPTED, started_at=0.0)
    assert await link.expect_reports(1) == [report(101, end=End.INTERRUPTED, started_at=0.0)]
    await stage.killed()


@virtual
async def test_a_reason_whose_numbers_change_is_told_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined(heartbeat_s=1000.0)
    measured = 0

    async def measure() -> Reading:
        nonlocal measured
        measured += 1
        return Reading(cores=2, busy=None, disk_bytes=100 * GIB, disk_free_bytes=measured * 2**20)

    stage.senses.measure = measure  # type: ignore[method-assign]
    told = [said.facts.unhealthy for said in await _said(link, 100.0) if isinstance(said, Presence)]
    assert measured > 40
    assert told == ["", "its disk is nearly full: 1 MiB free, 1,024 MiB needed"]
    await stage.killed()


# -- what is told -----------------------------------------------------------------------------------------


@virtual
async def test_a_clock_that_is_off_is_told_and_keeps_nobody_from_working(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path)
    link = await stage.manager.link()
    await link.expect(Hello)
    await link.send(Welcome(1, 10.0, [], 1000.0))
    facts = (await link.expect(Presence)).facts
    assert "ahead of the manager's" in facts.note
    assert facts.unhealthy == ""
    await link.offer(0, 0)
    await stage.runner.until_running(100)
    assert "Set this node's clock" in caplog.text
    await stage.killed()


@virtual
@pytest.mark.B(12)
async def test_facts_go_with_presence(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    link = await stage.joined(heartbeat_s=1000.0)
    stage.senses.reading = Reading(
        cores=2,
        busy=0.5,
        mem_bytes=GIB,
        mem_free_bytes=GIB // 2,
        disk_bytes=GIB,
        disk_free_bytes=GIB // 2,
        load=3.1,
    )
    facts = (await _presence(link, load=3.0)).facts
    assert (facts.millicpus_free, facts.mem_free_bytes, facts.disk_free_bytes) == (1500, GIB // 2, GIB // 2)
    await stage.killed()


async def test_a_node_that_cannot_be_measured_is_told_once_and_used_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def hidden() -> Reading:
        raise PermissionError("/proc/stat")

    senses = watching.NodeSenses(tmp_path, hidden, "")
    pressure = Pressure(Needs(7000, GIB), cores=8, mem_bytes=GIB, keep_free=1)
    for at in range(3):
        assert pressure.on_reading(await senses.measure(), 0.0, float(at)) == Needs(7000, GIB)
    assert caplog.text.count("Cannot measure what this node does") == 1
    assert await senses.check() == ""


def test_small_changes_are_not_told_and_large_ones_not_too_often() -> None:
    telling = Telling()
    base = Reading(
        cores=8,
        busy=2.0,
        mem_bytes=64 * GIB,
        mem_free_bytes=32 * GIB,
        disk_bytes=640 * GIB,
        disk_free_bytes=320 * GIB,
    )
    telling.on_reading(base, 0.0)
    first = telling.facts
    assert first.millicpus_free == 6000
    small = {"busy": 2.2, "mem_free_bytes": 31 * GIB, "disk_free_bytes": 315 * GIB, "load": 0.3}
    telling.on_reading(msgspec.structs.replace(base, **small), 100.0)
    assert telling.facts is first
    telling.on_reading(msgspec.structs.replace(base, busy=5.0), 200.0)
    assert telling.facts.millicpus_free == 3000
    telling.on_reading(base, 200.0 + EVERY_S / 2)
    assert telling.facts.millicpus_free == 3000
    telling.on_reading(base, 200.0 + EVERY_S)
    assert telling.facts.millicpus_free == 6000


@virtual
async def test_flutter_does_not_make_presences(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=8)
    measured = 0

    async def measure() -> Reading:
        nonlocal measured
        measured += 1
        return Reading(cores=8, busy=4.0 + (measured % 2) * 0.2, load=4.0 + (measured % 3) * 0.1)

    link = await stage.joined(heartbeat_s=300.0)
    stage.senses.measure = measure  # type: ignore[method-assign]
    assert len(await _said(link, 10.0)) <= 2
    assert await _said(link, 200.0) == []
    assert measured > 100
    await stage.killed()


@virtual
async def test_however_much_changes_presences_are_some_seconds_apart(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cpus=8)
    measured = 0

    async def measure() -> Reading:
        nonlocal measured
        measured += 1
        return Reading(cores=8, busy=8.0 * (measured % 2))

    link = await stage.joined(heartbeat_s=300.0)
    stage.senses.measure = measure  # type: ignore[method-assign]
    assert 10 <= len(await _said(link, 200.0)) <= 200 / EVERY_S + 2
    await stage.killed()
