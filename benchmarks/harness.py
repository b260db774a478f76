"""What the benchmark scripts share: a manager of one's own, fake workers, and how figures are printed."""

import asyncio
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tercel.links.access import Access, read_access
from tercel.sdk import AsyncClient

HERE = Path(__file__).parent
MISS = "MISS"
"""What the line of a missed claim begins with."""
_missed: list[str] = []


class Place:
    """A directory of its own for everything that a run leaves behind, and the environment that keeps it there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program: tuple[str, ...] = ("-m", "tercel")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TERCEL_")}
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed Tercel is compiled
        for name in ("XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME"):
            directory = root / name.lower()
            directory.mkdir(exist_ok=True, mode=0o700)
            self.env[name] = str(directory)

    @property
    def access_file(self) -> Path:
        return Path(self.env["XDG_RUNTIME_DIR"]) / "tercel" / "access.json"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, *self.program, *words]

    def run(self, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words), env=self.env, text=True, capture_output=True, **options)  # type: ignore[call-overload,no-any-return]


class Managed:
    def __init__(self, place: Place, process: subprocess.Popen[bytes], access: Access) -> None:
        self.place = place
        self.process = process
        self.access = access

    def client(self) -> AsyncClient:
        return AsyncClient(self.access.url, self.access.token)

    def rss_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    def most_mb(self) -> float:
        """The most that it ever had."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def place() -> Iterator[Place]:
    root = Path(tempfile.mkdtemp(prefix="tercel-bench-"))
    try:
        yield Place(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def manager(at: Place, *words: str, port: int = 0) -> Iterator[Managed]:
    """`tercel manager` (or `tercel up …`) on a free port, or this one, until the block ends."""
    command = at.command(*(words or ("manager",)), "--port", str(port))
    with (at.root / "manager.log").open("wb") as log:
        process = subprocess.Popen(command, env=at.env, stdout=subprocess.DEVNULL, stderr=log)
    try:
        yield Managed(at, process, _wait_access(at, process))
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _wait_access(at: Place, process: subprocess.Popen[bytes]) -> Access:
    for _ in range(1000):
        if process.poll() is not None:
            raise SystemExit(f"the manager ended: {(at.root / 'manager.log').read_text()}")
        access = read_access(at.access_file)
        if access is not None and access.pid == process.pid:
            return access
        time.sleep(0.01)
    raise SystemExit("the manager did not start")


class Fakes:
    """Workers in a process of their own: see fake_workers.py for what they understand."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait_joined(self) -> None:
        """Until all of them are welcome, at first or again."""
        if (said := self._read()) != "joined":
            raise SystemExit(f"the fake workers could not join, but said {said!r}")

    def end(self, count: int) -> None:
        """So many of what each of them runs; what they take from now on ends at once."""
        self._tell(f"end {count}")

    def runs(self) -> tuple[int, int]:
        """How many tasks they have begun, and how often in all."""
        self._tell("runs")
        tasks, runs = self._read().split()
        return int(tasks), int(runs)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def fake_workers(
    managed: Managed, count: int, cpus: int, seconds: float = 0.0, outage: Path | None = None
) -> Iterator[Fakes]:
    """Workers that take offers and report after so many seconds (inf: when they are told), starting nothing.

    While the file `outage` exists all tasks end with exit code 75.
    """
    words = [managed.access.url, count, cpus, seconds, *([outage] if outage is not None else [])]
    process = subprocess.Popen(
        [sys.executable, str(HERE / "fake_workers.py"), *map(str, words)],
        env={**managed.place.env, "TERCEL_TOKEN": managed.access.worker_token},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    fakes = Fakes(process)
    try:
        fakes.wait_joined()
        yield fakes
    finally:
        process.kill()
        process.communicate()


async def finished(client: AsyncClient, job: int) -> None:
    async for event in client.events([job]):
        if event.done:
            return


def rates(measure: "list[float]") -> str:
    return f"median {statistics.median(measure):,.0f}/s (of {', '.join(f'{m:,.0f}' for m in measure)})"


def claim(text: str, figure: float, bar: float, unit: str = "", at_most: bool = False) -> None:
    """One line per claim: what was measured, the bar, and whether it holds."""
    good = figure <= bar if at_most else figure >= bar
    sign = "≤" if at_most else "≥"
    print(f"{'ok  ' if good else MISS} {text}: {figure:,.3g}{unit} (bar {sign} {bar:,g}{unit})", flush=True)
    if not good:
        _missed.append(text)


def end() -> None:
    """The last line of every script: its exit code is 1 if a claim was missed."""
    raise SystemExit(1 if _missed else 0)


def run(main: "asyncio.coroutines.Coroutine[object, object, None]") -> None:  # type: ignore[name-defined]
    asyncio.run(main)
    end()
