"""Bad input over HTTP: each gets a problem that names the field, changes nothing, and the manager goes on."""

import asyncio
import io
import json
from collections.abc import AsyncIterator

import pytest

from tercel.manager import routes, routing
from tests.api.house import House

pytestmark = [pytest.mark.must("f"), pytest.mark.asyncio(loop_scope="module")]


# -- selections -------------------------------------------------------------------------------------------

WRONG_SELECTIONS: list[tuple[int, str, object]] = [
    (400, "select", {}),
    (400, "select", {"select": []}),
    (400, "select", {"select": "1"}),
    (400, "select[0]", {"select": [1]}),
    (400, "select", {"select": [""]}),
    (400, "select", {"select": ["first"]}),
    (400, "select", {"select": ["ALL"]}),
    (400, "select", {"select": ["1", "x"]}),
    (400, "select", {"select": ["-1"]}),
    (400, "select", {"select": ["5-1"]}),
    (400, "select", {"select": ["1.5.2"]}),
    (400, "select", {"select": ["1."]}),
    (400, "select", {"select": ["1.9-0"]}),
    (400, "select", {"select": ["1.0-,"]}),
    (400, "select", {"select": ["1\0"]}),
    (400, "select", {"select": ["١"]}),
    (400, "select", {"select": ["9" * 5000]}),
    (400, "select", {"select": ["1." + "9" * 5000]}),
    (400, "select", {"select": ["0-9007199254740992"]}),
    (400, "select", {"select": ["1"] * 1001}),
    (400, "reason", {"select": ["1"], "reason": "x" * 501}),
    (400, "reason", {"select": ["1"], "reason": "\x1b[2J"}),
    (400, "reason", {"select": ["1"], "reason": "\0"}),
    (400, "force", {"select": ["1"], "force": True}),
    (404, "select", {"select": ["2"]}),
    (400, "select", {"select": ["9999999999999999"]}),
    (404, "select", {"select": ["9007199254740992"]}),
    (404, "select", {"select": ["1.10"]}),
    (404, "select", {"select": ["1.9007199254740992"]}),
    (404, "select", {"select": ["2-1000"]}),
    (404, "select", {"select": ["1.0", "2"]}),
]


@pytest.mark.parametrize("path", ["/v1/cancel", "/v1/retry"])
@pytest.mark.parametrize(
    ("status", "field", "selection"),
    WRONG_SELECTIONS,
    ids=[f"{i}-{status}" for i, (status, *_) in enumerate(WRONG_SELECTIONS)],
)
async def test_a_selection_that_selects_nothing_is_refused_whole(
    standing: House, path: str, status: int, field: str, selection: object
) -> None:
    answer = await standing.ask("POST", path, body=json.dumps(selection).encode())
    assert answer.status == status
    assert answer.problem.field == field, answer


async def test_a_selector_of_many_tasks_in_falling_order_costs_little(standing: House) -> None:
    text = "2." + ",".join(map(str, range(300_000, 0, -2)))
    answer = await asyncio.wait_for(standing.ask("POST", "/v1/cancel", json={"select": [text]}), 20)
    assert answer.status == 404


async def test_wide_ranges_of_jobs_cost_the_jobs_that_are_there(standing: House) -> None:
    selection = {"select": ["2-1000001"] * 1000}
    answer = await asyncio.wait_for(standing.ask("POST", "/v1/cancel", json=selection), 20)
    assert answer.status == 404


# -- addresses --------------------------------------------------------------------------------------------

