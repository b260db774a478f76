"""The lane's view of one interpreter, from its start to its end. What it is given, and why it ends, is the lane's.

    running --leave()--> leaving --+
       \\---------- it dies -------+--> strays killed, outputs of the call it died in taken -> on_gone

A thread waits for its end: the end of file on its channel would not come while a child that it forked lives on.
"""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from fcntl import F_SETFL, fcntl
from pathlib import Path

import msgspec

import tercel
from tercel.core.model import Program
from tercel.core.reports import Output, Report
from tercel.runners import call_files, cgroups, outputs, trees
from tercel.runners.board import NOBODY, Board, new_board
from tercel.runners.cgroups import Group
from tercel.runners.channel import Channel, Message
from tercel.runners.contract import Launch
from tercel.runners.files import Fault
from tercel.runners.guard import Limits
from tercel.runners.lane import Ended
from tercel.runners.reports import Config
from tercel.runners.sandbox import Sweeper, last_sandbox
from tercel.runners.starting import Directories, config_words, limit_files, own_environment
from tercel.runners.surroundings import settle_written

_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from tercel.runners.interpreter import main; main()"
_STRAYS_PATIENCE_S = 5.0
_SWEEP_S = 2.0
_WORDS_BYTES = 300
_PUNCH_HOLE = 1 | 2
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE."""

_libc = ctypes.CDLL(None)


class Left(msgspec.Struct, frozen=True):
    """What an interpreter leaves, once it is gone."""

    attempt: int
    """The call it died in, or NOBODY."""
    since: float
    until: float
    """Of the monotonic clock, both."""
    status: int
    """As of waitpid."""
    reports: list[Report]
    """Of calls that had ended."""
    out: Output | None
    err: Output | None
    notes: list[str]
    out_of_memory: bool
    """The kernel has ended processes of its group."""
    last_words: str
    """The last line on its stderr, if it did not die in a call: why it could not go on."""
    gathered: tuple[tuple[str, int], ...] = ()
    """Of what the call it died in has left: see Report."""
    unsaved: tuple[str, str] | None = None
    """Why that could not be gathered, if the call is to be made again for it: a note, and the system's reason."""


