"""Clients that are slow, vanish, never read or come in crowds: the others notice nothing."""

import asyncio
import gc
import io
import resource
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from tercel.core.commands import check_spec
from tercel.core.errors import StoreFull
from tercel.core.intervals import Range
from tercel.core.model import JobSpec, Role
from tercel.manager import calls, conversation, http, server, streams, submissions
from tercel.wire.api import Submitted
from tercel.wire.messages import Started, Tail, TailData
from tests.api.house import House, Raw, open_house

pytestmark = pytest.mark.must("f")

JOB = b'{"argv": ["true"], "key": "k"}'


def head(house: House, method: str, path: str, *lines: str, token: str = "") -> bytes:
    host = house.url.removeprefix("http://")
    first = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {token or house.admin}"]
    return ("\r\n".join([*first, *lines]) + "\r\n\r\n").encode()


def length(number: int) -> str:
    return f"Content-Length: {number}"


def no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert not [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"]


# -- vanishing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [0, 1, len(JOB) - 1])
async def test_a_client_that_vanishes_in_the_middle_of_its_submission_submits_nothing(
    house: House, sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with await house.raw() as raw:
        await raw.send(head(house, "POST", "/v1/jobs", length(len(JOB))) + JOB[:sent])
    await house.sound()
    assert (await house.status()).jobs == 0
    assert (await house.submit(key="k")).repeated is False
    no_traceback(caplog)


async def test_a_client_that_vanishes_in_the_middle_of_a_chunk_submits_nothing(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with await house.raw() as raw:
        await raw.send(head(house, "POST", "/v1/jobs", "Transfer-Encoding: chunked") + b"1e\r\n" + JOB[:5])
    await house.sound()
    assert (await house.status()).jobs == 0
    no_traceback(caplog)


async def test_a_client_that_vanishes_before_its_answer_finds_its_job_by_its_key(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    disk = house.disk()
    disk.hold()
    async with await house.raw() as raw:
        await raw.send(head(house, "POST", "/v1/jobs", length(len(JOB))) + JOB)
        await disk.reached()
    disk.release()
    again = await house.submit(key="k")
    assert again.repeated is True
    assert (await house.status()).jobs == 1
    no_traceback(caplog)


async def test_somebody_who_stops_following_an_output_is_noticed_at_once(house: House) -> None:
    """Else each would stay until the task ends, which may be never."""
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    async with await house.raw() as raw:
        await raw.send(head(house, "GET", "/v1/jobs/1/tasks/0/logs?follow=true"))
        await worker.until(lambda: worker.all(Tail) == [Tail(offer.attempt, True)])
    await worker.until(lambda: worker.all(Tail)[1:] == [Tail(offer.attempt, False)])
    assert not house.manager.hub._tails
    await worker.report(offer)
    await house.sound()


async def test_somebody_who_stops_watching_is_noticed_at_once(house: House) -> None:
    await house.submit()
    async with await house.raw() as raw:
        await raw.send(head(house, "GET", "/v1/events?job=1"))
        await raw.reader.readuntil(b"data: ")
        assert house.manager.hub._by_job
    await house.until(lambda: not house.manager.hub._by_job, "nobody watches")
    await house.sound()


# -- slow -------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not more than a busy machine is slow, for others come through the same door."""
    monkeypatch.setattr(server, "IDLE_S", 0.5)
    monkeypatch.setattr(calls, "SILENCE_S", 0.5)


@pytest.mark.parametrize(
    "said", [b"", b"G", b"GET /v1/health HTTP/1.1\r\n", b"GET /v1/health HTTP/1.1\r\nA: "]
)
async def test_half_a_request_and_then_silence_is_cut_off(impatient: None, home: Path, said: bytes) -> None:
    async with open_house(home / "data") as house, await house.raw() as raw:
        await raw.send(said)
        assert await raw.closed() == b""
        await house.sound()


async def test_half_a_second_request_and_then_silence_is_cut_off(impatient: None, home: Path) -> None:
    async with open_house(home / "data") as house, await house.raw() as raw:
        await raw.send(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1")
        assert (await raw.answer()).status == 200
        assert await raw.closed() == b""
        await house.sound()


async def test_half_a_body_and_then_silence_is_a_problem(impatient: None, house: House) -> None:
    async with await house.raw() as raw:
        await raw.send(head(house, "POST", "/v1/jobs", length(100)) + b'{"argv"')
        answer = await raw.answer()
    assert answer.status == 408
    assert answer.problem.field == "body"
    await house.sound()


async def test_a_body_is_not_waited_for_from_those_who_may_not_send_it(house: House) -> None:
    worker = (await house.token(Role.WORKER, "w")).secret
    for token, status in (("nobody.knows", 401), (worker, 403)):
        async with await house.raw() as raw:
            await raw.send(head(house, "POST", "/v1/jobs", length(10**8), token=token))
            assert (await raw.answer()).problem.status == status


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """Those of large bodies, which begin at a kilobyte here."""
    bodies = calls.Bodies()
    monkeypatch.setattr(http, "Bodies", lambda: bodies)
    monkeypatch.setattr(calls, "SMALL_BYTES", 1000)
    return bodies._turns


async def test_large_submissions_are_taken_few_at_a_time_and_small_ones_meanwhile(
    turns: asyncio.Semaphore, house: House
) -> None:
    body = msgspec.json.encode({"line": "x" * 5000})
    others = [await house.raw() for _ in range(calls.LARGE_AT_ONCE)]
    for raw in others:
        await raw.send(head(house, "POST", "/v1/jobs", length(len(body))) + body[:4000])
    await house.until(turns.locked, "all turns are taken")
    async with await house.raw() as last:
        await last.send(head(house, "POST", "/v1/jobs", length(len(body))) + body)
        answer = asyncio.create_task(last.answer())
        await house.submit(name="small")
        assert not answer.done()
        await others[0].send(body[4000:])
        assert (await others[0].answer()).status == 201
        assert (await answer).status == 201
    for raw in others:
        raw.writer.transport.abort()
    await house.until(lambda: not turns.locked(), "the one that vanished gave up its turn")
    await house.sound()


async def test_others_are_answered_while_very_many_lines_are_checked(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered = threading.Event(), threading.Event()

    def slow(spec: JobSpec, lines: list[str], **others: None) -> tuple[list[Range], int]:
        asked.set()
        assert answered.wait(20)
        return check_spec(spec, lines, **others)

    monkeypatch.setattr(submissions, "LINES_AT_ONCE", 2)
    monkeypatch.setattr(submissions, "check_spec", slow)
    submitting = asyncio.create_task(house.submit(lines=["true"] * 3))
    await house.until(asked.is_set, "they are being checked")
    await house.sound()
    answered.set()
    assert (await submitting).tasks == 3


async def test_a_large_submission_that_gets_no_turn_is_told_to_come_back(
    turns: asyncio.Semaphore, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "TURN_S", 0.1)
    body = msgspec.json.encode({"line": "x" * 5000})
    others = [await house.raw() for _ in range(calls.LARGE_AT_ONCE)]
    for raw in others:
        await raw.send(head(house, "POST", "/v1/jobs", length(len(body))) + body[:4000])
    await house.until(turns.locked, "all turns are taken")
    answer = await house.ask("POST", "/v1/jobs", body=io.BytesIO(body))
    assert answer.status == 503
    for raw in others:
        raw.writer.transport.abort()
    await house.sound()


# -- never reading ----------------------------------------------------------------------------------------


def growth() -> Callable[[], float]:
    """How many MB this process has grown since."""
    gc.collect()
    before = _resident_mb()
    return lambda: _resident_mb() - before


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def _deaf(house: House, path: str) -> Raw:
    """A client that asks and never reads the answer, with as little room for it as the kernel gives."""
    parts = urlsplit(house.url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1)
    raw = house.use(Raw(reader, writer))
    await raw.send(head(house, "GET", path))
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return raw


async def test_a_watcher_that_never_reads_costs_a_few_ranges(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "EVENT_GAP_S", 0.0)
    await house.submit(array="0-199999")
    await _deaf(house, "/v1/events?job=1&tasks=true")
    await house.until(lambda: house.manager.hub._by_job, "it watches")
    grown = growth()
    for _ in range(3):
        for start in range(0, 200_000, 2000):  # no two of them neighbours: as many ranges as tasks
            house.manager.hub.progressed(1, list(range(start, start + 2000, 2)), [])
            await asyncio.sleep(0)
    assert grown() < 60, "the same as a list of all that was told would be ten times as much"
    (subscription,) = house.manager.hub._by_job[1]
    assert len(subscription._news[1].ended) <= 100_000
    await house.still_works()


async def test_a_reader_of_live_output_that_never_reads_costs_little_and_holds_up_nobody(
    house: House,
) -> None:
    worker = await house.worker()
    await house.submit()
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    async with await _deaf(house, "/v1/jobs/1/tasks/0/logs?follow=true"):
        await worker.next(Tail)
        grown = growth()
        for piece in range(400):
            await worker.say(TailData(offer.attempt, "out", piece * 2**18, bytes(2**18)))
        await worker.settled()
        assert grown() < 60, "a hundred megabytes were sent"
        await worker.report(offer)
        assert (await house.ended(1)).counts.finished == 1
        await house.still_works()


# -- crowds -----------------------------------------------------------------------------------------------


@pytest.fixture
def many_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"only {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def test_a_thousand_idle_watchers_cost_little_and_all_hear_the_end(
    house: House, many_files: None
) -> None:
    await house.submit()
    grown = growth()
    watchers = [await house.raw() for _ in range(1000)]
    for raw in watchers:
        await raw.send(head(house, "GET", "/v1/events?job=1"))
        await raw.reader.readuntil(b"\n\n")
    assert grown() < 150, "both ends of a thousand connections are in this process"
    await house.sound()
    assert (await house.ask("POST", "/v1/cancel", json={"select": ["1"]})).json == {"count": 1}
    for raw in watchers:
        assert b'"done":true' in await raw.reader.readuntil(b"0\r\n\r\n")
    assert not house.manager.hub._by_job
    await house.still_works()


async def test_five_hundred_connections_that_say_nothing_are_cut_off_and_hinder_nobody(
    impatient: None, home: Path, many_files: None
) -> None:
    async with open_house(home / "data") as house:
        silent = [await house.raw() for _ in range(500)]
        await house.still_works()
        for raw in silent:
            assert await raw.closed() == b""
        await house.sound()


async def test_five_hundred_links_without_a_hello_are_cut_off_and_hinder_nobody(
    home: Path, many_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "HELLO_S", 0.5)
    async with open_house(home / "data") as house:
        silent = [await house.raw() for _ in range(500)]
        upgrade = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        for raw in silent:
            await raw.send(head(house, "GET", "/v1/link", *upgrade, key))
        for raw in silent:
            assert (await raw.answer()).status == 101
        await house.still_works()
        for raw in silent:
            await raw.closed()
            assert (await house.pool()).online == 0
        await house.sound()


# -- the same key twice -----------------------------------------------------------------------------------


async def _posts(house: House, count: int, token: str = "") -> list[Submitted]:
    body = {"argv": ["true"], "key": "k"}
    answers = await asyncio.gather(
        *(house.ask("POST", "/v1/jobs", json=body, token=token) for _ in range(count))
    )
    return [answer.of(Submitted) for answer in answers]


async def test_a_submission_sent_twice_at_once_is_one_job_and_both_are_told_its_number(house: House) -> None:
    disk = house.disk()
    disk.hold()
    posts = asyncio.create_task(_posts(house, 20))
    await disk.reached()
    await house.until(lambda: house.manager.keys_under_way, "one is on its way")
    disk.release()
    answers = await posts
    assert {answer.id for answer in answers} == {1}
    assert [answer.repeated for answer in answers].count(False) == 1
    assert (await house.status()).jobs == 1
    assert not house.manager.keys_under_way
    await house.sound()


async def test_if_the_first_of_two_cannot_be_saved_the_second_is_tried_by_itself(house: House) -> None:
    disk = house.disk()
    disk.hold()
    disk.fail(StoreFull("no room"), once=True)
    first = asyncio.create_task(house.ask("POST", "/v1/jobs", body=JOB))
    await disk.reached()
    second = asyncio.create_task(house.ask("POST", "/v1/jobs", body=JOB))
    asks = house.manager.keys_under_way
    await house.until(lambda: asks and next(iter(asks.values()))._callbacks, "the second waits for it")  # type: ignore[attr-defined]
    disk.release()
    assert (await first).problem.status == 507
    assert (await second).of(Submitted).repeated is False
    assert (await house.submit(key="k")).repeated is True
    assert (await house.status()).jobs == 1
    await house.sound()


async def test_keys_of_different_owners_have_nothing_to_do_with_each_other(house: House) -> None:
    ada = (await house.token(Role.USER, "ada")).secret
    bob = (await house.token(Role.USER, "bob")).secret
    adas, bobs = await asyncio.gather(_posts(house, 5, ada), _posts(house, 5, bob))
    assert len({answer.id for answer in adas}) == len({answer.id for answer in bobs}) == 1
    assert adas[0].id != bobs[0].id


async def test_a_key_lasts_beyond_the_job_and_a_restart(home: Path) -> None:
    async with open_house(home / "data") as house:
        first = await house.submit(key="k")
        await house.ask("POST", "/v1/cancel", json={"select": ["1"]})
        assert (await house.submit(key="k")).id == first.id
    async with open_house(home / "data") as house:
        again = await house.submit(key="k")
        assert (again.id, again.repeated) == (first.id, True)
