"""The OpenAPI document is honest: what it allows is understood, what it forbids is refused, what it promises is kept.

Schemathesis reads the manager's own document and makes requests from it, good and bad, always the same ones.
"""

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tercel.manager.openapi import document
from tercel.manager.routes import OPERATIONS, PUBLIC
from tests.api.conftest import make_home
from tests.api.house import House, open_house

pytestmark = pytest.mark.must("f")


class Served:
    """A manager on a thread of its own, for clients that block."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._ready = threading.Event()
        self._done: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self.house: House
        self._thread = threading.Thread(target=asyncio.run, args=[self._serve()])

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        async with open_house(self._data) as self.house:
            worker = await self.house.worker()
            await self.house.submit(array="0-2")
            for code in (0, 1, 0):
                await worker.report(await worker.offered(), code=code)
            await worker.close()
            self._ready.set()
            await self._done.wait()

    def start(self) -> "Served":
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(30)

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        home = make_home(tmp_path_factory.mktemp("openapi"), patch)
        served = Served(home / "data").start()
        served.house.manager.machine.pin(1)  # as whoever is about to need it: cleaning leaves it
        # There are jobs whichever test comes first: or an order of its own would decide what a question meets.
        for _ in range(2):
            served.run(served.house.submit())
        served.run(served.house.ask("POST", "/v1/cancel", json={"select": ["all"]}))
        yield served
        served.run(served.house.still_works())
        served.stop()


def test_the_document_is_served_as_it_is_generated(served: Served) -> None:
    answer = requests.get(f"{served.house.url}/v1/openapi.json", timeout=20)
    assert answer.json() == DOCUMENT


DOCUMENT = msgspec.json.decode(msgspec.json.encode(document(PUBLIC + OPERATIONS)))
api = schemathesis.openapi.from_dict(DOCUMENT)


@schemathesis.serializer("application/msgpack")
def _pack(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:  # a number that JSON can write and msgpack cannot
        return b"\xc1"


SUBMISSION = {
    *("gpus", "mem_growth", "resources", "where", "rank", "isolate", "container", "warn_signal"),
    *(
        "argv",
        "line",
        "lines",
        "array",
        "env",
        "name",
        "cwd",
        "grid",
        "items",
        "template",
        "function",
        "calls",
    ),
    *("edges", "after", "queue", "max_fails", "retry_rules", "block_on", "task_id_argument"),
    *("inputs", "outputs"),
}
BEYOND_A_SCHEMA = {
    "POST /v1/jobs": SUBMISSION,
    "POST /v1/flows": {"jobs", "key"},
    "GET /v1/jobs/{job}/tasks": {"tasks"},
    "GET /v1/jobs/{job}/values": {"tasks"},
    "PUT /v1/values/{key}": {"key"},
    "POST /v1/cancel": {"select", "reason"},
    "POST /v1/retry": {"select", "reason"},
    "POST /v1/rollback": {"select", "reason", "force"},
    "POST /v1/hold": {"select", "reason"},
    "POST /v1/release": {"select", "reason"},
    "POST /v1/revise": {"select", "reason", "gpus", "mem_growth", "resources", "where", "rank", "block_on"},
    "POST /v1/conditions/{condition}/release": {"count"},
    "POST /v1/conditions/{condition}/fail": {"why"},
    "PUT /v1/queues/{queue}": {"queue", "reason", "weight"},
    "POST /v1/workers/{worker}/quarantine": {"reason"},
    "POST /v1/workers/{worker}/tags": {"add", "remove"},
    "POST /v1/reservations": {"queue", "user", "for_s", "where"},
    "POST /v1/tokens": {"user", "note"},
    "POST /v1/switches": {"name", "why"},
    "GET /v1/snapshot": {"select"},
    "POST /v1/restore": {"snapshot"},
    "GET /v1/files": {"prefix", "pattern", "after"},
    "GET /v1/files/one": {"name"},
    "GET /v1/jobs/{job}/files": {"tasks", "after"},
    "POST /v1/files": {"name", "urls"},
    "POST /v1/files/checked": {"name", "url", "bad"},
    "DELETE /v1/files": {"name", "url"},
    "PUT /v1/contents/{digest}": {"digest"},
    "POST /v1/fork": {"select", "at", "changes", "name", "queue"},
}
"""Fields with rules that a schema cannot tell: 9-0 is no range, a blank is no command, characters are not bytes."""
WHOLE = re.compile(r"Expected `int( \| null)?`, got `float`")
"""To a schema 5.0 is a whole number."""
NOT_PACKED = "the request is not msgpack"
"""To a schema any bytes are."""


@api.parametrize()
@settings(
    max_examples=30,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_does_what_the_document_says(case: schemathesis.Case, served: Served) -> None:
    headers = {"Authorization": f"Bearer {served.house.admin}"}
    response = case.call(base_url=served.house.url, headers=headers, timeout=20)
    beyond = BEYOND_A_SCHEMA.get(case.operation.label, set())
    excluded = [positive_data_acceptance] if beyond else []
    if any(value in ([], {}) for value in (case.query or {}).values()):
        excluded.append(negative_data_rejection)  # of an empty list nothing is sent: what was wrong is lost
    case.validate_response(response, headers=headers, excluded_checks=excluded)
    if response.status_code >= 400:
        assert response.headers["content-type"] == ["application/problem+json"]
    if response.status_code >= 400 and case.method != "HEAD":
        problem = response.json()
        assert problem["detail"]
        assert problem["status"] == response.status_code
        if beyond and response.status_code == 400 and case.meta and case.meta.generation.mode.is_positive:
            field = re.split(r"[.\[]", problem["field"])[0]
            assert field in beyond or WHOLE.search(problem["detail"]) or NOT_PACKED in problem["detail"], (
                problem
            )
    if case.method == "POST":
        # What is unfinished would keep streams of events open.
        requests.post(f"{served.house.url}/v1/cancel", json={"select": ["all"]}, headers=headers, timeout=20)


@pytest.mark.parametrize(
    ("path", "pinned"),
    [
        ("/v1/jobs/{job}", {"path_parameters": {"job": 1}}),
        ("/v1/jobs/{job}/tasks", {"path_parameters": {"job": 1}}),
        ("/v1/jobs/{job}/tasks/{task}", {"path_parameters": {"job": 1, "task": 1}}),
        ("/v1/jobs/{job}/history", {"path_parameters": {"job": 1}}),
        ("/v1/jobs/{job}/tasks/{task}/history", {"path_parameters": {"job": 1, "task": 1}}),
        ("/v1/jobs/{job}/tasks/{task}/logs", {"path_parameters": {"job": 1, "task": 1}}),
        ("/v1/jobs/{job}/values", {"path_parameters": {"job": 1}}),
        ("/v1/explain", {"query": {"task": "1.1"}}),
        ("/v1/explain", {"query": {"task": "1"}}),
        ("/v1/events", {"query": {"job": [1], "tasks": "true"}}),
        ("/v1/pool", {}),
        ("/v1/status", {}),
        ("/v1/tokens", {}),
        ("/v1/jobs", {"query": {"all": "true"}}),
    ],
)
def test_what_is_there_is_shown_as_the_document_says(
    path: str, pinned: dict[str, Any], served: Served
) -> None:
    """Numbers drawn at random hardly ever name a job that exists; these do."""
    headers = {"Authorization": f"Bearer {served.house.admin}"}
    shown: list[int] = []

    @given(api[path]["GET"].as_strategy(**pinned))
    @settings(
        max_examples=15,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def body(case: schemathesis.Case) -> None:
        response = case.call(base_url=served.house.url, headers=headers, timeout=20)
        case.validate_response(response, headers=headers, excluded_checks=[positive_data_acceptance])
        shown.append(response.status_code)

    body()
    assert 200 in shown


NUMBERS = [
    (field, limit)
    for field, limit in DOCUMENT["components"]["schemas"]["Submission"]["properties"].items()
    if "maximum" in limit
]


@pytest.mark.parametrize(("field", "limit"), NUMBERS, ids=[field for field, _ in NUMBERS])
def test_the_limits_in_the_document_are_those_of_the_code(
    served: Served, field: str, limit: dict[str, Any]
) -> None:
    step = 0.0005 if field == "cpus" else 1
    for value, fits in (
        (limit["minimum"], True),
        (limit["maximum"], True),
        (limit["minimum"] - step, False),
        (limit["maximum"] + 1, False),
    ):
        body = {"argv": ["true"], "mem_bytes": 2**20, field: value}  # mem_growth needs some
        answer = served.run(served.house.ask("POST", "/v1/jobs", json=body))
        assert answer.status == (201 if fits else 400)
        if not fits:
            assert answer.problem.field == field
    served.run(served.house.ask("POST", "/v1/cancel", json={"select": ["all"]}))


def test_every_reference_in_the_document_leads_somewhere() -> None:
    names = set(DOCUMENT["components"]["schemas"])
    found = set(re.findall(r'"\$ref":"#/components/schemas/(\w+)"', msgspec.json.encode(DOCUMENT).decode()))
    assert found == names
    ids = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids)) == len(OPERATIONS) + len(PUBLIC)