class InterpreterProcess:
    """Raises OSError when no process can be started, ValueError when none can be given such variables or paths."""

    def __init__(
        self,
        directories: Directories,
        node: str,
        launch: Launch,
        on_reports: Callable[[list[Report]], None],
        on_gone: "Callable[[InterpreterProcess, Left], None]",
        dying: Callable[[int], tuple[Launch | None, bool]],
    ) -> None:
        """`dying` is asked in another thread for the call that it died in, and whether that was cancelled."""
        self.gone = False
        """It does nothing more; `on_gone` follows."""
        self.leaving = False
        self._words = config_words(directories, node)
        self._config = Config(*self._words)
        self.limits = Limits(*msgspec.structs.astuple(launch.program.limits))
        self.group = Group(directories.groups)
        self._on_reports = on_reports
        self._on_gone = on_gone
        self._dying = dying
        self._loop = asyncio.get_running_loop()
        self._open: list[int] = []
        """The board's descriptor, and those of the files that take its outputs."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._start(theirs.fileno(), launch)
            except (OSError, ValueError):
                self._close()
                raise
        self.board = Board(self._open[0])
        self._channel = Channel(self._socket.fileno())
        self._loop.add_reader(self._socket, self._on_readable)
        # A daemon thread: one that waits forever (the interpreter hangs in the kernel) must not keep the worker alive.
        threading.Thread(target=self._await_end, daemon=True).start()

    def _start(self, channel: int, launch: Launch) -> None:
        self._open.append(new_board())
        for name in outputs.STREAMS:
            self._open.append(os.memfd_create(f"tercel-{name}", os.MFD_CLOEXEC))
            fcntl(self._open[-1], F_SETFL, os.O_APPEND)
        board, *files = self._open
        self._process = _start_interpreter(channel, board, files, self._words, launch)
        limit_files(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tree(self) -> list[int]:
        return [self.pid, *trees.descendants(self.pid)]

    @property
    def lane(self) -> int:
        """The lane's number."""
        return self._config.number

    @property
    def directory(self) -> bytes:
        """With its sandbox in it."""
        return self._config.lane

    # -- to the interpreter -------------------------------------------------------------------------------

    def send(self, messages: list[Message]) -> None:
        if self.gone or self.leaving:
            return
        self._channel.send(messages)
        if self._channel.unsent:
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        self._channel.flush()
        if not self._channel.unsent:
            self._loop.remove_writer(self._socket)

    def leave(self) -> None:
        """It ends when it has done what it was given."""
        self.leaving = True
        with suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_WR)

    def signal(self, number: int) -> None:
        """To all of its tree. It is a zombie until we have reaped it, so its number is nobody else's."""
        if self.gone:
            return
        pids = self.tree()
        trees.signal_all(pids, number)
        if number != signal.SIGKILL:
            trees.signal_all(pids, signal.SIGCONT)  # a stopped one could not end

    # -- from the interpreter -----------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            received = self._channel.receive()
        except EOFError:
            self._loop.remove_reader(self._socket)
            if not self.leaving:  # it has died, or a function closed what is not its own: that cannot go on
                self.signal(signal.SIGKILL)
            return
        self._on_reports(_reports(received))

    def take_reports(self) -> list[Report]:
        """All that there are, sent or not yet, in order; some perhaps twice, and perhaps some that were taken before."""
        if self.gone:
            return []
        unsent = self.board.reports()  # before the channel is read: what was sent before these is in there
        return _reports([*self._channel.receive_all(), *unsent])

    def written(self, stream: int, offset: int, most: int) -> bytes:
        """Of what the call that runs has written."""
        return b"" if self.gone else os.pread(self._open[1 + stream], most, offset)

    def forget_written(self, limit_bytes: int) -> None:
        """Give back the memory of what will not be kept: a call that prints without end must not take all of it."""
        for fd in self._open[1:]:
            size = os.lseek(fd, 0, os.SEEK_END)
            if size > 2 * limit_bytes + 2**20:
                _punch_hole(fd, size - limit_bytes)

    # -- its end ------------------------------------------------------------------------------------------

    def _await_end(self) -> None:
        """In a thread. It is not reaped here, so that nobody signals a number that is another process's by then."""
        with suppress(ChildProcessError):  # where SIGCHLD is ignored, the kernel has reaped it
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        left = self._inherit()
        try:
            marker = b"TERCEL_SANDBOX=" + self._config.lane + b"/"
            trees.kill_strays(marker, {self.pid}, _STRAYS_PATIENCE_S)
            if left.attempt != NOBODY:
                left = self._with_outputs(left)
            self._sweep()
            for _, path in self._config.groups.values():
                cgroups.remove(path)
        finally:
            with suppress(RuntimeError):  # the loop was closed without waiting for us
                self._loop.call_soon_threadsafe(self._bury, left)

    def _inherit(self) -> Left:
        (attempt, since, running), reports = self.board.standing(), _reports(self.board.reports())
        died_in_it = running and all(report.attempt != attempt for report in reports)
        words = "" if died_in_it else _last_line(self._open[2])
        starved = self.group.oom_kills() > 0
        died_in = attempt if died_in_it else NOBODY
        return Left(died_in, since, time.monotonic(), 0, reports, None, None, [], starved, words)

    def _with_outputs(self, left: Left) -> Left:
        for path in outputs.paths_of(self._config.outputs, left.attempt):
            outputs.remove(path + b".part")  # it may have died while it wrote that
        out, err = self._open[1:]
        launch, cancelled = self._dying(left.attempt)
        limit_bytes = launch.program.output_limit_bytes if launch is not None else 0
        rows, notes = settle_written((out, err), self._config, left.attempt, limit_bytes)
        kept = msgspec.convert(rows, tuple[Output | None, Output | None])
        left = msgspec.structs.replace(left, out=kept[0], err=kept[1], notes=notes)
        return self._with_files(left, launch, cancelled) if launch is not None and launch.gathers else left

    def _with_files(self, left: Left, launch: Launch, cancelled: bool) -> Left:
        cwd, end = os.fsencode(launch.program.cwd), "cancelled" if cancelled else "failed"
        row = (launch.links, launch.gathers, launch.gather_dir)
        try:
            sandbox = last_sandbox(self._config.lane)
            return msgspec.structs.replace(
                left, gathered=tuple(call_files.gather(row, end, sandbox, cwd, self._config.node))
            )
        except Fault as fault:
            if cancelled or fault.end != "interrupted":
                return msgspec.structs.replace(left, notes=[*left.notes, fault.note])
            return msgspec.structs.replace(left, unsaved=(fault.note, fault.errno))

    def _sweep(self) -> None:
        sweeper = Sweeper(self._config.trash, os.path.basename(self._config.lane))  # noqa: PTH119
        with suppress(OSError):  # it was never used, or something is mounted there: the next start sees to it
            sweeper.take(self._config.lane)
        sweeper.sweep(_SWEEP_S)

    def _bury(self, left: Left) -> None:
        if self.gone:
            return
        self.gone = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        reports = _reports(self._channel.receive_all()) + left.reports
        left = msgspec.structs.replace(left, status=self._process.wait(), reports=reports)
        self.board.close()
        self._close()
        self._on_gone(self, left)

    def _close(self) -> None:
        self._socket.close()
        self.group.close()
        for fd in self._open:
            os.close(fd)


