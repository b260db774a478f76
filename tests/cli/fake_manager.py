"""A manager that says what a test tells it to, and remembers what it was asked. Real sockets, no rules.

    manager.says("GET", "/v1/status", STATUS)            a value, as JSON
    manager.says("GET", "/v1/events", stream(b"data:…"))  pieces, each its own chunk
    manager.says("POST", "/v1/jobs", DROP, SUBMITTED)     one answer after the other; the last one stays

A callable answer is given the request.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from tercel.core.conditions import Place
from tercel.core.model import Role
from tercel.core.presence import WorkerState
from tercel.core.states import TaskState
from tercel.links.access import Access, write_access
from tercel.wire import api

TOKEN = "0a1b.admin-secret"
WORKER_TOKEN = "2c3d.worker-secret"


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes
    connection: int

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Stream(NamedTuple):
    """Pieces of an answer. A callable piece is called when its turn comes: to wait, or to make something happen."""

    pieces: list[bytes | Callable[[], object]]
    whole: bool = True
    """False: the connection breaks instead of ending."""


class Drop(NamedTuple):
    """The connection breaks without an answer."""


DROP = Drop()
Answer = Any


def stream(*pieces: bytes | Callable[[], object], whole: bool = True) -> Stream:
    return Stream(list(pieces), whole)


def events(*many: api.Event, whole: bool = True) -> Stream:
    return stream(*(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in many), whole=whole)


def problem(status: int, detail: str, field: str = "") -> Callable[[Request], tuple[int, bytes]]:
    body = msgspec.json.encode(api.Problem(title="no", status=status, detail=detail, field=field))
    return lambda request: (status, body)


class FakeManager:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers: dict[tuple[str, str], list[Answer]] = {}
        self._lock = threading.Lock()
        self._connections = 0
        manager = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.number = manager._next_connection()

            def do_GET(self) -> None:
                manager._answer(self, self.number)

            do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign,assignment]
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.says("GET", "/v1/health", api.Health(ok=True, version="0.1.0"))

    def says(self, method: str, path: str, *answers: Answer) -> None:
        self._answers[method, path] = list(answers)

    def asked(self, method: str, path: str) -> list[Request]:
        return [r for r in self.requests if (r.method, r.path) == (method, path)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next_connection(self) -> int:
        with self._lock:
            self._connections += 1
            return self._connections

    def _answer(self, handler: BaseHTTPRequestHandler, connection: int) -> None:
        parts = urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Request(handler.command, parts.path, parse_qs(parts.query), headers, body, connection)
        with self._lock:
            self.requests.append(request)
            answers = self._answers.get((request.method, request.path), [problem(404, "no such path")])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer = answer(request)
        match answer:
            case Drop():
                self._break(handler)
            case Stream(pieces, whole):
                self._stream(handler, pieces, whole)
            case (int() as status, bytes() as content):
                self._whole(handler, status, content)
            case _:
                self._whole(handler, 200, msgspec.json.encode(answer))

    def _whole(self, handler: BaseHTTPRequestHandler, status: int, content: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)

    def _stream(
        self, handler: BaseHTTPRequestHandler, pieces: list[bytes | Callable[[], object]], whole: bool
    ) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in pieces:
            if callable(piece):
                piece()
            elif piece:
                handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                handler.wfile.flush()
        if whole:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            self._break(handler)

    def _break(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        try:
            handler.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


@contextmanager
def fake_manager(access_file: Path | None = None) -> Iterator[FakeManager]:
    manager = FakeManager()
    write_access(
        Access(url=manager.url, token=TOKEN, worker_token=WORKER_TOKEN, pid=os.getpid(), data="/data"),
        access_file,
    )
    try:
        yield manager
    finally:
        manager.close()


# -- canned values ----------------------------------------------------------------------------------------

STATUS = api.Status(
    version="0.1.0",
    epoch=1,
    started_at=1_700_000_000.0,
    user="ada",
    role=Role.ADMIN,
    jobs=1,
    counts=api.Counts(ready=3, running=2, finished=5),
    workers=1,
    cpus=2.0,
)
POOL = api.Pool(
    workers=[
        api.WorkerView(
            id="vm-1",
            node="vm",
            state=WorkerState.BUSY,
            since=1_700_000_000.0,
            cpus=2.0,
            mem_bytes=8 * 2**30,
            running=2,
            queued=1,
            completed=7,
            version="0.1.0",
        )
    ],
    online=1,
    cpus=2.0,
)


def job(id: int = 37, tasks: int = 10, **more: Any) -> api.JobView:
    fields: dict[str, Any] = {
        "id": id,
        "name": "fit",
        "owner": "ada",
        "command": "./fit.sh",
        "tasks": tasks,
        "array": f"0-{tasks - 1}" if tasks > 1 else "",
        "counts": api.Counts(finished=tasks),
        "submitted_at": 1_700_000_000.0,
        "ended_at": 1_700_000_060.0,
        "priority": 1000,
        "cpus": 1.0,
        "mem_bytes": 0,
        "time_limit_s": 0.0,
        "retries": 0,
        "cwd": "/work",
    }
    return api.JobView(**(fields | more))


def condition(id: int = 3, **more: Any) -> api.ConditionView:
    now = time.time()
    fields: dict[str, Any] = {
        "id": id,
        "owner": "ada",
        "tester": "tcp:licence.lab:27000",
        "place": Place.SITE,
        "where": "lab1",
        "policy": "every 1m for 2d",
        "opened_at": now - 3600,
        "tests": 60,
        "tested_at": now - 7230,
        "next_test_at": now + 10_830,
        "gives_up_at": now + 174_600,
        "note": "connection refused",
        "next": "tested again in 3 h, given up in 2 d",
        "paused": "",
        "wave": 10,
        "testing": False,
        "tasks": 12,
        "job_count": 2,
        "jobs": [
            api.ConditionJob(job=37, count=10, tasks="0-9"),
            api.ConditionJob(job=38, count=2, tasks="4,7"),
        ],
        "closed_at": None,
        "closed": "",
    }
    return api.ConditionView(**(fields | more))


def attempt(**more: Any) -> api.AttemptView:
    fields: dict[str, Any] = {
        "attempt": 4294967296,
        "state": TaskState.FINISHED,
        "worker": "vm-1",
        "end": "exited",
        "code": 0,
        "note": "",
        "started_at": 1_700_000_000.0,
        "ended_at": 1_700_000_001.0,
        "wall_s": 1.0,
        "cpu_s": 0.5,
        "max_rss_bytes": 10 * 2**20,
        "out_bytes": 3,
        "err_bytes": 0,
        "out_cut": False,
        "err_cut": False,
    }
    return api.AttemptView(**(fields | more))


def task(number: int, job: int = 37, state: TaskState = TaskState.FINISHED, **more: Any) -> api.TaskView:
    return api.TaskView(id=f"{job}.{number}", job=job, task=number, state=state, **more)
