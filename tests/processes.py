"""Waiting for what becomes true, and looking at processes.

Waiting is never for time to pass; `eventually` gives up loudly.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = float(os.environ.get("LAB_PATIENCE_S", "120"))


async def eventually(ask: Callable[[], Awaitable[T]], what: str, patience_s: float = PATIENCE_S) -> T:
    """The first true answer."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if answer := await ask():
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError(f"did not happen within {patience_s:g} s: {what}")


async def becomes(ask: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """As `eventually`, of something that can be seen without asking anybody."""

    async def look() -> T:
        return ask()

    return await eventually(look, what, patience_s)


def marked(mark: str) -> dict[int, str]:
    """The living processes with this text in their environment, and what they are. Zombies have no environment."""
    wanted = os.fsencode(mark)
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if wanted in Path(entry.path, "environ").read_bytes():
                    command = Path(entry.path, "cmdline").read_bytes()
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended meanwhile
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """Of all its threads."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (thread / "children").read_text().split())
    return found


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def connections(pid: int, port: int) -> int:
    """How many established connections to that port the process has."""
    inodes = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[3] == "01" and int(columns[2].partition(":")[2], 16) == port:
            inodes.add(f"socket:[{columns[9]}]")
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(entry.readlink()) in inodes
        except FileNotFoundError:
            continue  # closed meanwhile
    return found


class Process:
    """A command, with its stdout and stderr in files."""

    def __init__(self, popen: "subprocess.Popen[bytes]", log: Path, out: Path) -> None:
        self.popen = popen
        self.log = log
        """Its stderr."""
        self.out = out

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def said(self) -> str:
        """On stderr, so far."""
        return self.log.read_text(errors="replace")

    @property
    def wrote(self) -> str:
        """On stdout, so far."""
        return self.out.read_text(errors="replace")

    def kill(self) -> None:
        """-9, and gone when this returns."""
        self.popen.kill()
        self.popen.wait()

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        return self.popen.wait(timeout)

    async def ended(self) -> int:
        """Its exit code, without holding up whatever else this test plays."""
        await becomes(lambda: not self.alive, f"the process ends: {self.popen.args!r}")
        return self.popen.wait()

    async def says(self, text: str) -> None:
        """Until it has said this on stderr or stdout."""
        await becomes(lambda: text in self.said or text in self.wrote or not self.alive, f"it says {text!r}")
        assert text in self.said or text in self.wrote, self.said
