"""The pool's view of one spawner, from its start to its end. A lane whose spawner is lost gets another one.

    running --leave()--> leaving --+
       \\---------- it dies -------+--> end of file -> strays killed, process reaped -> on_gone

Everything happens on the event loop, except the two things that may wait for the kernel: reaping, and the search
for processes that a lost spawner left.
"""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

import msgspec

from tercel.core.commands import plain_argv
from tercel.core.errors import UsageError
from tercel.core.model import Program
from tercel.core.placement import parse_warning
from tercel.core.reports import End, Report
from tercel.runners import cgroups, trees
from tercel.runners.board import NOBODY
from tercel.runners.cgroups import Group
from tercel.runners.channel import Channel, Message
from tercel.runners.contract import Launch, Listener
from tercel.runners.guard import out_of_memory
from tercel.runners.points import Points
from tercel.runners.starting import CONTAINERS, Directories, containers_of, limit_files, start_spawner

_STRAYS_PATIENCE_S = 5.0


class Started(msgspec.Struct, frozen=True, array_like=True, tag=True):
    attempt: int
    pid: int
    started_at: float


class Ended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    reports: list[Report]


class Tail(msgspec.Struct, frozen=True, array_like=True, tag=True):
    attempt: int
    stream: str
    offset: int
    data: bytes


class _Live:
    """An attempt that was given to the spawner and has not ended."""

    __slots__ = ("launch", "pid", "seen_at", "started_at")

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.pid = 0
        """Known of attempts that last, as are the times: `seen_at` is of the monotonic clock."""
        self.started_at = 0.0
        self.seen_at = 0.0


