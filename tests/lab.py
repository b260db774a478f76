"""Real processes for tests: managers and workers in a directory of their own, killed and restarted at will.

Every process started here, and all that tasks start, carries the lab's mark in its environment, so that a test can
ask what is left, and nothing outlives it.
"""

import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from tercel.core.errors import PassingFault, PeerError
from tercel.core.states import TaskState
from tercel.links.access import Access, read_access
from tercel.runners import cgroups
from tercel.sdk import AsyncClient
from tercel.wire.api import JobView, Submission, TaskView
from tercel.worker.spool import Spool
from tests.processes import PATIENCE_S, Process, becomes, eventually, marked

T = TypeVar("T")

RECORD = 'echo "$TERCEL_JOB_ID.$TERCEL_TASK_ID" >> ran'
"""A shell line that notes that the task ran: short appends are atomic."""

HASTY = ("--reconnect-most", "0.2s")
"""For workers: back soon after every loss of the link."""


def free_port() -> int:
    """One that is this lab's, also while its manager is down.

    The system gives ports of its own range to whoever asks for any, and to every connection that is made: of
    those, one would be somebody else's by the time a killed manager is started again.
    """
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, max(first_given, 11_000))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Lab:
    """One directory, one manager address, any number of processes."""

    prefix: tuple[str, ...] = ()
    """Comes before every command, to run it elsewhere (in a network namespace, say); before workers' the next."""
    worker_prefix: tuple[str, ...] = ()

    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        self.host = "127.0.0.1"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TERCEL_", "PYTEST_"))}
        self.env["LAB"] = str(root)
        for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME"):
            directory = root / name.lower()
            directory.mkdir(mode=0o700)
            self.env[name] = str(directory)
        self.work = root / "work"
        self.work.mkdir()
        self.data = root / "data"
        self.processes: list[Process] = []

    def close(self) -> None:
        """End everything that carries the lab's mark, spawners and tasks too."""
        for process in self.processes:
            if process.alive:
                process.kill()
        deadline = time.monotonic() + 30
        while left := self.left():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            assert time.monotonic() < deadline, f"cannot be killed: {left}"
            time.sleep(0.01)
        for record in self.root.glob("**/cgroups"):  # of workers that were killed and never came back
            for path in record.read_text().split():
                cgroups.remove(path)

    def story(self) -> str:
        """The last words of every process."""
        parts = []
        for process in self.processes:
            state = "alive" if process.alive else f"exit code {process.popen.returncode}"
            words = " ".join(map(str, process.popen.args)).partition(" -m ")[2]  # type: ignore[arg-type]
            parts.append(f"-- {words} ({process.pid}, {state})\n{process.said[-1500:]}")
        return "\n".join(parts)

    def left(self) -> dict[int, str]:
        """Processes of this lab that live."""
        return marked(f"LAB={self.root}\0")

    # -- commands -----------------------------------------------------------------------------------------

    def start(
        self,
        *command: str,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        prefix: tuple[str, ...] | None = None,
    ) -> Process:
        name = self.root / f"process-{len(self.processes)}"
        log, out = name.with_suffix(".err"), name.with_suffix(".out")
        with log.open("wb") as err_file, out.open("wb") as out_file:
            popen = subprocess.Popen(
                [*(self.prefix if prefix is None else prefix), *command],
                env={**self.env, **(env or {})},
                cwd=cwd or self.work,
                stdout=out_file,
                stderr=err_file,
                stdin=subprocess.DEVNULL,
            )
        process = Process(popen, log, out)
        self.processes.append(process)
        return process

    def tercel(self, *words: str, **options: Any) -> Process:
        """Options as for `start`."""
        return self.start(sys.executable, "-m", "tercel", *words, **options)

    def run(
        self,
        *words: str,
        timeout: float = PATIENCE_S,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        given: str | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """A `tercel` command to its end, with `given` on its stdin."""
        return subprocess.run(
            [*self.prefix, sys.executable, "-m", "tercel", *words],
            env={**self.env, **(env or {})},
            cwd=cwd or self.work,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            input=given or "",
        )

    def ok(self, *words: str, **options: Any) -> str:
        """What a command that must succeed prints."""
        done = self.run(*words, **options)
        assert done.returncode == 0, (words, done.returncode, done.stderr)
        return done.stdout

    def json(self, *words: str, code: int = 0, **options: Any) -> dict[str, Any]:
        """The one document that a command prints with --json."""
        done = self.run("--json", *words, **options)
        assert done.returncode == code, (words, done.returncode, done.stderr, done.stdout)
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["schema"] == 1
        return document

    # -- managers and workers -----------------------------------------------------------------------------

    def manager(self, *words: str) -> Process:
        where = ("--port", str(self.port), "--data", str(self.data))
        return self.tercel("manager", *where, *words)

    async def manager_up(self, *words: str) -> Process:
        process = self.manager(*words)
        await self.listening(process)
        return process

    async def up(self, *words: str) -> Process:
        """A manager that listens, and its worker has joined."""
        process = self.tercel("up", "--port", str(self.port), "--data", str(self.data), *words)
        await self.listening(process)
        await self.workers_online(1)
        return process

    async def listening(self, process: Process) -> Access:
        def ask() -> Access | None:
            assert process.alive, process.said
            access = read_access(self.access_file)
            return access if access is not None and access.pid == process.pid else None

        found = await becomes(ask, "the manager listens")
        assert found is not None
        return found

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def access_file(self) -> Path:
        return Path(self.env["XDG_RUNTIME_DIR"]) / "tercel" / "access.json"

    def access(self) -> Access:
        access = read_access(self.access_file)
        assert access is not None
        return access

    def worker_dir(self, name: str) -> Path:
        return self.root / f"worker-{name}"

    def worker(self, name: str = "w", cpus: int = 2, url: str = "", *words: str) -> Process:
        """A worker in its own directory, which dials the manager (or a proxy in front of it)."""
        where = ("--dir", str(self.worker_dir(name)), "--cpus", str(cpus))
        token = {"TERCEL_TOKEN": self.access().worker_token}
        return self.tercel("worker", url or self.url, *where, *words, env=token, prefix=self.worker_prefix)

    def worker_id(self, name: str = "w") -> str:
        """By which the manager knows it."""
        return (self.worker_dir(name) / "worker-id").read_text().strip()

    def worker_processes(self, name: str) -> dict[int, str]:
        """Task processes of that worker."""
        return marked(f"TERCEL_SANDBOX={self.worker_dir(name)}/")

    # -- what the manager says ----------------------------------------------------------------------------

    def client(self) -> AsyncClient:
        access = self.access()
        return AsyncClient(access.url, access.token)

    async def ask(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T | None:
        """The answer, or None if no manager is there to give one."""
        try:
            async with self.client() as client:
                return await question(client)
        except (PassingFault, PeerError):
            return None

    async def workers_online(self, count: int) -> None:
        async def ask() -> bool:
            pool = await self.ask(lambda client: client.pool())
            return pool is not None and pool.online == count

        await eventually(ask, f"{count} workers are connected")

    async def submit(self, submission: Submission) -> int:
        """As a stubborn client does: again under the same key until it is acknowledged."""
        assert submission.key

        async def ask() -> int | None:
            submitted = await self.ask(lambda client: client.submit(submission))
            return None if submitted is None else submitted.id

        id = await eventually(ask, "a manager accepts the job")
        assert id is not None
        return id

    def shell(self, line: str, **more: Any) -> Submission:
        """A job of a shell line in the lab's directory."""
        more.setdefault("key", os.urandom(8).hex())
        return Submission(line=line, cwd=str(self.work), **more)

    def lines(self, lines: list[str], **more: Any) -> Submission:
        """A job of one shell line per task."""
        more.setdefault("key", os.urandom(8).hex())
        return Submission(lines=lines, cwd=str(self.work), **more)

    async def done(self, ids: Iterable[int], patience_s: float = PATIENCE_S) -> list[JobView]:
        """Until these jobs have ended, whoever is killed meanwhile."""
        wanted = list(ids)

        async def all_ended(client: AsyncClient) -> list[JobView]:
            views = [await client.job(id) for id in wanted]
            return views if all(view.ended_at is not None for view in views) else []

        async def ask() -> list[JobView] | None:
            return await self.ask(all_ended)

        views = await eventually(ask, f"jobs {wanted} end", patience_s)
        assert views is not None
        return views

    async def running(self, id: int, count: int) -> None:
        """Until the manager knows that so many tasks of the job run."""

        async def ask() -> bool:
            view = await self.ask(lambda client: client.job(id))
            return view is not None and view.counts.running >= count

        await eventually(ask, f"{count} tasks of job {id} run")

    # -- what tasks leave behind --------------------------------------------------------------------------

    def runs(self) -> dict[str, int]:
        """How often each task ran, by what tasks appended to `ran` (see RECORD)."""
        path = self.work / "ran"
        counts: dict[str, int] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            counts[line] = counts.get(line, 0) + 1
        return counts

    async def ran(self, *names: str) -> None:
        """Until these tasks have noted that they ran."""
        await becomes(lambda: set(names) <= self.runs().keys(), f"{', '.join(names[:3])}… run")

    def reports_owed(self, name: str = "w") -> int:
        """How many reports are in the worker's spool; told by a copy, as the worker writes on."""
        copy = self.root / "spool-copy"
        copy.write_bytes((self.worker_dir(name) / "spool").read_bytes())
        with closing(Spool(copy)) as spool:
            return len(spool.load())

    # -- what is on the manager's disk --------------------------------------------------------------------

    def store(self, query: str) -> list[tuple[Any, ...]]:
        """Asks the manager's file itself, as another process."""
        with closing(sqlite3.connect(self.data / "tercel.db", timeout=30)) as connection:
            return connection.execute(query).fetchall()

    def watch_records(self) -> None:
        """From now on the file itself notes every record of a task that takes the place of an earlier one."""
        with closing(sqlite3.connect(self.data / "tercel.db", timeout=30)) as connection:
            connection.executescript(_WITNESS)

    def replaced_records(self) -> list[tuple[Any, ...]]:
        """Since `watch_records`: (job, task, attempt, the attempt whose record it replaced)."""
        return self.store("SELECT * FROM replaced")


_WITNESS = """
    CREATE TABLE replaced (job INTEGER, task INTEGER, attempt INTEGER, earlier INTEGER);
    CREATE TRIGGER outcome_replaced BEFORE INSERT ON outcome BEGIN
        INSERT INTO replaced
            SELECT NEW.job, NEW.task, NEW.attempt, attempt FROM outcome
            WHERE job = NEW.job AND task = NEW.task;
    END;
"""


async def all_tasks(client: AsyncClient, job: int) -> list[TaskView]:
    found: list[TaskView] = []
    while True:
        page = await client.tasks(job, after=found[-1].task if found else None, limit=1000)
        found += page.tasks
        if not page.more:
            return found


async def assert_all_finished(client: AsyncClient, job: int, tasks: int) -> None:
    """Every task has its one record, which says that it finished."""
    listed = await all_tasks(client, job)
    assert [task.task for task in listed] == list(range(tasks))
    assert {task.state for task in listed} == {TaskState.FINISHED}


def names(job: int, tasks: int) -> set[str]:
    return {f"{job}.{task}" for task in range(tasks)}
