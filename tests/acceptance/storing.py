"""A server of files in a process of its own, which can be killed and started again at the same port.

python -m tests.acceptance.storing DIR PORT LOG [HELD]     HELD: the first PUT of this path is never answered
"""

import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from tests.lab import free_port

ROOT = Path(__file__).parents[2]


class Store:
    """From without."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = directory.with_suffix(".log")
        self._log.touch()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, held: str = "") -> None:
        command = [sys.executable, "-m", "tests.acceptance.storing", str(self.directory), str(self.port)]
        self._process = subprocess.Popen(
            [*command, str(self._log), held], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def asked(self, method: str) -> list[str]:
        """The paths for which it was asked so, in order."""
        lines = [line.split(" ", 1) for line in self._log.read_text().splitlines()]
        return [path for asked, path in lines if asked == method]

    def files(self) -> dict[str, bytes]:
        return {path.name.replace("%", "/"): path.read_bytes() for path in self.directory.iterdir()}


class _Pages(BaseHTTPRequestHandler):
    directory: Path
    log: Path
    held = ""

    def _file(self) -> Path:
        path = unquote(self.path)
        with self.log.open("a") as log:
            log.write(f"{self.command} {path}\n")
        self.close_connection = True
        return self.directory / path.strip("/").replace("/", "%")

    def do_GET(self) -> None:
        file = self._file()
        data = file.read_bytes() if file.exists() else b""
        self._answer(200 if file.exists() else 404, data)

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        file = self._file()
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if _Pages.held == unquote(self.path):
            _Pages.held = ""
            self.rfile.read()  # until the other side is gone
            return
        file.write_bytes(data)
        self._answer(201)

    def do_DELETE(self) -> None:
        file = self._file()
        found = file.exists()
        file.unlink(missing_ok=True)
        self._answer(204 if found else 404)

    def _answer(self, status: int, data: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    _Pages.directory, _Pages.log, _Pages.held = Path(sys.argv[1]), Path(sys.argv[3]), sys.argv[4]
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), _Pages)
    print("ready", flush=True)
    server.serve_forever()
