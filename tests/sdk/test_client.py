"""AsyncClient against a manager that does as it is told."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tercel.core.errors import (
    Forbidden,
    NotFound,
    PassingFault,
    PeerError,
    StoreFull,
    TercelError,
    Unreachable,
    UsageError,
)
from tercel.core.model import Role
from tercel.core.states import TaskState
from tercel.sdk import AsyncClient
from tercel.sdk import http as http_module
from tercel.wire import api
from tests.cli.fake_manager import (
    DROP,
    POOL,
    STATUS,
    TOKEN,
    FakeManager,
    condition,
    fake_manager,
    job,
    problem,
    stream,
    task,
)

SUBMITTED = api.Submitted(id=37, tasks=1, name="")
COUNTED = api.Counted(count=3)
LISTED = api.JobList(jobs=[job()], more=False)
TASKS = api.TaskList(tasks=[task(0)], more=False)
TOKENS = api.TokenList(tokens=[])
ISSUED = api.IssuedToken(id="a", role=Role.USER, user="ada", secret="a.b")
EXPLANATION = api.Explanation(id="37.5", summary="runs", reasons=[])


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "RETRY_PAUSES_S", (0.0, 0.001, 0.001, 0.001))


RESERVATION = api.ReservationView(
    id=4, owner="ada", where="", queue="lab", user="", since=1.0, until=61.0, lend=False, workers=["vm-1"]
)


@pytest.mark.parametrize(
    ("call", "method", "path", "query", "answer"),
    [
        (lambda c: c.submit(api.Submission(argv=("true",))), "POST", "/v1/jobs", {}, SUBMITTED),
        (
            lambda c: c.jobs(before=9, limit=5, all=True),
            "GET",
            "/v1/jobs",
            {"before": ["9"], "limit": ["5"], "all": ["true"]},
            LISTED,
        ),
        (lambda c: c.jobs(), "GET", "/v1/jobs", {"limit": ["100"]}, LISTED),
        (lambda c: c.job(37), "GET", "/v1/jobs/37", {}, job()),
        (
            lambda c: c.tasks(37, tasks="0-9,12", state=TaskState.FAILED, after=3, limit=7, outputs=True),
            "GET",
            "/v1/jobs/37/tasks",
            {"tasks": ["0-9,12"], "state": ["failed"], "after": ["3"], "limit": ["7"], "outputs": ["true"]},
            TASKS,
        ),
        (lambda c: c.task(37, 5), "GET", "/v1/jobs/37/tasks/5", {}, task(5)),
        (lambda c: c.cancel(["37"], reason="x"), "POST", "/v1/cancel", {}, COUNTED),
        (lambda c: c.retry(["37"]), "POST", "/v1/retry", {}, COUNTED),
        (lambda c: c.explain("37.5"), "GET", "/v1/explain", {"task": ["37.5"]}, EXPLANATION),
        (lambda c: c.status(), "GET", "/v1/status", {}, STATUS),
        (lambda c: c.pool(), "GET", "/v1/pool", {}, POOL),
        (lambda c: c.drain("vm 1/x"), "POST", "/v1/workers/vm%201%2Fx/drain", {}, COUNTED),
        (lambda c: c.quarantine("vm 1"), "POST", "/v1/workers/vm%201/quarantine", {}, COUNTED),
        (lambda c: c.end_quarantine("vm 1"), "POST", "/v1/workers/vm%201/release", {}, COUNTED),
        (
            lambda c: c.tag("vm-1", add=["a"], remove=["b"]),
            "POST",
            "/v1/workers/vm-1/tags",
            {},
            api.Tags(tags=["a"]),
        ),
        (
            lambda c: c.conditions(all=True),
            "GET",
            "/v1/conditions",
            {"limit": ["100"], "all": ["true"]},
            api.ConditionList(conditions=[condition()], more=False),
        ),
        (lambda c: c.condition(3), "GET", "/v1/conditions/3", {}, condition()),
        (lambda c: c.test_condition(3), "POST", "/v1/conditions/3/test", {}, COUNTED),
        (lambda c: c.release_condition(3, count=5), "POST", "/v1/conditions/3/release", {}, COUNTED),
        (lambda c: c.fail_condition(3, why="x"), "POST", "/v1/conditions/3/fail", {}, COUNTED),
        (lambda c: c.pause_condition(3), "POST", "/v1/conditions/3/pause", {}, COUNTED),
        (lambda c: c.resume_condition(3), "POST", "/v1/conditions/3/resume", {}, COUNTED),
        (lambda c: c.reservations(), "GET", "/v1/reservations", {}, api.ReservationList(reservations=[])),
        (
            lambda c: c.reserve(api.NewReservation(queue="lab", for_s=60.0)),
            "POST",
            "/v1/reservations",
            {},
            RESERVATION,
        ),
        (lambda c: c.end_reservation(4), "DELETE", "/v1/reservations/4", {}, COUNTED),
        (lambda c: c.health(), "GET", "/v1/health", {}, api.Health(ok=True, version="1")),
        (lambda c: c.openapi(), "GET", "/v1/openapi.json", {}, {"openapi": "3.1.0"}),
        (lambda c: c.tokens(), "GET", "/v1/tokens", {}, TOKENS),
        (lambda c: c.create_token(Role.USER, "ada"), "POST", "/v1/tokens", {}, ISSUED),
    ],
)
async def test_every_method_asks_its_path_and_gives_its_type(
    manager: FakeManager,
    call: Callable[[AsyncClient], Awaitable[Any]],
    method: str,
    path: str,
    query: dict[str, list[str]],
    answer: Any,
) -> None:
    manager.says(method, path, answer)
    async with AsyncClient() as client:
        assert await call(client) == answer
    [request] = manager.requests
    assert (request.method, request.path, request.query) == (method, path, query)
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


async def test_revoking_a_token_needs_no_answer(manager: FakeManager) -> None:
    manager.says("DELETE", "/v1/tokens/a%2Fb", (204, b""))
    async with AsyncClient() as client:
        await client.revoke_token("a/b")
        manager.says("DELETE", "/v1/tokens/c", problem(404, "there is no token 'c'"))
        with pytest.raises(NotFound, match="no token 'c'"):
            await client.revoke_token("c")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, UsageError),
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (413, UsageError),
        (422, UsageError),
        (429, PassingFault),
        (500, PeerError),
        (503, PassingFault),
        (507, StoreFull),
    ],
)
async def test_a_problem_is_an_error_sorted_by_blame(
    manager: FakeManager, status: int, kind: type[TercelError]
) -> None:
    manager.says("GET", "/v1/status", problem(status, "the reason", "array"))
    async with AsyncClient() as client:
        with pytest.raises(kind, match="the reason") as caught:
            await client.status()
    assert type(caught.value) is kind
    if isinstance(caught.value, UsageError):
        assert caught.value.field == "array"


async def test_an_error_without_an_explanation_says_at_least_its_status(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", (502, b"<html>bad gateway</html>"))
    async with AsyncClient() as client:
        with pytest.raises(PassingFault, match="HTTP status 502"):
            await client.status()


async def test_an_answer_of_another_version_is_not_misread(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", (200, b'{"jobs": "many"}'))
    async with AsyncClient() as client:
        with pytest.raises(PeerError, match=r"not understood.*same version"):
            await client.status()


async def test_nobody_at_the_address_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    async with AsyncClient(url, "a.b") as client:
        with pytest.raises(Unreachable, match=f"no manager answers at {url}.*refused"):
            await client.status()


@pytest.mark.parametrize(
    "url", ["http://a..b", f"http://{'a' * 70}.org", "http://127.0.0.1:1/ä", "http://bücher.example"]
)
async def test_what_cannot_be_an_address_is_the_callers_mistake(url: str) -> None:
    async with AsyncClient(url, "a.b") as client:
        with pytest.raises(UsageError, match="is not a manager's address") as caught:
            await client.status()
    assert caught.value.field == "server"


async def test_something_else_at_the_address_is_told_apart() -> None:
    async def chat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n\r\n")
        await writer.drain()
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(chat, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}", "a.b") as client:
            with pytest.raises(PeerError, match="is not a manager"):
                await client.status()


async def test_a_token_with_a_line_break_cannot_smuggle_a_header(manager: FakeManager) -> None:
    async with AsyncClient(manager.url, "a.b\r\nX-Evil: 1") as client:
        with pytest.raises(UsageError, match="is not a token"):
            await client.status()
    assert manager.requests == []


# -- connections ------------------------------------------------------------------------------------------


async def test_one_connection_serves_many_requests(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", STATUS)
    async with AsyncClient() as client:
        for _ in range(5):
            await client.status()
    assert {request.connection for request in manager.requests} == {1}


async def test_calls_at_the_same_time_do_not_wait_for_one_another(manager: FakeManager) -> None:
    together = threading.Barrier(3, timeout=20)

    def wait(_: object) -> api.Status:
        together.wait()
        return STATUS

    manager.says("GET", "/v1/status", wait)
    async with AsyncClient() as client:
        await asyncio.gather(*(client.status() for _ in range(3)))


async def test_a_submission_is_repeated_under_the_same_key_after_a_broken_connection(
    manager: FakeManager,
) -> None:
    manager.says("POST", "/v1/jobs", DROP, DROP, SUBMITTED)
    async with AsyncClient() as client:
        assert (await client.submit(api.Submission(line="true"))).id == 37
    keys = [request.json()["key"] for request in manager.requests]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert len(keys[0]) >= 32


async def test_two_submissions_have_two_keys_and_a_given_key_is_kept(manager: FakeManager) -> None:
    manager.says("POST", "/v1/jobs", SUBMITTED)
    async with AsyncClient() as client:
        for key in ("", "", "mine"):
            await client.submit(api.Submission(line="true", key=key))
    first, second, third = (request.json()["key"] for request in manager.requests)
    assert first != second
    assert third == "mine"


async def test_an_answer_that_breaks_off_is_asked_for_again(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", stream(b'{"ver', whole=False), STATUS)
    async with AsyncClient() as client:
        assert await client.status() == STATUS


async def test_a_manager_that_breaks_every_connection_is_unreachable_in_the_end(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", DROP)
    async with AsyncClient() as client:
        with pytest.raises(Unreachable, match="closed the connection"):
            await client.status()
    assert len(manager.requests) == 5


@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("/v1/retry", lambda c: c.retry(["37"])),
        ("/v1/tokens", lambda c: c.create_token(Role.USER, "ada")),
    ],
)
async def test_what_cannot_be_repeated_safely_is_not(
    manager: FakeManager, path: str, call: Callable[[AsyncClient], Awaitable[Any]]
) -> None:
    manager.says("GET", "/v1/status", STATUS)
    manager.says("POST", path, DROP)
    async with AsyncClient() as client:
        await client.status()  # leaves an idle connection, which must not be used
        with pytest.raises(Unreachable, match="whether it was done is not known"):
            await call(client)
    [request] = manager.asked("POST", path)
    assert request.connection == 2


async def test_a_manager_that_moved_is_found_by_its_new_access_file(manager: FakeManager) -> None:
    manager.says("GET", "/v1/status", DROP)
    async with AsyncClient() as client:
        with pytest.raises(Unreachable):
            await client.status()
        with fake_manager() as moved:
            moved.says("GET", "/v1/status", STATUS)
            assert await client.status() == STATUS


async def test_without_a_token_it_matters_first_whether_anybody_answers(manager: FakeManager) -> None:
    manager.says("GET", "/v1/health", api.Health(ok=True, version="1"))
    named = manager.url.replace("127.0.0.1", "localhost")
    async with AsyncClient(named) as client:
        with pytest.raises(UsageError, match="there is no token for"):
            await client.status()
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable, match="refused"):
            await client.status()