WRONG_ADDRESSES = [
    (400, "job", "/v1/jobs/x"),
    (400, "job", "/v1/jobs/-1"),
    (400, "job", "/v1/jobs/--5"),
    (400, "job", "/v1/jobs/1.0"),
    (400, "job", "/v1/jobs/0x1"),
    (400, "job", "/v1/jobs/+1"),
    (400, "job", "/v1/jobs/1_0"),
    (400, "job", "/v1/jobs/%D9%A3"),
    (400, "job", "/v1/jobs/%00"),
    (400, "job", "/v1/jobs/%ff"),
    (400, "job", "/v1/jobs/" + "9" * 5000),
    (400, "job", "/v1/jobs/9007199254740993"),
    (404, "job", "/v1/jobs/0"),
    (404, "job", "/v1/jobs/2"),
    (404, "job", "/v1/jobs/9007199254740992"),
    (404, "job", "/v1/jobs/2/tasks"),
    (404, "job", "/v1/jobs/2/tasks/0"),
    (404, "job", "/v1/jobs/2/tasks/0/logs"),
    (400, "task", "/v1/jobs/1/tasks/x"),
    (400, "task", "/v1/jobs/1/tasks/-1"),
    (404, "task", "/v1/jobs/1/tasks/10"),
    (404, "task", "/v1/jobs/1/tasks/10/logs"),
    (404, "task", "/v1/jobs/1/tasks/9007199254740992"),
    (400, "limit", "/v1/jobs?limit=0"),
    (400, "limit", "/v1/jobs?limit=1001"),
    (400, "limit", "/v1/jobs?limit="),
    (400, "limit", "/v1/jobs?limit=ten"),
    (400, "limit", "/v1/jobs?limit=--1"),
    (400, "before", "/v1/jobs?before=-1"),
    (400, "before", "/v1/jobs?before=1e3"),
    (400, "all", "/v1/jobs?all=yes"),
    (400, "al", "/v1/jobs?al=true"),
    (400, "owner", "/v1/jobs?owner=root"),
    (400, "tasks", "/v1/jobs/1/tasks?tasks="),
    (400, "tasks", "/v1/jobs/1/tasks?tasks=9-0"),
    (400, "tasks", "/v1/jobs/1/tasks?tasks=a"),
    (400, "tasks", "/v1/jobs/1/tasks?tasks=1,,2"),
    (400, "tasks", "/v1/jobs/1/tasks?tasks=-5"),
    (400, "tasks", "/v1/jobs/1/tasks?tasks=%00"),
    (400, "tasks", "/v1/jobs/1/tasks?tasks=" + "9" * 4000),
    (400, "state", "/v1/jobs/1/tasks?state=dead"),
    (400, "state", "/v1/jobs/1/tasks?state=failed&state="),
    (400, "state", "/v1/jobs/1/tasks?state=READY"),
    (400, "after", "/v1/jobs/1/tasks?after=-2"),
    (400, "after", "/v1/jobs/1/tasks?after=--1"),
    (400, "outputs", "/v1/jobs/1/tasks?outputs=1"),
    (400, "stream", "/v1/jobs/1/tasks/0/logs?stream=both"),
    (400, "follow", "/v1/jobs/1/tasks/0/logs?follow=maybe"),
    (400, "task", "/v1/explain"),
    (400, "task", "/v1/explain?task="),
    (400, "task", "/v1/explain?task=all"),
    (400, "task", "/v1/explain?task=last"),
    (400, "task", "/v1/explain?task=1-2"),
    (400, "task", "/v1/explain?task=1.0-3"),
    (400, "task", "/v1/explain?task=1.0,3"),
    (400, "task", "/v1/explain?task=x"),
    (404, "task", "/v1/explain?task=2"),
    (404, "task", "/v1/explain?task=2.0"),
    (404, "task", "/v1/explain?task=1.10"),
    (400, "job", "/v1/events"),
    (400, "job", "/v1/events?job="),
    (400, "job", "/v1/events?job=1&job=x"),
    (400, "job", "/v1/events?job=" + "&job=".join("1" * 1001)),
    (404, "job", "/v1/events?job=2"),
    (404, "job", "/v1/events?job=1&job=2"),
    (400, "tasks", "/v1/events?job=1&tasks=2"),
    (404, "", "/"),
    (404, "", "/v1"),
    (404, "", "/v1/"),
    (404, "", "/v1/nothing"),
    (404, "", "/v1/jobs/"),
    (404, "", "/v2/jobs"),
    (404, "", "/v1/jobs/1/../../tokens/x/y"),
    (404, "", "/%00"),
    (404, "", "/%ff%fe"),
]


@pytest.mark.parametrize(
    ("status", "field", "address"),
    WRONG_ADDRESSES,
    ids=[f"{i}-{address[:40]}".replace("\0", "") for i, (_, _, address) in enumerate(WRONG_ADDRESSES)],
)
async def test_an_address_that_leads_nowhere_is_a_problem_that_says_so(
    standing: House, status: int, field: str, address: str
) -> None:
    answer = await standing.ask("GET", address)
    assert answer.status == status, answer
    assert answer.problem.field == field


async def test_an_address_that_is_too_long_is_a_problem(standing: House) -> None:
    answer = await standing.ask("GET", "/v1/explain?task=" + "9" * 100_000)
    assert answer.status == 400
    assert answer.problem.field == "head"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "OPTIONS", "CONNECT", "BREW"])
async def test_another_method_is_refused_and_told_which_are_allowed(standing: House, method: str) -> None:
    async with await standing.raw() as raw:
        host = standing.url.removeprefix("http://")
        target = host if method == "CONNECT" else "/v1/jobs"
        await raw.send(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = await raw.answer()
    assert answer.status in (400, 404, 405)
    assert answer.problem
    if answer.status == 405:
        assert set(answer.headers["Allow"].split(",")) == {"GET", "POST"}


@pytest.mark.parametrize("operation", routes.OPERATIONS, ids=lambda o: f"{o.method} {o.path}")
async def test_every_route_refuses_parameters_it_does_not_know(
    standing: House, operation: routes.Operation
) -> None:
    path = operation.path.format(
        job=1,
        task=0,
        worker="w",
        token="t",
        queue="q",
        key="t1.0",
        reservation=1,
        condition=1,
        number=1,
        digest=f"blake3:{1:064x}",
    )
    answer = await standing.ask(operation.method, f"{path}?surprise=1")
    assert answer.status == 400
    assert operation.method == "HEAD" or answer.problem.field == "surprise"


# -- tokens and workers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "new"),
    [
        ("role", {"user": "ada"}),
        ("role", {"role": "root", "user": "ada"}),
        ("role", {"role": None, "user": "ada"}),
        ("user", {"role": "user"}),
        ("user", {"role": "user", "user": ""}),
        ("user", {"role": "user", "user": "x" * 65}),
        ("user", {"role": "user", "user": "a\nb"}),
        ("user", {"role": "user", "user": "\x1b[31m"}),
        ("user", {"role": "user", "user": 5}),
        ("user", {"role": "user", "user": " ada"}),
        ("note", {"role": "user", "user": "ada", "note": "x" * 201}),
        ("note", {"role": "user", "user": "ada", "note": "\0"}),
        ("secret", {"role": "user", "user": "ada", "secret": "s"}),
        ("id", {"role": "user", "user": "ada", "id": "s"}),
    ],
)
async def test_a_token_that_makes_no_sense_is_not_made(standing: House, field: str, new: object) -> None:
    answer = await standing.ask("POST", "/v1/tokens", json=new)
    assert answer.status == 400
    assert answer.problem.field == field


