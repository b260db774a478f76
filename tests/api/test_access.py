"""Who may do what. Every route is in one table, and so is every role: a new route cannot be forgotten."""

import asyncio
import hmac
import logging
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tercel.core.errors import Forbidden, StoreFull, UsageError
from tercel.core.model import Needs, Role
from tercel.core.presence import WorkerInfo
from tercel.links.local import local_pair
from tercel.links.websocket import WebSocketDialer
from tercel.manager import access
from tercel.manager.conversation import converse
from tercel.manager.http import application
from tercel.manager.openapi import Operation
from tercel.manager.routes import OPERATIONS, PUBLIC
from tercel.wire.api import Counted, IssuedToken, JobList, Status, TokenList
from tercel.wire.messages import PROTOCOL, Hello, Started, Welcome
from tests.api.house import Answer, House, Scripted, open_house

pytestmark = pytest.mark.must("f")

USERS = {Role.USER, Role.ADMIN}
ADMINS = {Role.ADMIN}
EVERYBODY = {Role.USER, Role.ADMIN, Role.WORKER}
MAY = {
    ("POST", "/v1/jobs"): USERS,
    ("GET", "/v1/jobs"): USERS,
    ("GET", "/v1/jobs/{job}"): USERS,
    ("GET", "/v1/jobs/{job}/tasks"): USERS,
    ("GET", "/v1/jobs/{job}/tasks/{task}"): USERS,
    ("GET", "/v1/jobs/{job}/tasks/{task}/logs"): USERS,
    ("POST", "/v1/flows"): USERS,
    ("GET", "/v1/jobs/{job}/submission"): USERS,
    ("GET", "/v1/jobs/{job}/values"): USERS,
    ("PUT", "/v1/values/{key}"): USERS,
    ("GET", "/v1/values/{key}"): USERS,
    ("POST", "/v1/cancel"): USERS,
    ("POST", "/v1/retry"): USERS,
    ("POST", "/v1/hold"): USERS,
    ("POST", "/v1/release"): USERS,
    ("POST", "/v1/revise"): USERS,
    ("GET", "/v1/jobs/{job}/history"): USERS,
    ("GET", "/v1/jobs/{job}/tasks/{task}/history"): USERS,
    ("POST", "/v1/rollback"): USERS,
    ("POST", "/v1/fork"): USERS,
    ("POST", "/v1/clean"): ADMINS,
    ("GET", "/v1/queues"): USERS,
    ("PUT", "/v1/queues/{queue}"): USERS,
    ("DELETE", "/v1/queues/{queue}"): ADMINS,
    ("GET", "/v1/explain"): USERS,
    ("GET", "/v1/status"): USERS,
    ("GET", "/v1/pool"): USERS,
    ("POST", "/v1/workers/{worker}/drain"): ADMINS,
    ("POST", "/v1/workers/{worker}/quarantine"): ADMINS,
    ("POST", "/v1/workers/{worker}/release"): ADMINS,
    ("POST", "/v1/workers/{worker}/tags"): ADMINS,
    ("GET", "/v1/workers/{worker}/directory"): ADMINS,
    ("GET", "/v1/workers/{worker}/log"): ADMINS,
    ("GET", "/v1/workers/{worker}/jobs/{job}/tasks/{task}/files"): USERS,
    ("GET", "/v1/workers/{worker}/jobs/{job}/tasks/{task}/file"): USERS,
    ("GET", "/v1/conditions"): USERS,
    ("GET", "/v1/conditions/{condition}"): USERS,
    ("POST", "/v1/conditions/{condition}/test"): USERS,
    ("POST", "/v1/conditions/{condition}/release"): USERS,
    ("POST", "/v1/conditions/{condition}/fail"): USERS,
    ("POST", "/v1/conditions/{condition}/pause"): USERS,
    ("POST", "/v1/conditions/{condition}/resume"): USERS,
    ("GET", "/v1/switches"): USERS,
    ("POST", "/v1/switches"): ADMINS,
    ("GET", "/v1/snapshot"): USERS,
    ("POST", "/v1/restore"): USERS,
    ("GET", "/v1/snapshots"): USERS,
    ("GET", "/v1/snapshots/{number}"): USERS,
    ("POST", "/v1/snapshots/{number}/restore"): USERS,
    ("GET", "/v1/files"): USERS,
    ("POST", "/v1/files"): USERS,
    ("DELETE", "/v1/files"): USERS,
    ("GET", "/v1/files/one"): USERS,
    ("POST", "/v1/files/checked"): USERS,
    ("GET", "/v1/jobs/{job}/files"): USERS,
    ("PUT", "/v1/contents/{digest}"): EVERYBODY,
    ("GET", "/v1/contents/{digest}"): EVERYBODY,
    ("HEAD", "/v1/contents/{digest}"): EVERYBODY,
    ("GET", "/v1/reservations"): USERS,
    ("POST", "/v1/reservations"): ADMINS,
    ("DELETE", "/v1/reservations/{reservation}"): ADMINS,
    ("GET", "/v1/events"): USERS,
    ("GET", "/v1/tokens"): ADMINS,
    ("POST", "/v1/tokens"): ADMINS,
    ("DELETE", "/v1/tokens/{token}"): ADMINS,
}
CHANGES = ("/v1/cancel", "/v1/retry", "/v1/hold", "/v1/release", "/v1/revise", "/v1/rollback", "/v1/fork")
FOR_ALL = {("GET", "/v1/health"), ("GET", "/v1/openapi.json")}
LINK = ("GET", "/v1/link")

