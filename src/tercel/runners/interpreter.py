"""The program of an interpreter: one warm Python process per lane that makes one call after the other.

    begin (on the board) -> surroundings -> unpickle, call, pickle -> outputs, value -> report (on the board)

It has one thread, for the function is its own main program as far as it can tell, and starts nothing by itself. So the
lane watches it: by the board, and by its exit. Reports go out when some have gathered, when a few milliseconds have
passed, and when nothing is left to do; the lane finds those of an interpreter that is busy, or dead, on the board.

A forked child that comes back from the function is not us: it ends. An interpreter that has grown ends too, between two
calls, and its lane goes on in another one.
"""

import gc
import os
import resource
import select
import sys
import types
from collections import deque
from collections.abc import Callable
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from tercel.runners import calls, outputs, trees
from tercel.runners.board import Board
from tercel.runners.bounds import Bounds
from tercel.runners.calls import Functions, InputLost, Inputs, Job
from tercel.runners.cgroups import MEMORY, Group
from tercel.runners.channel import Channel, Message
from tercel.runners.guard import Limits
from tercel.runners.reports import Config
from tercel.runners.run import FilesRow
from tercel.runners.surroundings import Misplaced, Surroundings

if TYPE_CHECKING:
    from tercel.runners.call_files import CallFiles

WAIT_S = 0.016
"""How long a report may wait for others while there is more to do, and how long between two looks at the channel."""
MOST = 128
"""Of them; fewer than wait in a lane ahead, so that it never runs dry before it hears again."""
GROWTH_MOST_BYTES = 2**30
"""Of resident memory, over what it was at the start: more is taken for a leak."""
FULL = 0.75
"""Of a memory limit: what calls have left behind beyond this would soon be held against one that is innocent."""
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")

_OWN_ENDS = ("exited", "exceeded")
_UNTOLD: Message = ("", (), "", "", (), ())
"""Fields of core.reports.Report from `exceeded` up to `hitch`, in a report that says nothing there."""
_BEFORE_EXCEEDED = 13
"""How many come before them."""

Start = tuple[Job, int, int, bytes, Inputs]