@pytest.mark.parametrize("id", ["x", "%00", "..", "a" * 5000, "%F0%9F%92%A9"])
async def test_a_token_or_worker_that_is_not_there_cannot_be_ended(standing: House, id: str) -> None:
    assert (await standing.ask("DELETE", f"/v1/tokens/{id}")).problem.status == 404
    assert (await standing.ask("POST", f"/v1/workers/{id}/drain")).problem.status == 404
    assert (await standing.ask("POST", f"/v1/workers/{id}/release")).problem.status == 404
    assert (await standing.ask("POST", f"/v1/workers/{id}/quarantine", json={})).problem.status == 404
    assert (await standing.ask("POST", f"/v1/workers/{id}/tags", json={"add": ["a"]})).problem.status == 404


# -- bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/cancel", "/v1/retry", "/v1/tokens"])
async def test_a_body_over_the_limit_is_refused(standing: House, path: str) -> None:
    body = io.BytesIO(b'{"select": ["' + b"1" * routing.MAX_REQUEST_BYTES + b'"]}')
    answer = await standing.ask("POST", path, body=body)
    assert answer.status == 413
    assert answer.problem.field == "body"


async def test_a_submission_over_the_limit_is_refused_before_it_is_read(standing: House) -> None:
    async with await standing.raw() as raw:
        await raw.send(_head(standing, "/v1/jobs", f"Content-Length: {routes.MAX_SUBMISSION_BYTES + 1}"))
        answer = await raw.answer()
    assert answer.status == 413
    assert answer.problem.field == "body"


async def test_a_body_without_end_is_cut_off_at_the_limit(standing: House) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b'{"select": ["'
        for _ in range(100):
            yield b"1" * 65536

    answer = await standing.ask("POST", "/v1/cancel", body=endless())
    assert answer.status == 413
    assert answer.problem.field == "body"


async def test_a_compressed_body_is_refused_unread(standing: House) -> None:
    """A kilobyte could unfold to a gigabyte."""
    answer = await standing.ask(
        "POST", "/v1/jobs", body=b"\x1f\x8b\x08", headers={"Content-Encoding": "gzip"}
    )
    assert answer.status == 415
    assert answer.problem.field == "Content-Encoding"


def _head(house: House, path: str, *lines: str) -> bytes:
    host = house.url.removeprefix("http://")
    head = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {house.admin}", *lines]
    return ("\r\n".join(head) + "\r\n\r\n").encode()


GARBAGE = {
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "another version": b"GET /v1/health HTTP/9.9\r\nHost: x\r\n\r\n",
    "a name with a blank": b"GET /v1/health HTTP/1.1\r\nHost: x\r\nA B: 1\r\n\r\n",
    "no colon": b"GET /v1/health HTTP/1.1\r\nHost: x\r\nabc\r\n\r\n",
    "a NUL": b"GET /v1/health HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
    "a huge header": b"GET /v1/health HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
    "many headers": b"GET /v1/health HTTP/1.1\r\nHost: x\r\n" + b"A: 1\r\n" * 10_000 + b"\r\n",
    "two lengths": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "length and chunks": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a negative length": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "a wordy length": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\n",
    "an absurd length": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 300 + b"\r\n\r\n",
    "an unknown coding": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: sparkling\r\n\r\n",
    "a folded header": b"GET /v1/health HTTP/1.1\r\nHost: x\r\nA: 1\r\n  2\r\n\r\n",
    "something expected": b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
async def test_a_request_that_is_not_http_is_a_problem_and_the_connection_ends(
    standing: House, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with await standing.raw() as raw:
        await raw.send(data)
        answer = await raw.answer()
        assert 400 <= answer.status < 500
        assert answer.problem.field in ("head", "Expect")
    assert not [r for r in caplog.records if r.exc_info], "strangers cannot fill the log with tracebacks"


async def test_chunks_that_are_none_are_a_problem(standing: House) -> None:
    async with await standing.raw() as raw:
        await raw.send(_head(standing, "/v1/jobs", "Transfer-Encoding: chunked"))
        await raw.send(b"zzz\r\n{}\r\n0\r\n\r\n")
        answer = await raw.answer()
    assert answer.status == 400
    assert answer.problem