every_route = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}")


def _path(operation: Operation, job: int = 1) -> str:
    path = operation.path.format(
        job=job,
        task=0,
        worker="nobody",
        token="nothing",
        queue="ada",
        key=f"t{job}.0",
        reservation=7,
        condition=7,
        number=7,
        digest=f"blake3:{job:064x}",
    )
    query = "&".join(f"{p.name}={job}" for p in operation.parameters if p.required and p.where == "query")
    return f"{path}?{query}" if query else path


async def _try(house: House, operation: Operation, token: str | None, job: int = 1) -> Answer:
    body: object = None
    if operation.path == "/v1/jobs" and operation.method == "POST":
        body = {"argv": ["true"]}
    elif operation.path == "/v1/flows":
        body = {"jobs": [{"argv": ["true"]}]}
    elif operation.path in CHANGES:
        body = {"select": [str(job)]}
    elif operation.path == "/v1/queues/{queue}":
        body = {"paused": False}
    elif operation.body is not None:
        body = {"role": "user", "user": "eve"}
    return await house.ask(operation.method, _path(operation, job), token=token, json=body)


class People(NamedTuple):
    ada: str
    bob: str
    admin: str
    worker: str


@pytest.fixture
async def people(house: House) -> People:
    made = [
        await house.token(role, user)
        for role, user in ((Role.USER, "ada"), (Role.USER, "bob"), (Role.ADMIN, "eva"), (Role.WORKER, "w"))
    ]
    return People(*(token.secret for token in made))


# -- the table --------------------------------------------------------------------------------------------


def test_every_route_says_whose_it_is() -> None:
    assert {(o.method, o.path): set(o.roles) for o in OPERATIONS} == MAY
    assert {(o.method, o.path) for o in PUBLIC} == FOR_ALL
    assert all(operation.roles for operation in OPERATIONS)


async def test_there_is_no_route_beside_the_table(house: House) -> None:
    app = application(house.manager, access.Tokens([]))
    served = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource}
    assert served == set(MAY) | FOR_ALL | {LINK}


@every_route
async def test_nobody_gets_in_without_a_token(house: House, operation: Operation) -> None:
    answer = await _try(house, operation, None)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert operation.method == "HEAD" or answer.problem


@every_route
async def test_nobody_gets_in_with_a_token_that_is_not_right(
    house: House, people: People, operation: Operation
) -> None:
    id, _, secret = people.admin.partition(".")
    other = people.worker.partition(".")[2]
    digest = _kept_tokens(house)[id]
    for wrong in (
        "x",
        ".",
        id,
        f"{id}.",
        f"{id}.{secret[:-1]}",
        f"{id}.{secret}x",
        f"{id}.{secret.swapcase()}",
        f"{id}.{other}",
        f".{secret}",
        f"{secret}.{id}",
        f"{id}.{digest}",
        f"{id}..{secret}",
        f"{id}.{secret} {secret}",
        "%s" * 100,
        "é",
        "x" * 7000,
    ):
        assert (await _try(house, operation, wrong)).status == 401, wrong


