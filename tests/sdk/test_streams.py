"""logs, events and watch: answers that arrive bit by bit, and go on after a loss."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from tercel.core.errors import NotFound, TercelError, Unreachable
from tercel.links.access import Access, write_access
from tercel.sdk import AsyncClient, asking_events
from tercel.wire import api
from tests.cli.fake_manager import DROP, FakeManager, events, fake_manager, problem, stream


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_events, "RECONNECT_MOST_S", 0.01)


RUNNING = api.Event(job=37, counts=api.Counts(running=1))
DONE = api.Event(job=37, counts=api.Counts(finished=1), ended=[(0, 0)], spoke=[(0, 0)], done=True)


async def test_logs_come_as_they_were_written(manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37/tasks/5/logs", stream(b"a\xff\x00", b"", b"b\n"))
    async with AsyncClient() as client:
        chunks = [chunk async for chunk in client.logs(37, 5, stream="err", follow=True)]
    assert b"".join(chunks) == b"a\xff\x00b\n"
    assert manager.requests[0].query == {"stream": ["err"], "follow": ["true"]}


async def test_logs_of_a_missing_task_raise(manager: FakeManager) -> None:
    manager.says("GET", "/v1/jobs/37/tasks/5/logs", problem(404, "job 37 has no task 5"))
    async with AsyncClient() as client:
        with pytest.raises(NotFound, match="no task 5"):
            async for _ in client.logs(37, 5):
                pass


def test_whoever_stops_watching_hears_no_complaint_when_the_loop_ends(
    manager: FakeManager, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The loop's end closes all generators that were left, in any order."""
    manager.says("GET", "/v1/events", *[events(RUNNING, DONE)] * 20)

    async def first() -> api.Event:
        async with AsyncClient() as client:
            kept.append(client.watch([37]))
            return await anext(kept[-1])

    kept: list[AsyncGenerator[api.Event, None]] = []
    for _ in range(20):
        assert asyncio.run(first()) == RUNNING
    assert (caplog.text, capfd.readouterr().err) == ("", "")


async def test_events_survive_any_cut_in_the_stream(manager: FakeManager) -> None:
    [first, last] = events(RUNNING, DONE).pieces
    assert isinstance(first, bytes) and isinstance(last, bytes)
    whole = b": hello\n\n" + first.replace(b"\n", b"\r\n") + last
    manager.says("GET", "/v1/events", stream(*(bytes([byte]) for byte in whole)))
    async with AsyncClient() as client:
        heard = [event async for event in client.events([37, 38], tasks=True)]
    assert heard == [RUNNING, DONE]
    assert manager.requests[0].query == {"job": ["37", "38"], "tasks": ["true"]}


async def test_watching_goes_on_after_every_kind_of_loss(manager: FakeManager) -> None:
    manager.says(
        "GET",
        "/v1/events",
        events(RUNNING),  # ended by a manager that stops
        events(RUNNING, whole=False),
        DROP,
        problem(503, "starting"),
        events(DONE),
    )
    lost: list[TercelError] = []
    async with AsyncClient() as client:
        heard = [event async for event in client.watch([37], on_lost=lost.append)]
    assert heard == [RUNNING, RUNNING, DONE]
    assert len(lost) == 4


async def test_watching_survives_a_manager_that_comes_back_elsewhere_with_other_tokens(
    manager: FakeManager,
) -> None:
    with fake_manager() as other:
        other.says("GET", "/v1/events", events(DONE))
        at = Access(url=manager.url, token="old.token", worker_token="", pid=os.getpid(), data="/d")
        write_access(at)

        def move(_: object) -> object:
            write_access(
                Access(url=other.url, token="new.token", worker_token="", pid=os.getpid(), data="/d")
            )
            return DROP

        manager.says("GET", "/v1/events", events(RUNNING, whole=False), move)
        async with AsyncClient() as client:
            assert [event async for event in client.watch([37])] == [RUNNING, DONE]
        assert other.requests[0].headers["authorization"] == "Bearer new.token"


async def test_a_watch_that_cannot_even_begin_raises(manager: FakeManager) -> None:
    manager.says("GET", "/v1/events", problem(404, "there is no job 37"))
    async with AsyncClient() as client:
        with pytest.raises(NotFound, match="no job 37"):
            async for _ in client.watch([37]):
                pass
    manager.says("GET", "/v1/events", DROP)
    async with AsyncClient() as client:
        with pytest.raises(Unreachable):
            async for _ in client.watch([37]):
                pass


async def test_a_manager_that_dies_after_it_took_the_job_is_waited_for(manager: FakeManager) -> None:
    """Between the submission and the first event."""
    manager.says("POST", "/v1/jobs", api.Submitted(id=37, tasks=1, name="x"))
    manager.says("GET", "/v1/events", DROP, DROP, events(DONE))
    async with AsyncClient() as client:
        job = await client.submit(api.Submission(argv=("true",)))
        assert [event async for event in client.watch([job.id])] == [DONE]


async def test_after_a_reconnection_only_what_is_not_done_is_asked_for(manager: FakeManager) -> None:
    other = api.Event(job=38, counts=api.Counts(finished=1), done=True)
    manager.says("GET", "/v1/events", events(DONE, whole=False), events(other))
    async with AsyncClient() as client:
        heard = [event.job async for event in client.watch([37, 38])]
    assert heard == [37, 38]
    assert [request.query["job"] for request in manager.requests] == [["37", "38"], ["38"]]


async def test_very_many_jobs_are_watched_in_groups(manager: FakeManager) -> None:
    def answer(request: Any) -> object:
        done = (api.Event(job=int(id), counts=api.Counts(), done=True) for id in request.query["job"])
        return events(*done)

    manager.says("GET", "/v1/events", answer)
    async with AsyncClient() as client:
        heard = [event.job async for event in client.watch(range(1, 451))]
    assert heard == list(range(1, 451))
    assert [len(request.query["job"]) for request in manager.requests] == [200, 200, 50]


async def test_leaving_a_stream_early_closes_its_connection(manager: FakeManager) -> None:
    gone = threading.Event()
    manager.says(
        "GET", "/v1/events", stream(b"data: " + b'{"job":37,"counts":{}}' + b"\n\n", lambda: gone.wait(20))
    )
    async with AsyncClient() as client, aclosing(client.watch([37])) as watched:
        async for event in watched:
            assert event.job == 37
            break
    gone.set()