class Lane:
    """Raises OSError when no process can be started."""

    def __init__(
        self,
        directories: Directories,
        node: str,
        listener: Listener,
        on_ended: Callable[[list[Report]], None],
        on_gone: "Callable[[Lane], None]",
    ) -> None:
        self.lost = False
        """Nothing more can be launched in it; `on_gone` follows."""
        self._directories = directories
        self._node = node
        self._listener = listener
        self._on_ended = on_ended
        self._on_gone = on_gone
        self._live: dict[int, _Live] = {}
        self._out_of_memory = False
        """Known once it is gone: the kernel has ended processes of its group."""
        self._job = 0
        self._program: Program | None = None
        """Of the last setup: launches of the same job need no other."""
        self._env: dict[str, str] = {}
        self._uses_containers = False
        self._points: Points | None = None
        """Of the same program, if it is a template and a task has been launched."""
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = start_spawner(theirs.fileno(), directories, node)
                limit_files(self._process.pid)
            except OSError:
                self._socket.close()
                raise
        self._channel = Channel(self._socket.fileno())
        self._loop.add_reader(self._socket, self._on_readable)

    # -- to the spawner -----------------------------------------------------------------------------------

    def launch(self, launches: list[Launch]) -> None:
        messages: list[Message] = []
        for launch in launches:
            if launch.program is not self._program or launch.job != self._job or launch.env != self._env:
                self._job, self._program, self._points = launch.job, launch.program, None
                self._env = launch.env
                if launch.program.container and not self._uses_containers:
                    self._uses_containers = True
                    (self._directories.outputs.parent / CONTAINERS).touch()
                messages.append(_setup(launch))
            if launch.program.template:
                messages += self._filled(launch)
            else:
                argv = plain_argv(launch.line) if launch.line else None
                messages.append(("start", launch.task, launch.attempt, argv, launch.line))
            if launch.links or launch.gathers:
                messages.append(("files", launch.attempt, launch.links, launch.gathers, launch.gather_dir))
            self._live[launch.attempt] = _Live(launch)
        self._send(messages)

    def _filled(self, launch: Launch) -> list[Message]:
        """Of a job of a template. One that this version cannot fill is another worker's, perhaps."""
        try:
            if self._points is None:
                self._points = Points(launch.program)
            return [("start", launch.task, launch.attempt, *self._points.start(launch.task, launch.line))]
        except UsageError as error:
            self._loop.call_soon(self._on_refused, launch.attempt, f"{self._node}: {error}")
            return []

    def _on_refused(self, attempt: int, why: str) -> None:
        if (live := self._live.pop(attempt, None)) is not None:
            self._on_ended([_report(live.launch, End.REFUSED, why)])

    def holds(self, attempt: int) -> bool:
        return attempt in self._live

    @property
    def directory(self) -> bytes | None:
        """With its sandbox in it."""
        return os.fsencode(self._directories.lane)

    def running(self) -> int:
        """The attempt that was announced and has not ended, or NOBODY."""
        return next((attempt for attempt, live in self._live.items() if live.pid), NOBODY)

    def kill(self, attempts: list[int]) -> None:
        self._send([("kill", attempts)])

    def withdraw(self, attempts: list[int]) -> None:
        self._send([("withdraw", attempts)])

    def follow(self, attempt: int, on: bool) -> None:
        self._send([("follow", attempt, on)])

    def warn(self, attempts: list[int]) -> None:
        self._send([("warn", attempts)])

    def end_for_excess(self, attempt: int, what: str, note: str) -> None:
        self._send([("exceeded", attempt, what, note)])

    def leave(self) -> None:
        """No more messages: it ends its attempt at once, sends the reports it has, and ends."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone already

    def kill_process(self) -> None:
        self._process.kill()

    def _send(self, messages: list[Message]) -> None:
        if self.lost:
            return  # the descriptor is closed, and its number may be somebody else's
        self._channel.send(messages)
        if self._channel.unsent:
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        self._channel.flush()
        if not self._channel.unsent:
            self._loop.remove_writer(self._socket)

    # -- from the spawner ---------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            received = self._channel.receive()
        except EOFError:
            self._on_end_of_file()
            return
        for message in msgspec.convert(received, list[Started | Ended | Tail]):
            if type(message) is Ended:
                live = self._live
                self._on_ended([r for r in message.reports if live.pop(r.attempt, None) is not None])
            elif type(message) is Tail:
                self._listener.tail(message.attempt, message.stream, message.offset, message.data)
            elif type(message) is Started and (found := self._live.get(message.attempt)) is not None:
                found.pid = message.pid
                found.started_at = message.started_at
                found.seen_at = time.monotonic()
                self._listener.started([message.attempt])

    def _on_end_of_file(self) -> None:
        self.lost = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._process.kill()
        sessions = {live.pid for live in self._live.values() if live.pid}
        # A daemon thread: one that waits forever (the spawner hangs in the kernel) must not keep the worker alive.
        threading.Thread(target=self._clean_up_after, args=(sessions,), daemon=True).start()

    def _clean_up_after(self, sessions: set[int]) -> None:
        """In a thread. A spawner that ended by itself has killed its tree; one that was killed could not."""
        try:
            if self._process.wait() != 0:
                marker = b"TERCEL_SANDBOX=" + os.fsencode(self._directories.lane) + b"/"
                trees.kill_strays(marker, sessions, _STRAYS_PATIENCE_S)
                if self._uses_containers:
                    containers_of(self._directories, self._node).remove_left(whole_worker=False)
            group = Group(self._directories.groups)
            self._out_of_memory = group.oom_kills() > 0
            group.close()
            for _, path in self._directories.groups.values():
                cgroups.remove(path)
        finally:
            try:
                self._loop.call_soon_threadsafe(self._on_gone, self)
            except RuntimeError:
                pass  # the loop was closed without waiting for us

    def culprit(self) -> int:
        """The attempt under which its spawner was killed, once it is gone; NOBODY if that cannot be told.

        One that was announced ran; so did one that was alone. Of several the first may have ended, its report lost.
        """
        if (self._process.returncode or 0) >= 0:
            return NOBODY
        return self.running() if len(self._live) != 1 else next(iter(self._live))

    def interrupted(self, why: str) -> list[Report]:
        """For what it still held, once it is gone."""
        now = time.monotonic()
        reports = []
        for live in self._live.values():
            report = interrupted(live.launch, f"{self._node}: {why}")
            if live.started_at:
                report = msgspec.structs.replace(
                    report, started_at=live.started_at, wall_s=now - live.seen_at
                )
                if self._out_of_memory and self._process.returncode == -signal.SIGKILL:
                    report = _took_its_spawner(report, live.launch.program.limits.mem_bytes)
            reports.append(report)
        self._live.clear()
        return reports


def _took_its_spawner(report: Report, mem_bytes: int) -> Report:
    """Memory ran out in its group, and the kernel chose the spawner. That is the attempt's doing all the same."""
    excess = out_of_memory(mem_bytes)
    return msgspec.structs.replace(
        report, end=End.EXCEEDED, max_rss_bytes=mem_bytes, note=excess.note, exceeded=excess.what
    )


def interrupted(launch: Launch, note: str, errno: str = "") -> Report:
    return _report(launch, End.INTERRUPTED, note, errno)


def _report(launch: Launch, end: End, note: str, errno: str = "") -> Report:
    ids = (launch.job, launch.task, launch.attempt)
    return Report(*ids, end, 0, time.time(), 0.0, 0.0, 0, note, errno=errno)


def _setup(launch: Launch) -> Message:
    program, limits = launch.program, launch.program.limits
    return (
        "setup",
        launch.job,
        list(program.argv) or plain_argv(program.line),
        program.line,
        program.cwd,
        program.env,
        program.task_id_argument,
        program.time_limit_s,
        program.kill_grace_s,
        program.output_limit_bytes,
        (limits.mem_bytes, limits.millicpus, limits.pids, limits.disk_bytes),
        launch.env,
        warning(program.warn_signal),
        program.isolate,
        program.container,
        program.sandbox.value,
        bool(program.cleanup),
    )


def warning(text: str) -> tuple[int, float]:
    """The signal of USR1@120 and how many seconds before the end it is to be sent. 0: none that is known here."""
    try:
        name, before_s = parse_warning(text) if text else ("", 0.0)
        return (int(signal.Signals[f"SIG{name}"]) if name else 0), before_s
    except (UsageError, KeyError):
        return 0, 0.0
