"""A server of HTTP with ranges, that misbehaves as it is told; moto's S3. In threads, or a process that can be killed.

python -m tests.data.servers DIRECTORY        prints its port
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from blake3 import blake3

ROOT = Path(__file__).parent.parent.parent
TOKEN = "a-token-of-the-manager"
ENDLESS_MOST = 64 << 20
"""What is endless for a test ends all the same if nobody hangs up."""


class Web(BaseHTTPRequestHandler):
    """The files of `directory`, by GET, HEAD, PUT, DELETE. `faults[path]`: what it does instead, the first that is left."""

    protocol_version = "HTTP/1.1"
    server: "WebServer"

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        self.server.asked.append((self.command, self.path, dict(self.headers.items())))
        self.close_connection = True
        what, rest = self.server.fault(path)
        file = self.server.file(path)
        if path.startswith("/v1/contents/") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._status(401)
        elif what.isdecimal():
            self._status(int(what), rest)
        elif what == "loris":
            self._trickle()
        elif not file.exists():
            self._status(404)
        elif what == "endless":
            self._flood()
        else:
            self._serve(file.read_bytes(), what, int(rest or 0))

    do_HEAD = do_GET

    def _serve(self, data: bytes, what: str, at: int) -> None:
        etag = f'"{blake3(data).hexdigest(8)}"'
        begin, end, status = 0, len(data), 200
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and what != "no-ranges" and self.headers.get("If-Range", etag) == etag:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end, status = int(first), min(int(last or len(data)) + 1, len(data)), 206
            if begin >= len(data):
                self._status(416)
                return
        body = data[begin:end]
        if what == "flip":
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        self.send_response(status)
        says = {"says-more": len(body) + 10, "says-less": len(body) - 10}.get(what, len(body))
        self.send_header("Content-Length", str(says))
        if what != "no-ranges":
            self.send_header("ETag", etag)
            self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        if what == "slow":  # as a distant server that gives each connection so much and no more
            for n in range(0, len(body), 1 << 16):
                self.wfile.write(body[n : n + (1 << 16)])
                time.sleep(0.002)
            return
        self.wfile.write(body[:at] if what in ("cut", "hold") else body)
        if what == "hold":
            self.wfile.flush()
            self.server.let_go.wait()

    def _status(self, status: int, headers: str = "") -> None:
        self.send_response(status)
        for line in filter(None, headers.split(";")):
            self.send_header(*line.split("=", 1))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _trickle(self) -> None:
        """Headers, a byte at a time, until the other side has enough."""
        with contextlib.suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self.server.let_go.wait(0.05):
                self.wfile.write(b"x")

    def _flood(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(ENDLESS_MOST >> 16):
                self.wfile.write(b"x" * (1 << 16))

    def do_PUT(self) -> None:
        path = unquote(self.path)
        self.server.asked.append((self.command, self.path, dict(self.headers.items())))
        self.close_connection = True
        what, rest = self.server.fault(path)
        if what.isdecimal():
            self._status(int(what), rest)
            return
        size = int(self.headers["Content-Length"])
        data = self.rfile.read(size)
        is_kept = path.startswith("/v1/contents/")
        if len(data) < size:
            return  # half a body is no request
        if is_kept and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._status(401)
        elif is_kept and f"blake3:{blake3(data).hexdigest()}" != path.rpartition("/")[2]:
            self._status(400)
        else:
            self.server.file(path).write_bytes(bytes([data[0] ^ 1]) + data[1:] if what == "flip" else data)
            self._status(201)

    def do_DELETE(self) -> None:
        self.close_connection = True
        path = self.server.file(unquote(self.path))
        is_there = path.exists()
        path.unlink(missing_ok=True)
        self._status(204 if is_there else 404)

    def log_message(self, *_: object) -> None:
        pass


class WebServer(ThreadingHTTPServer):
    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), Web)
        self.directory = directory
        self.faults: dict[str, list[str]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.let_go = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def file(self, path: str) -> Path:
        return self.directory / path.strip("/").replace("/", "%2F")

    def fault(self, path: str) -> tuple[str, str]:
        """What is to go wrong now."""
        faults = self.faults.get(path, [])
        what, _, rest = (faults.pop(0) if faults else "").partition(" ")
        return what, rest

    def handle_error(self, *_: object) -> None:
        """Whoever hangs up in the middle is what some tests are about."""


@contextlib.contextmanager
def web(directory: Path) -> Iterator[WebServer]:
    server = WebServer(directory)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def web_process(directory: Path, *faults: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """One that can be killed. `faults`: `/path=hold 1000`, for the first that asks."""
    command = [sys.executable, "-m", "tests.data.servers", str(directory), *faults]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@contextlib.contextmanager
def s3() -> Iterator[str]:
    """moto's, with the bucket `lab`. Its URL is for AWS_ENDPOINT_URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(urllib.request.Request(f"{url}/lab", method="PUT"), timeout=5):
                    break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "moto does not start"
                time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()


def main() -> None:
    server = WebServer(Path(sys.argv[1]))
    for fault in sys.argv[2:]:
        path, _, what = fault.partition("=")
        server.faults[path] = [what]
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
