"""When nothing can be saved: what would change anything is refused in words, what is there can be looked at."""

import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tercel.core.errors import PassingFault, StoreFull
from tercel.manager import finding, logs, streams
from tercel.wire.api import Counts
from tercel.wire.messages import Offer, Reports, Started
from tests.api.house import Disk, House
from tests.api.test_clients import head

FULL = StoreFull("no room on the disk for /data/tercel.db")


@pytest.mark.must("f", "h")
async def test_what_would_change_anything_is_refused_with_a_clear_error(house: House) -> None:
    disk = await _full(house)
    for path, body in (
        ("/v1/jobs", {"argv": ["true"]}),
        ("/v1/jobs", {"argv": ["true"], "key": "k"}),
        ("/v1/cancel", {"select": ["1"]}),
        ("/v1/retry", {"select": ["1"]}),
        ("/v1/tokens", {"role": "user", "user": "ada"}),
    ):
        answer = await house.ask("POST", path, json=body)
        assert answer.status == 507
        assert "no room" in answer.problem.detail
    await _room_again(house, disk)
    assert (await house.job(1)).counts == Counts(finished=2, offered=1)
    assert (await house.submit(key="k")).repeated is False
    assert len((await house.ask("GET", "/v1/tokens")).json["tokens"]) == 2
    await house.still_works()


@pytest.mark.must("f")
async def test_what_is_refused_while_the_disk_is_tired_is_not_blamed_on_a_full_one(house: House) -> None:
    disk = await _full(house, PassingFault("the disk is tired"))
    for path, body in (
        ("/v1/jobs", {"argv": ["true"]}),
        ("/v1/cancel", {"select": ["1"]}),
        ("/v1/tokens", {"role": "user", "user": "ada"}),
    ):
        answer = await house.ask("POST", path, json=body)
        assert answer.status == 503
        assert answer.problem.detail == "the disk is tired"
    await _room_again(house, disk)
    await house.sound()


@pytest.mark.must("f", "h")
async def test_what_is_there_can_be_looked_at_meanwhile(house: House) -> None:
    disk = await _full(house)
    for path in (
        "/v1/jobs/1",
        "/v1/jobs",
        "/v1/jobs?all=true",
        "/v1/jobs/1/tasks",
        "/v1/jobs/1/tasks/0",
        "/v1/jobs/1/tasks/0/logs",
        "/v1/explain?task=1",
        "/v1/pool",
        "/v1/tokens",
    ):
        assert (await house.ask("GET", path)).status == 200, path
    assert "no room" in (await house.ask("GET", "/v1/status")).json["trouble"]
    assert (await house.ask("GET", "/v1/health", token=None)).json["ok"] is False
    await _room_again(house, disk)
    await house.sound()


@pytest.mark.must("f", "h")
async def test_a_job_whose_end_cannot_be_saved_says_so(house: House) -> None:
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    disk = house.disk()
    disk.fail(FULL)
    await worker.say(Reports([offer]))
    await house.until(lambda: house.manager.trouble, "the disk is full")
    for path in ("/v1/jobs/1", "/v1/jobs/1/tasks/0", "/v1/explain?task=1.0"):
        answer = await house.ask("GET", path)
        assert answer.status == 503
        assert "no room" in answer.problem.detail
    await _room_again(house, disk)
    await worker.acknowledged(offer.attempt)
    assert (await house.job(1)).counts == Counts(finished=1)
    await house.sound()


@pytest.mark.must("f", "h")
async def test_a_cancellation_that_meets_a_full_disk_is_told_to_be_on_its_way(house: House) -> None:
    await house.submit()
    disk = house.disk()
    disk.fail(FULL)
    answer = await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
    assert answer.status == 503
    assert "as soon as it can be saved" in answer.problem.detail
    await _room_again(house, disk)
    assert (await house.job(1)).counts == Counts(cancelled=1)
    await house.sound()


@pytest.mark.must("f")
async def test_a_passing_fault_of_the_disk_is_not_called_a_full_one(house: House) -> None:
    disk = house.disk()
    disk.fail(PassingFault("the disk is tired"))
    answer = await house.ask("POST", "/v1/jobs", json={"argv": ["true"]})
    assert answer.status == 503
    assert answer.problem.detail == "the disk is tired"
    disk.fail(None)
    await house.submit()
    await house.sound()


@pytest.mark.must("f", "h")
async def test_lines_that_cannot_be_read_for_a_moment_are_offered_later(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> list[str]:
        monkeypatch.undo()
        raise PassingFault("too many open files")

    monkeypatch.setattr(house.manager.store, "lines", unreadable)
    worker = await house.worker()
    job = await house.submit(lines=["echo a", "echo b"])
    for task in range(2):
        await worker.report(await worker.offered(job.id))
        assert worker.all(Offer)[task].lines == ["echo a", "echo b"][task : task + 1]
    assert (await house.ended(job.id)).counts == Counts(finished=2)
    await house.sound()


@pytest.mark.must("f")
async def test_a_mistake_of_ours_is_a_problem_too_and_the_log_tells_more(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("our secret inner life")

    monkeypatch.setattr(finding, "find_job", broken)
    with caplog.at_level(logging.ERROR):
        answer = await house.ask("GET", "/v1/jobs/1")
    assert answer.status == 500
    assert "log" in answer.problem.detail
    assert b"inner life" not in answer.body
    assert "inner life" in caplog.text
    monkeypatch.undo()
    await house.sound()


@pytest.mark.must("f")
async def test_a_mistake_of_ours_in_the_middle_of_a_link_is_told_in_the_log(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("our secret inner life")

    worker = await house.worker()
    monkeypatch.setattr(house.manager.machine, "on_started", broken)
    await worker.say(Started([1]))
    await worker.hung_up()
    await house.until(lambda: "inner life" in caplog.text, "the log tells what happened and where")
    monkeypatch.undo()
    await house.still_works()


@pytest.mark.must("f")
@pytest.mark.parametrize("path", ["/v1/jobs/1/tasks/0/logs", "/v1/events?job=1"])
async def test_an_answer_that_cannot_be_completed_is_cut_off_and_not_mixed_with_a_problem(
    house: House, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def half(*_: object, **__: object) -> AsyncIterator[bytes]:
        yield b"half of "
        raise PassingFault("the disk is tired")

    async def told(_: object, response: web.StreamResponse, *__: object, **___: object) -> None:
        await response.write(b"half of ")
        raise PassingFault("the disk is tired")

    monkeypatch.setattr(logs, "read", half)
    monkeypatch.setattr(streams, "tell", told)
    await house.submit()
    async with await house.raw() as raw:
        await raw.send(head(house, "GET", path))
        answer = await raw.closed()
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.endswith(b"half of \r\n"), "no last chunk: the client knows that more should have come"
    await house.sound()


async def _full(house: House, fault: PassingFault = FULL) -> Disk:
    """Of three tasks one has finished, and then there is no room for the end of the second."""
    worker = await house.worker()
    await house.submit(array="0-2")
    await worker.report(await worker.offered())
    second = await worker.offered()
    disk = house.disk()
    disk.fail(fault)
    await worker.say(Reports([second]))
    await house.until(lambda: house.manager.trouble, "the disk is full")
    return disk


async def _room_again(house: House, disk: Disk) -> None:
    disk.fail(None)
    await house.until(lambda: not house.manager.trouble, "all is saved")