def _kept_tokens(house: House) -> dict[str, str]:
    """What a thief of the file would find."""
    with closing(sqlite3.connect(f"file:{house.data}/tercel.db?mode=ro", uri=True)) as connection:
        return dict(connection.execute("SELECT id, digest FROM token"))


@every_route
async def test_a_token_is_of_no_use_outside_its_header(
    house: House, people: People, operation: Operation
) -> None:
    path = _path(operation)
    mark = "&" if "?" in path else "?"
    for name in ("token", "access_token", "authorization"):
        answer = await house.ask(operation.method, f"{path}{mark}{name}={people.admin}", token=None)
        assert answer.status == 401
    for header in (people.admin, f"Basic {people.admin}", f"Token {people.admin}", f"Bearer{people.admin}"):
        answer = await house.ask(operation.method, path, token=None, headers={"Authorization": header})
        assert answer.status == 401
    cookie = {"Cookie": f"token={people.admin}; Authorization=Bearer {people.admin}"}
    assert (await house.ask(operation.method, path, token=None, headers=cookie)).status == 401


@every_route
async def test_a_revoked_token_is_of_no_use(house: House, people: People, operation: Operation) -> None:
    assert (await _try(house, operation, people.admin)).status != 401
    await _revoke(house, people.admin)
    assert (await _try(house, operation, people.admin)).status == 401
    assert (await _try(house, operation, people.admin)).status == 401


@every_route
async def test_a_token_opens_what_its_role_opens_and_nothing_else(
    house: House, people: People, operation: Operation
) -> None:
    roles = {Role.ADMIN: people.admin, Role.USER: people.ada, Role.WORKER: people.worker}
    for role, token in roles.items():
        answer = await _try(house, operation, token)
        if role in MAY[operation.method, operation.path]:
            assert answer.status not in (401, 403), role
        else:
            assert answer.status == 403, role
            assert f"yours is of role {role}" in answer.problem.detail  # nobody is kept from a HEAD


async def test_only_workers_and_admins_open_a_link(house: House, people: People) -> None:
    for token in (people.worker, people.admin):
        end = await WebSocketDialer(house.url, token).dial()
        await end.close()
    for token in (people.ada, "nobody.knows", people.worker + "x"):
        with pytest.raises(Forbidden):
            await WebSocketDialer(house.url, token).dial()
    assert (await house.ask("GET", "/v1/link", token=None)).status == 401
    assert (await house.ask("GET", "/v1/link", token=people.ada)).status == 403
    assert (await house.ask("GET", "/v1/link", token=people.worker)).problem.status == 400


async def test_what_everybody_may_know_tells_nothing_of_anybody(house: House) -> None:
    await house.submit(name="secret-project")
    for _, path in FOR_ALL:
        answer = await house.ask("GET", path, token=None)
        assert answer.status == 200
        assert b"secret-project" not in answer.body
    assert (await house.ask("GET", "/v1/health", token=None)).json.keys() == {"ok", "version"}


# -- one's own jobs ---------------------------------------------------------------------------------------


@pytest.fixture
async def neighbours(house: House, people: People) -> AsyncIterator[House]:
    """Job 1 is Ada's, job 2 Bob's, job 3 Ada's; task 0 of each runs."""
    worker = await house.worker(cpus=3)
    for number, token in enumerate((people.ada, people.bob, people.ada), 1):
        job = await house.submit(token=token, argv=["true"], name=f"of-{number}", array="0-1%1")
        offer = await worker.offered(job.id)
        await worker.say(Started([offer.attempt]))
    await worker.settled()
    yield house
    await house.sound()


