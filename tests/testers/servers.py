"""Real servers on loopback, in threads and processes, so that a test's event loop is its own."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SSHD = "/usr/sbin/sshd"
Serve = Callable[[socket.socket], None]


def hold(connection: socket.socket) -> None:
    """Accept, and say nothing until the other side closes."""
    while connection.recv(4096):
        pass


def say(data: bytes) -> Serve:
    def serve(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.recv(1)

    return serve


@contextlib.contextmanager
def listening(serve: Serve = hold, host: str = "127.0.0.1") -> Iterator[int]:
    """A port at which each connection is served in a thread."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=512) as server:
        connections: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return  # closed
                connections.append(connection)
                threading.Thread(target=_served, args=(serve, connection), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()


def _served(serve: Serve, connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        serve(connection)
        connection.close()


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port at which nobody listens, and that nobody else gets meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


class Pages(BaseHTTPRequestHandler):
    """Answers /STATUS with that status; ?after=X adds Retry-After."""

    asked: list[str]

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_response(int(path.strip("/") or 200))
        if query.startswith("after="):
            self.send_header("Retry-After", query.removeprefix("after=").replace("_", " "))
        if path == "/302":
            self.send_header("Location", "/500")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def http(tls: ssl.SSLContext | None = None) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.asked = []  # type: ignore[attr-defined]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def certificate(directory: Path, name: str = "localhost") -> tuple[Path, ssl.SSLContext]:
    """One that signs itself, and a server's context with it."""
    key, cert = directory / "key.pem", directory / "cert.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make.split(), *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


class Sshd:
    """A server of OpenSSH, with a key that it lets in. It can be stopped and started again."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        if not os.access(SSHD, os.X_OK) or shutil.which("ssh-keygen") is None:
            pytest.skip("needs OpenSSH's server: apt-get install openssh-server")
        self.directory = directory
        directory.mkdir(mode=0o700)
        for name in ("host", "id", "stranger"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True
            )
        shutil.copy(directory / "id.pub", directory / "authorized_keys")
        with socket.create_server(("127.0.0.1", port)) as free:
            self.port = free.getsockname()[1]
        (directory / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nPidFile none\n"
            f"AuthorizedKeysFile {directory}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 100\n"
            "Subsystem sftp internal-sftp\n"
        )
        self._log = (directory / "log").open("wb")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        command = [SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config")]
        self._process = subprocess.Popen(command, stderr=self._log, stdin=subprocess.DEVNULL)
        self._await()

    def _await(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
                return
            assert self._process.poll() is None, (self.directory / "log").read_text()
            time.sleep(0.02)
        raise AssertionError("sshd does not listen")

    def options(self, key: str = "id") -> tuple[str, ...]:
        """For `ssh`: this key and no other, and nothing of whoever runs the test."""
        known = self.directory / "known_hosts"
        known.write_text(f"[127.0.0.1]:{self.port} {(self.directory / 'host.pub').read_text()}")
        config = self.directory / f"config-{key}"
        config.write_text(
            f"Host *\n  IdentityFile {self.directory}/{key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
        )
        return ("-F", str(config))

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.stop()
        self._log.close()


@contextlib.contextmanager
def postgresql() -> Iterator[int]:
    """The real one, if it is installed."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not programs:
        pytest.skip("needs PostgreSQL")
    bin = programs[-1].parent
    with tempfile.TemporaryDirectory(prefix="tercel-pg-") as directory:  # another user must reach it
        run_as: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(directory, "postgres")
            run_as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--reset-env"]
        data = ["-D", f"{directory}/data"]
        init = [*run_as, f"{bin}/initdb", *data, "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run(init, check=True, capture_output=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = [
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            f"port={port}",
            "-c",
            "fsync=off",
            "-k",
            directory,
        ]
        with Path(directory, "log").open("wb") as log:
            process = subprocess.Popen([*run_as, f"{bin}/postgres", *data, *settings], stderr=log, stdout=log)
        try:
            yield port
        finally:
            process.terminate()
            process.wait()
