"""Things outside that break and are mended, and what can be seen of tasks that wait for them meanwhile."""

import errno
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tercel.core.reports import Blame
from tercel.core.states import TaskState
from tercel.stores.codes import BLAMES, STATES
from tercel.wire.api_recovery import ConditionView
from tests.lab import Lab
from tests.processes import eventually

# -- what can be seen -------------------------------------------------------------------------------------


async def condition(lab: Lab, id: int = 1) -> ConditionView | None:
    """As it stands."""
    return await lab.ask(lambda client: client.condition(id))


async def blocked(lab: Lab, job: int, count: int) -> None:
    async def ask() -> bool:
        view = await lab.ask(lambda client: client.job(job))
        return view is not None and view.counts.blocked == count

    await eventually(ask, f"{count} tasks of job {job} are blocked")


async def probed(lab: Lab, times: int, id: int = 1) -> None:
    async def ask() -> bool:
        view = await condition(lab, id)
        return view is not None and view.tests >= times

    await eventually(ask, f"C{id} was tested {times} times")


def ends(lab: Lab, job: int) -> dict[TaskState, int]:
    """How all attempts of a job ended, each as its record says: what was lost or blocked too."""
    found: dict[TaskState, int] = {}
    for table in ("outcome", "history"):
        for code, count in lab.store(f"SELECT state, count(*) FROM {table} WHERE job = {job} GROUP BY state"):
            found[STATES[code]] = found.get(STATES[code], 0) + count
    return found


def blamed(lab: Lab, job: int) -> set[tuple[TaskState, Blame | None, bool]]:
    """Of all attempts of a job that did not end its tasks: how they ended, by whose fault, and whether they spent a retry."""
    rows = lab.store(f"SELECT DISTINCT state, blame, spent FROM history WHERE job = {job}")
    return {(STATES[state], BLAMES.get(blame), bool(spent)) for state, blame, spent in rows}


class Noted:
    """Tests that workers with this `prefix` make, one line for each that begins or is over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.prefix = (sys.executable, str(Path(__file__).with_name("noting_tests.py")), str(path))

    def at_once(self) -> dict[str, int]:
        """By tester: how many tests of it there were at a time, at most."""
        now: dict[str, int] = {}
        most: dict[str, int] = {}
        for line in self._path.read_text().splitlines():
            sign, _, tester = line.partition(" ")
            now[tester] = now.get(tester, 0) + (1 if sign == "+" else -1)
            most[tester] = max(most.get(tester, 0), now[tester])
        return most


# -- what breaks ------------------------------------------------------------------------------------------


@contextmanager
def server(port: int) -> Iterator[None]:
    """One that accepts, and has nothing to say."""
    with socket.create_server(("127.0.0.1", port), backlog=100) as listening:

        def accept() -> None:
            while True:
                try:
                    listening.accept()[0].close()
                except OSError:
                    return  # it is over

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


class Pages(BaseHTTPRequestHandler):
    """Every page is there, or none."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, PageServer)
        server.asked.append((self.headers["User-Agent"].partition("/")[0], self.path))
        self.send_response(server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class PageServer(ThreadingHTTPServer):
    """One that answers, and says that it is too busy."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Pages)
        self.status = 503
        self.asked: list[tuple[str, str]] = []
        """By whom, and for what."""


@contextmanager
def page_server() -> Iterator[PageServer]:
    with PageServer() as pages:
        thread = threading.Thread(target=pages.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield pages
        finally:
            pages.shutdown()
            thread.join()


class Tmpfs:
    """A small file system of its own, that somebody fills with many files."""

    def __init__(self, path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("mounting needs root")
        path.mkdir(mode=0o700)
        options = "size=64m,nr_inodes=4000,mode=700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tercel-test", path], check=True)
        self._path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Also with what those free whom it hits. Not even a directory can be made then."""
        self._ballast.mkdir(exist_ok=True)
        try:
            for number in range(len(list(self._ballast.iterdir())), 5000):
                (self._ballast / str(number)).touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC

    def free(self) -> None:
        shutil.rmtree(self._ballast)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", self._path], check=False)


class Resolver:
    """A server of names on an address of loopback, for whoever runs in a mount namespace of its own (`prefix`)."""

    def __init__(self, directory: Path) -> None:
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            pytest.skip("a mount namespace, and a port below 1024, need root and unshare")
        directory.mkdir()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        draw = random.SystemRandom().randrange
        self._socket.bind((f"127.{draw(1, 255)}.{draw(256)}.{draw(1, 255)}", 53))  # somebody else has another
        (directory / "resolv.conf").write_text(
            f"nameserver {self._socket.getsockname()[0]}\noptions timeout:5 attempts:2\n"
        )
        (directory / "nsswitch.conf").write_text("hosts: files dns\n")
        mounts = "; ".join(
            f"mount --bind {directory / name} /etc/{name}" for name in ("resolv.conf", "nsswitch.conf")
        )
        self.prefix = ("unshare", "--mount", "sh", "-ec", f'{mounts}; exec "$@"', "sh")
        self.broken = True
        """It answers that it cannot answer."""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            asked, who = self._socket.recvfrom(512)
            if not asked:
                return  # see close
            self._socket.sendto(self._answer(asked), who)

    def _answer(self, asked: bytes) -> bytes:
        """RFC 1035: the question again, and one address for whoever asks for such."""
        end = asked.index(b"\0", 12) + 5
        is_a = asked[end - 4 : end - 2] == b"\0\1"
        flags = b"\x81\x82" if self.broken else b"\x81\x80"  # SERVFAIL, or no error
        answers = 1 if is_a and not self.broken else 0
        header = asked[:2] + flags + b"\0\1" + answers.to_bytes(2) + bytes(4)
        address = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton("127.0.0.1")
        return header + asked[12:end] + address * answers

    def close(self) -> None:
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