@pytest.mark.parametrize(
    "operation",
    [o for o in OPERATIONS if "{job}" in o.path or "/explain" in o.path or "/events" in o.path],
    ids=lambda o: o.path,
)
async def test_a_job_of_somebody_else_is_as_if_it_were_not_there(
    neighbours: House, people: People, operation: Operation
) -> None:
    assert (await _try(neighbours, operation, people.bob, job=1)).status == 404
    theirs = await _try(neighbours, operation, people.bob, job=3)
    nobodys = await _try(neighbours, operation, people.bob, job=9)
    assert theirs.problem.detail.replace("3", "9") == nobodys.problem.detail
    assert theirs.headers.keys() == nobodys.headers.keys()


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize("select", ["1", "1.0", "1.0-1", "1-1", "3-9"])
async def test_nobody_changes_a_job_of_somebody_else(
    neighbours: House, people: People, path: str, select: str
) -> None:
    answer = await neighbours.ask("POST", path, token=people.bob, json={"select": [select]})
    assert answer.status == 404
    assert answer.problem.field == "select"
    answer = await neighbours.ask("POST", path, token=people.bob, json={"select": ["2.0", select]})
    assert answer.status == 404, "nor is a part of what was asked for done"
    assert (await neighbours.status()).counts.running == 3


async def _cancel(house: House, token: str, select: str) -> int:
    answer = await house.ask("POST", "/v1/cancel", token=token, json={"select": [select]})
    return answer.of(Counted).count


@pytest.mark.parametrize(
    ("select", "adas", "bobs"),
    [("all", (2, 0, 2), (0, 2, 0)), ("last", (0, 0, 2), (0, 2, 0)), ("1-9", (2, 0, 2), (0, 2, 0))],
)
async def test_all_and_last_and_ranges_mean_ones_own_jobs(
    neighbours: House, people: People, select: str, adas: tuple[int, ...], bobs: tuple[int, ...]
) -> None:
    async def cancelled() -> tuple[int, ...]:
        return tuple([(await neighbours.job(id)).counts.cancelled for id in (1, 2, 3)])

    assert await _cancel(neighbours, people.bob, select) == sum(bobs)
    assert await cancelled() == bobs
    assert await _cancel(neighbours, people.ada, select) == sum(adas)
    assert await cancelled() == tuple(a + b for a, b in zip(adas, bobs, strict=True))
    for token, count in ((people.bob, sum(bobs)), (people.ada, sum(adas))):
        # Cancelled tasks are retried when they are named.
        tasks = {"select": ["2.0-1"] if token == people.bob else ["1.0-1", "3.0-1"]}
        assert (await neighbours.ask("POST", "/v1/retry", token=token, json=tasks)).of(Counted).count == count


async def test_an_admin_changes_everybodys_jobs(neighbours: House, people: People) -> None:
    assert await _cancel(neighbours, people.admin, "1.0") == 1
    assert await _cancel(neighbours, people.admin, "last") == 2
    assert await _cancel(neighbours, people.admin, "all") == 3


async def test_lists_and_counts_are_of_ones_own_jobs(neighbours: House, people: People) -> None:
    for token, mine in ((people.ada, [3, 1]), (people.bob, [2]), (people.admin, [3, 2, 1])):
        for query in ("", "?all=true"):
            jobs = await neighbours.get(f"/v1/jobs{query}", JobList, token)
            assert [job.id for job in jobs.jobs] == mine
        status = await neighbours.get("/v1/status", Status, token)
        assert status.jobs == len(mine)
        assert status.counts.running == len(mine)
    assert (await neighbours.get("/v1/jobs?all=true&limit=1", JobList, people.bob)).more is False


async def test_a_key_finds_ones_own_job_only(neighbours: House, people: People) -> None:
    first = await neighbours.submit(token=people.ada, key="k", name="a")
    second = await neighbours.submit(token=people.bob, key="k", name="b")
    assert second.id != first.id
    assert (second.repeated, second.name) == (False, "b")


async def test_two_tokens_of_one_user_are_one_user(house: House) -> None:
    one, two = [(await house.token(Role.USER, "ada")).secret for _ in range(2)]
    job = await house.submit(token=one, key="k")
    assert (await house.submit(token=two, key="k")).id == job.id
    assert await _cancel(house, two, "last") == 1


# -- tokens -----------------------------------------------------------------------------------------------