def kind_of(launch: Launch) -> object:
    """What calls must have in common to be made by one interpreter."""
    program = launch.program
    assert program.function is not None
    return program.function.path, program.env, launch.env, program.limits


def setup_of(job: int, program: Program) -> Message:
    """What it must know of a job before the first of its calls."""
    function = program.function
    assert function is not None
    return "setup", job, function.code, function.value, function.name, program.cwd, program.output_limit_bytes


def _last_line(fd: int) -> str:
    size = os.lseek(fd, 0, os.SEEK_END)
    lines = os.pread(fd, _WORDS_BYTES, max(0, size - _WORDS_BYTES)).decode(errors="replace").split("\n")
    line = next((line for line in reversed(lines) if line.strip()), "")
    return "".join(character for character in line if character.isprintable())


def _reports(messages: list[Message]) -> list[Report]:
    found: list[Report] = []
    for message in msgspec.convert(messages, list[Ended]):
        found += message.reports
    return found


def _start_interpreter(
    channel: int, board: int, files: list[int], words: list[str], launch: Launch
) -> "subprocess.Popen[bytes]":
    program = launch.program
    assert program.function is not None
    source = str(Path(tercel.__file__).parent.parent)
    lane, node = words[0], words[3]
    given = {"TERCEL_NODE": node, "TERCEL_SANDBOX": f"{lane}/0"}
    environment = own_environment() | program.env | launch.env | given
    limits = " ".join(map(str, msgspec.structs.astuple(program.limits)))
    out, err = files
    own = [source, str(channel), str(board), str(os.getpid())]
    return subprocess.Popen(
        # -P: modules come from where they are installed and from the function's path, not from wherever we are.
        [sys.executable, "-P", "-c", _BOOT, *own, *words, limits, *program.function.path],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        pass_fds=(channel, board),
        cwd="/",
        env=environment,
        start_new_session=True,
    )


def _punch_hole(fd: int, size: int) -> None:
    """Failing is harmless: the memory is given back at the call's end."""
    _libc.fallocate(fd, _PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(size))