class Interpreter:
    def __init__(self, channel: Channel, board: Board, config: Config, limits: Limits) -> None:
        self._bounds = Bounds(Group(config.groups), config.number, own_processes=0)
        self._bounds.apply(limits)
        self._spent = False
        """Memory ran out in it: it makes no more calls."""
        self._channel = channel
        self._board = board
        self._config = config
        self._surroundings = Surroundings(config)
        self._functions = Functions()
        self._queue: deque[Start] = deque()
        self._files: dict[int, FilesRow] = {}
        """Of those in the queue that have any, by attempt."""
        self._job: Job | None = None
        self._passed = 0
        """The bar that the lane has let it pass."""
        self._pid = os.getpid()
        self._send_at = 0.0
        self._cpu_s = _cpu_s()
        self._poll = select.poll()
        self._poll.register(channel.fd, select.POLLIN)
        self._on: dict[object, Callable[..., None]] = {
            "setup": self._on_setup,
            "start": self._on_start,
            "withdraw": self._on_withdraw,
            "go": self._on_go,
            "files": self._on_files,
        }
        self._size_most = _resident_bytes() + GROWTH_MOST_BYTES
        if limits.mem_bytes:
            self._size_most = min(self._size_most, int(limits.mem_bytes * FULL))

    def serve(self) -> None:
        """Ends with EOFError when the worker is gone, or has no more use for it."""
        queue, board = self._queue, self._board
        while True:
            while queue:
                now = monotonic()
                if now >= self._send_at:
                    self._send_at = now + WAIT_S
                    self._send()
                    self._look()
                    if _resident_bytes() > self._size_most:
                        return
                    continue  # the queue may be empty now
                start = queue.popleft()
                if not board.begin(start[2], now, self._passed):
                    queue.appendleft(start)
                    self._wait_at_the_bar()
                    continue
                self._attempt(start, now)
                if self._spent:
                    return
                if board.count >= MOST:
                    self._send()
            self._send()
            self._idle()

    # -- the lane's messages ------------------------------------------------------------------------------

    def _look(self) -> None:
        for kind, *fields in self._channel.receive():
            self._on[kind](*fields)

    def _idle(self) -> None:
        while self._surroundings.idle():
            if self._poll.poll(0):
                break
        self._poll.poll()
        self._look()

    def _wait_at_the_bar(self) -> None:
        self._send()
        while self._board.bar != self._passed:
            self._poll.poll()
            self._look()

    def _on_setup(self, *fields: Any) -> None:
        self._job = Job(*fields)

    def _on_start(self, task: int, attempt: int, arguments: bytes, inputs: Inputs) -> None:
        assert self._job is not None
        self._queue.append((self._job, task, attempt, arguments, inputs))

    def _on_files(self, attempt: int, *row: Any) -> None:
        self._files[attempt] = row

    def _on_withdraw(self, attempts: list[int]) -> None:
        gone = set(attempts)
        left = [start for start in self._queue if start[2] not in gone]
        self._queue.clear()
        self._queue += left
        for attempt in attempts:
            self._files.pop(attempt, None)

    def _on_go(self, bar: int) -> None:
        self._passed = bar

    def _send(self) -> None:
        """Waits for room: what is on the board is safe there until it is in the channel."""
        if not self._board.count:
            return
        self._channel.send_marshalled(self._board.waiting())
        self._flush()
        self._board.sent()

    def _flush(self) -> None:
        while self._channel.unsent:
            select.select([], [self._channel.fd], [])
            self._channel.flush()

    # -- one call -----------------------------------------------------------------------------------------

    def _attempt(self, start: Start, begun: float) -> None:
        job, task, attempt, arguments, inputs = start
        started_at = time()
        end, code, note, value, errno = "exited", 0, "", None, ""
        files = self._files_of(attempt) if self._files else None
        guard = self._bounds.guard(list, self._surroundings.sandbox, begun)
        try:
            self._surroundings.enter(job, task, attempt)
            if files is not None:
                files.put(self._surroundings.fill())
                started_at = time()
            data, note = self._call(job, arguments, inputs)
            code = 1 if note else 0
            value = self._keep(attempt, data)
        except Misplaced as error:
            end, note, errno = error.end, error.note, error.errno
        except InputLost as error:
            end, note = "interrupted", f"{self._config.node}: an input is lost: {error}"
        excess = guard.verdict(code != 0, huge_file=False) if guard is not None else None
        if excess is not None:
            end, note = "exceeded", excess.note
            self._spent = excess.what == MEMORY
        if files is not None and end in _OWN_ENDS:
            try:
                note += files.gather((end, code) == ("exited", 0), self._surroundings.sandbox, job.cwd)
            except Misplaced as error:
                end, code, note, errno, excess = error.end, 0, error.note, error.errno, None
        out, err, fault = self._surroundings.outputs(job, attempt)
        if fault:
            note = f"{note}; {fault}" if note else fault
        self._surroundings.put_right(begun)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = usage.ru_utime + usage.ru_stime
        # Memory: the most that this interpreter has taken so far, which is at least what the call took.
        wall_s = monotonic() - begun - (files.apart_s if files is not None else 0.0)
        used = (started_at, wall_s, cpu_s - self._cpu_s, usage.ru_maxrss * 1024)
        self._cpu_s = cpu_s
        row: Message = (job.number, task, attempt, end, code, *used, note, out, err, value)
        if excess is not None:
            row = (*row, excess.what)
        elif errno:
            row = (*row, "", (), errno)
        if files is not None and (files.gathered or files.hitch):
            row = (*row, *_UNTOLD[len(row) - _BEFORE_EXCEEDED :], files.hitch, tuple(files.gathered))
        self._tell(row)

    def _tell(self, row: Message) -> None:
        if self._board.end(row):
            return
        self._send()
        if not self._board.end(row):  # it has gathered more files than the board has room for
            self._channel.send([("Ended", [row])])
            self._flush()
            self._board.pause()

    def _files_of(self, attempt: int) -> "CallFiles | None":
        row = self._files.pop(attempt, None)
        if row is None:
            return None
        from tercel.runners.call_files import CallFiles  # noqa: PLC0415  # only those with files pay for it

        return CallFiles(row, self._board, self._config.node)

    def _call(self, job: Job, arguments: bytes, inputs: Inputs) -> tuple[bytes, str]:
        """What it returned, pickled; or what it raised, with a note. Whatever it raises is a result."""
        try:
            function = self._functions.of(job, inputs)
            args, kwargs = calls.arguments(arguments, inputs)
        except InputLost:
            raise
        except BaseException as error:
            return self._failed(error, " (unpickling the call)" + self._missing(error))
        bounds = self._bounds
        try:
            if bounds.marks_children:
                bounds.before_start()
            value = function(*args, **kwargs)
            if os.getpid() != self._pid:
                _leave_fork()
            return calls.returned(value, job.name or "the function"), ""
        except BaseException as error:
            if os.getpid() != self._pid:
                _leave_fork()
            return self._failed(error, "")
        finally:
            if bounds.marks_children:
                bounds.after_start()

    def _failed(self, error: BaseException, hint: str) -> tuple[bytes, str]:
        trace = calls.trace_of(error)
        self._surroundings.say(trace)
        return calls.raised(error, trace), calls.note_of(error) + hint

    def _missing(self, error: BaseException) -> str:
        if isinstance(error, ModuleNotFoundError):
            return f": {self._config.node} has no module {error.name or '?'}"
        return ""

    def _keep(self, attempt: int, data: bytes) -> outputs.OutputRow:
        config = self._config
        path = outputs.path_of(config.outputs, attempt, outputs.VALUE)
        try:
            return outputs.settle_value(data, path, config.inline_bytes, config.segment_bytes)
        except OSError as error:
            note = f"no room for its value on {config.node}: {error.strerror}"
            raise Misplaced("interrupted", note, error) from error


def _leave_fork() -> None:
    """In a child of the function that came back from it, as if it were us."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123
        return int(file.read().split()[1]) * _PAGE_BYTES


def main() -> None:
    trees.die_with_parent()
    channel, board, parent, *rest = sys.argv[1:]
    config, limits, path = rest[:9], rest[9], rest[10:]
    if os.getppid() != int(parent):
        return  # it died before we could ask to be told
    os.set_inheritable(int(channel), False)
    os.set_inheritable(int(board), False)
    sys.path[:0] = filter(os.path.isdir, path)
    sys.argv[:] = [""]
    # What is pickled from __main__ must go by value: nothing is to be found there by name.
    sys.modules["__main__"] = types.ModuleType("__main__")
    interpreter = Interpreter(
        Channel(int(channel)), Board(int(board)), Config(*config), Limits(*map(int, limits.split()))
    )
    gc.freeze()  # what was imported is there to stay, and need not be looked at again
    try:
        interpreter.serve()
    except EOFError:
        pass
    os._exit(0)  # threads that a function left are not waited for
