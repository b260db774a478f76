"""What a call finds around it in an interpreter: directory, variables, outputs, signals; put right between calls.

Put right is what is cheap to put right and certain to be meant for one call only. Variables that a job's code adds stay
until another job comes, for a module may add them when it is first imported and count on them later.
"""

import _signal  # type: ignore[import-not-found]  # signal.getsignal makes enums: five times the price
import faulthandler
import os
import signal
import sys
from typing import TextIO

from tercel.runners import commands
from tercel.runners.calls import Job
from tercel.runners.capture import Written
from tercel.runners.outputs import STREAMS, OutputRow, path_of, settle
from tercel.runners.reports import Config
from tercel.runners.sandbox import Sandbox, Sweeper

_TERM, _INT = int(signal.SIGTERM), int(signal.SIGINT)
_BACKLOG_MOST = 64
"""Trees in the trash beyond which removing them goes before the next call."""


class Misplaced(Exception):
    """A call, its files, or its value, cannot be where they should: why, and how it ends thereby."""

    def __init__(self, end: str, note: str, error: OSError | None = None) -> None:
        super().__init__(note)
        self.end = end
        self.note = note
        self.errno = commands.errno_name(error) if error is not None else ""


class Surroundings:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._sweeper = Sweeper(config.trash, os.path.basename(config.lane))  # noqa: PTH119
        self._sandbox = Sandbox(config.lane, self._sweeper)
        self._outputs = tuple(os.dup(fd) for fd in (1, 2))
        """Kept apart: a function may close or redirect its own."""
        faulthandler.enable(self._outputs[1])  # where it was, if it crashes
        self._streams = (_stream(1), _stream(2))
        self._restore_streams()
        self._on_term = _signal.getsignal(_TERM)
        self._on_int = _signal.getsignal(_INT)
        self._path = list(sys.path)
        self._environ = os.environ
        # The mapping below os.environ: comparing that takes a third of a microsecond, os.environ itself a hundred.
        self._data: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
        self._given = dict(self._data)
        self._known = dict(self._data)
        self._job = -1

    @property
    def sandbox(self) -> bytes:
        return self._sandbox.path

    # -- before a call ------------------------------------------------------------------------------------

    def enter(self, job: Job, task: int, attempt: int) -> None:
        """Raises Misplaced."""
        if job.number != self._job:
            self._change_job(job)
        sandbox = self._sandbox
        try:
            if not sandbox.ready:
                sandbox.prepare()
                self._set(b"TERCEL_SANDBOX", sandbox.path)
            if not job.cwd:
                os.chdir(sandbox.path)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            note = f"no sandbox on {self._config.node}: {reason}"
            raise Misplaced("interrupted", note, error) from error
        if job.cwd:
            self._enter_cwd(job.cwd)
        number = b"%d" % task
        self._set(b"TERCEL_TASK_ID", number)
        self._set(b"SLURM_ARRAY_TASK_ID", number)
        self._set(b"TERCEL_ATTEMPT", b"%d" % attempt)

    def fill(self) -> bytes:
        """Its sandbox, to put something into it before the call."""
        self._sandbox.fill()
        return self._sandbox.path

    def _change_job(self, job: Job) -> None:
        self._job = job.number
        for name in self._data.keys() - self._given.keys():
            del os.environb[name]
        sys.path[:] = self._path
        self._known = dict(self._data)
        number = b"%d" % job.number
        for name in (b"TERCEL_JOB_ID", b"SLURM_ARRAY_JOB_ID"):
            self._set(name, number)

    def _set(self, name: bytes, value: bytes) -> None:
        os.putenv(name, value)
        self._data[name] = self._known[name] = value

    def _enter_cwd(self, cwd: bytes) -> None:
        try:
            os.chdir(cwd)
        except OSError as error:
            end = "refused" if error.errno in commands.NOT_A_DIRECTORY else "interrupted"
            where = f"directory {cwd.decode(errors='replace')} on {self._config.node}"
            note = f"cannot enter {where}: {os.strerror(error.errno or 0)}"
            raise Misplaced(end, note, error) from error

    # -- after it -----------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """On its stderr, after what it has said itself."""
        self._flush()
        data = text.encode(errors="backslashreplace")
        while data:
            data = data[os.write(self._outputs[1], data) :]

    def outputs(self, job: Job, attempt: int) -> tuple[OutputRow | None, OutputRow | None, str]:
        """What it wrote, and a note if not all of that could be kept."""
        self._flush()
        out, err = self._outputs
        if os.lseek(out, 0, os.SEEK_END) == 0 == os.lseek(err, 0, os.SEEK_END):
            return None, None, ""
        rows, notes = settle_written(self._outputs, self._config, attempt, job.output_limit_bytes)
        for fd in self._outputs:
            os.ftruncate(fd, 0)
        out_row, err_row = rows
        return out_row, err_row, "; ".join(notes)

    def _flush(self) -> None:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except Exception:  # noqa: S110  # closed, or of the function's own making: both are put right
            pass

    def put_right(self, begun: float) -> None:
        """After a call that began then."""
        out, err = self._streams
        if sys.stdout is not out or sys.stderr is not err or out.closed or err.closed:
            self._restore_streams()
        os.dup2(self._outputs[0], 1)
        os.dup2(self._outputs[1], 2)
        signal.alarm(0)
        if _signal.getsignal(_TERM) is not self._on_term or _signal.getsignal(_INT) is not self._on_int:
            signal.signal(_TERM, self._on_term)
            signal.signal(_INT, self._on_int)
        os.environ = self._environ  # noqa: B003  # the very same object, if another was put there
        if self._data != self._known:
            self._restore_variables()
        self._sandbox.clear(begun)
        while len(self._sweeper.todo) > _BACKLOG_MOST:
            self._sweeper.step()

    def _restore_streams(self) -> None:
        out, err = self._streams
        self._streams = (_stream(1) if out.closed else out, _stream(2) if err.closed else err)
        sys.stdout, sys.stderr = self._streams
        sys.__stdout__, sys.__stderr__ = self._streams  # type: ignore[misc, assignment]

    def _restore_variables(self) -> None:
        for name in self._given:
            if self._data.get(name) != self._known[name]:
                self._set(name, self._known[name])
        self._known = dict(self._data)

    # -- while nothing is to be done ----------------------------------------------------------------------

    def idle(self) -> bool:
        """Use the time; whether there is more to do."""
        os.chdir("/")  # hold no file system busy
        self._sweeper.step()
        return bool(self._sweeper.todo)


def settle_written(
    files: tuple[int, ...], config: Config, attempt: int, limit_bytes: int
) -> tuple[list[OutputRow | None], list[str]]:
    """The rows of a call's outputs, which are in these files, and what is to be said of them."""
    rows, notes = [], []
    for stream, fd in zip(STREAMS, files, strict=True):
        written = Written(fd, limit_bytes)
        path = path_of(config.outputs, attempt, stream)
        rows.append(settle(written, path, config.inline_bytes, config.segment_bytes))
        if written.fault:
            notes.append(f"less of std{stream} kept: {written.fault} on {config.node}")
    return rows, notes


def _stream(fd: int) -> TextIO:
    """Written line by line: what was said before a crash is not lost in it."""
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