async def _revoke(house: House, secret: str, token: str = "") -> Answer:
    return await house.ask("DELETE", f"/v1/tokens/{secret.partition('.')[0]}", token=token)


async def test_revoking_closes_what_is_open(house: House, people: People) -> None:
    job = await house.submit(token=people.ada)
    worker = await house.worker("w1")
    stranger = await WebSocketDialer(house.url, people.worker).dial()
    watched = asyncio.create_task(
        house.ask("GET", f"/v1/events?job={job.id}", token=people.ada), name="watching"
    )
    followed = asyncio.create_task(
        house.ask("GET", f"/v1/jobs/{job.id}/tasks/0/logs?follow=true", token=people.ada), name="following"
    )
    offer = await worker.offered()
    await worker.say(Started([offer.attempt]))
    await house.until(lambda: len(house.manager.hub._by_job.get(job.id, ())) == 2, "both are open")
    for secret in (people.ada, people.worker):
        assert (await _revoke(house, secret)).of(Counted).count == 1
    done, _ = await asyncio.wait([watched, followed], timeout=20)
    assert done == {watched, followed}
    for task in done:
        assert task.exception() is not None, "cut off in the middle"
    with pytest.raises(Exception, match="closed the link"):
        await asyncio.wait_for(stranger.receive(), 20)
    await stranger.close()
    assert not worker.over.is_set(), "it came in by another token"
    assert not house.manager.hub._by_job
    await worker.report(offer)
    await house.still_works()


async def test_a_conversation_that_is_ended_from_outside_is_cancelled_like_any_task(house: House) -> None:
    worker_end, manager_end = local_pair()
    conversation = asyncio.create_task(converse(house.manager, manager_end))
    info = WorkerInfo(node="n", capacity=Needs(1000, 0))
    await worker_end.send([Hello(PROTOCOL, "w", "1", info, [])])
    assert isinstance((await worker_end.receive())[0], Welcome)
    conversation.cancel()
    await asyncio.wait([conversation], timeout=20)
    assert conversation.cancelled()
    assert not house.manager.machine.workers["w"].online


async def test_revoking_a_workers_token_leaves_its_tasks_to_the_grace_time(home: Path) -> None:
    async with open_house(home / "data", grace_s=0.0) as house:
        token = await house.token(Role.WORKER, "w")
        worker = Scripted(await house.dial(token.secret), "revoked")
        house._workers.append(worker)
        await worker.join()
        await house.submit()
        await worker.offered()
        await _revoke(house, token.secret)
        await worker.hung_up()
        other = await house.worker("other")
        await other.report(await other.offered())
        assert (await house.ended(1)).counts.finished == 1
        await house.sound()


async def test_revocation_survives_a_restart(home: Path) -> None:
    async with open_house(home / "data") as house:
        kept, revoked = await house.token(Role.USER, "ada"), await house.token(Role.USER, "bob")
        await _revoke(house, revoked.secret)
    async with open_house(home / "data") as house:
        assert (await house.ask("GET", "/v1/status", token=kept.secret)).status == 200
        assert (await house.ask("GET", "/v1/status", token=revoked.secret)).status == 401


async def test_an_admin_may_revoke_the_token_it_came_with(house: House, people: People) -> None:
    assert (await _revoke(house, people.admin, token=people.admin)).status == 200
    assert (await house.ask("GET", "/v1/status", token=people.admin)).status == 401


async def test_a_revoked_token_is_refused_even_if_the_disk_is_full(house: House, people: People) -> None:
    disk = house.disk()
    disk.fail(StoreFull("no room"))
    answer = await _revoke(house, people.ada)
    assert answer.status == 503
    assert "not saved yet" in answer.problem.detail
    assert (await house.ask("GET", "/v1/status", token=people.ada)).status == 401
    assert (await house.ask("POST", "/v1/tokens", json={"role": "user", "user": "x"})).problem.status == 507
    disk.fail(None)
    await house.until(lambda: not house.manager.trouble, "it is saved")
    assert people.ada.partition(".")[0] not in _kept_tokens(house)


async def test_the_managers_own_tokens_cannot_be_revoked_for_they_would_come_back(house: House) -> None:
    for secret in (house.admin, house.served.worker_token):
        answer = await _revoke(house, secret)
        assert answer.status == 403
        assert "keys.json" in answer.problem.detail
    await house.sound()


async def test_a_token_is_revoked_once(house: House, people: People) -> None:
    assert (await _revoke(house, people.ada)).status == 200
    assert (await _revoke(house, people.ada)).status == 404


async def test_new_tokens_have_nothing_in_common(house: House) -> None:
    made = [await house.token(Role.USER, "ada") for _ in range(50)]
    assert len({token.id for token in made}) == 50
    assert len({token.secret.partition(".")[2] for token in made}) == 50
    assert all(len(token.secret.partition(".")[2]) >= 43 for token in made), "256 bits"


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def spy(a: str, b: str) -> bool:
        compared.append((a, b))
        return compare(a, b)

    compare = hmac.compare_digest
    token, text = access.issue(Role.USER, "ada", "", 0.0)
    monkeypatch.setattr(access.hmac, "compare_digest", spy)
    assert access.Tokens([token]).identify(f"{token.id}.guess") is None
    assert access.Tokens([token]).identify(text) is not None
    assert compared == [(access.digest("guess"), token.digest), (token.digest, token.digest)]


def test_what_is_kept_of_recognised_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    token, text = access.issue(Role.USER, "ada", "", 0.0)
    tokens = access.Tokens([token])
    for guess in range(20_000):
        assert tokens.identify(f"{token.id}.{guess}") is None
    assert tokens.identify(text) is not None
    assert len(tokens._recognised) == 1


# -- secrets ----------------------------------------------------------------------------------------------


async def test_secrets_are_nowhere_but_in_the_answer_that_issues_them(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[bytes] = []
    async with open_house(home / "data") as house:
        issued = [await house.token(role, "ada") for role in Role]
        own = [house.admin, house.served.worker_token]
        for token in [*(t.secret for t in issued), *own]:
            for operation in OPERATIONS:
                said.append((await _try(house, operation, token)).body)
                said.append((await _try(house, operation, token + "x")).body)
            said.append((await house.ask("GET", f"/v1/nothing?{token}", token=token)).body)
        said.append((await house.ask("GET", "/v1/tokens")).body)
        said.append((await _revoke(house, issued[0].secret)).body)
        shown = await house.get("/v1/tokens", TokenList)
        assert {token.user for token in shown.tokens} >= {"ada"}
        _nowhere(house.data, issued, own)
    _nowhere(home / "data", issued, own)
    secrets = [text.partition(".")[2] for text in [*(t.secret for t in issued), *own]]
    nothing = b"".join(line for line in said if b"/v1/nothing" not in line)
    for secret in secrets:
        assert secret not in caplog.text
        assert secret.encode() not in nothing


def _nowhere(data: Path, issued: list[IssuedToken], own: list[str]) -> None:
    """The manager's own stand in one file, for its owner's eyes; nothing else holds a secret."""
    for path in data.rglob("*"):
        if not path.is_file():
            continue
        content = path.read_bytes()
        secrets = [token.secret for token in issued] + ([] if path.name == "keys.json" else own)
        for secret in secrets:
            assert secret.partition(".")[2].encode() not in content, path
            assert path.stat().st_mode & 0o077 == 0 or path.name == "lock", path


async def test_files_with_secrets_are_their_owners_alone(house: House) -> None:
    assert stat.S_IMODE(house.data.stat().st_mode) == 0o700
    for path in (house.data / "keys.json", house.data / "tercel.db", house.served.access):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


# -- where it listens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
async def test_listening_for_others_without_a_token_is_refused(home: Path, host: str) -> None:
    with pytest.raises(UsageError, match="tercel token create"):
        async with open_house(home / "data", host=host):
            pass


async def test_listening_for_others_with_a_token_is_allowed(home: Path) -> None:
    async with open_house(home / "data") as house:
        await house.token(Role.WORKER, "w")
    async with open_house(home / "data", host="0.0.0.0") as house:
        assert house.served.url.startswith("http://")


async def test_it_listens_on_the_loopback_only_unless_told(house: House) -> None:
    assert house.url.startswith("http://127.0.0.1:")
