"""Programs that testers run: a session of their own, nothing to read, little to say, and no child of theirs is left.

A process that a program leaves behind becomes a child of the nearest subreaper above it. Where that is this process (as in a
host, see host.py) everything is found; elsewhere what has left the program's session and lost its parent is not.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tercel.testers.last_words import LastWords

OUTPUT_MOST_BYTES = 16 * 2**20
PROCESSES_MOST = 200
_LOOK_S = 0.2
"""Between two looks at what it takes."""
_ROUNDS_MOST = 200
_BLANK_S = 0.05
_MARK = "TERCEL_PROBE"
_PR_SET_CHILD_SUBREAPER = 36

_numbers = itertools.count()
_live: set[bytes] = set()
"""Marks of programs that run."""
_roots: set[int] = set()
"""Programs whose end is waited for."""
_blank: dict[int, float] = {}
"""Children without any variable, and since when that was seen."""
_starting = 0
_reaps = False


class Ended(msgspec.Struct, frozen=True):
    """How a program ended."""

    code: int
    """Negative: the signal."""
    last_line: str
    """Of its output, or else of its errors."""
    excess: str = ""
    """What it took too much of, if that is why it was ended."""

    @property
    def how(self) -> str:
        if self.excess:
            return self.excess
        return f"exit code {self.code}" if self.code >= 0 else f"ended by signal {-self.code}"


def become_subreaper() -> None:
    """What programs leave behind becomes this process's child. Only for a process that starts nothing else."""
    global _reaps
    _reaps = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


async def run(argv: list[str], cwd: str | None = None, env: dict[str, str] | None = None) -> Ended:
    """Until it ends, or is cancelled. OSError if it cannot be started."""
    number = f"{os.getpid()}.{next(_numbers)}"
    mark = f"{_MARK}={number}".encode()
    _live.add(mark)
    try:
        with LastWords() as out, LastWords() as err:
            process = await _start(argv, cwd, own_environment() | (env or {}) | {_MARK: number}, out, err)
            try:
                excess = await _watch(process, (out, err))
            finally:
                _live.discard(mark)
                await _end(process, mark)
                _roots.discard(process.pid)
            return Ended(process.returncode or 0, out.line() or err.line(), excess)
    finally:
        _live.discard(mark)


async def _start(
    argv: list[str], cwd: str | None, env: dict[str, str], out: LastWords, err: LastWords
) -> asyncio.subprocess.Process:
    global _starting
    _starting += 1
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out.writer,
            stderr=err.writer,
            cwd=cwd,
            env=env,
            start_new_session=True,  # so that all that it starts can be ended with it
        )
        _roots.add(process.pid)
        return process
    finally:
        _starting -= 1


def own_environment(sees: tuple[str, ...] = ()) -> dict[str, str]:
    """This process's, without what is not for others: its token is such a variable. `sees`: how those begin that are."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TERCEL_") or name.startswith(sees)
    }


async def _watch(process: asyncio.subprocess.Process, said: tuple[LastWords, LastWords]) -> str:
    """What it took too much of; empty: it ended by itself."""
    ended = asyncio.ensure_future(process.wait())
    try:
        while not (await asyncio.wait([ended], timeout=_LOOK_S))[0]:
            if sum(words.size_bytes for words in said) > OUTPUT_MOST_BYTES:
                return f"ended, for it wrote more than {OUTPUT_MOST_BYTES // 2**20} MB"
            if len(descendants([process.pid])) > PROCESSES_MOST:
                return f"ended, for it had more than {PROCESSES_MOST} processes"
    finally:
        ended.cancel()
    return ""


async def _end(process: asyncio.subprocess.Process, mark: bytes) -> None:
    """It and all that it started. All are stopped first, so that none can outrun this by forking."""
    stopped: set[int] = set()
    for _ in range(_ROUNDS_MOST):
        strays, unsure = _strays()
        # Once it has ended, its number may be another's.
        if process.returncode is None:
            found = {process.pid, *descendants([process.pid]), *strays}
        else:
            found = {*_left_in_group(process.pid, mark), *strays}
        if new := found - stopped:
            signal_all(new, signal.SIGSTOP)
            stopped |= new
            continue
        if not found and not unsure:
            break
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        signal_all(found, signal.SIGKILL)
        await asyncio.sleep(0.002)
    await process.wait()


def _left_in_group(group: int, mark: bytes) -> set[int]:
    """Of a program that has ended. A group that somebody else made under this number has not its mark."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, 0)  # mostly there is none: then not all processes need to be looked at
        return {pid for pid in _members(group) if mark in _variables(pid)}
    return set()


def _members(group: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended
                state, _, its_group = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:3]
                if int(its_group) == group and state != b"Z":
                    found.append(int(entry.name))
    return found


def _variables(pid: int) -> list[bytes]:
    """None of one that has ended, or is somebody else's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _strays() -> tuple[set[int], bool]:
    """What programs that have ended left behind; and whether there may be more. Those that have ended too are reaped."""
    found: set[int] = set()
    unsure = False
    own = set(_children(os.getpid())) - _roots if _reaps else set()
    for pid in _blank.keys() - own:
        del _blank[pid]
    for pid in own:
        if _is_zombie(pid):
            if not _starting:  # or it may be one that was just started, whose end is waited for elsewhere
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        elif (is_stray := _is_stray(pid)) is None:
            unsure = True
        elif is_stray:
            found |= {pid, *descendants([pid])}
    return found, unsure


def _is_stray(pid: int) -> bool | None:
    """None: it cannot be told yet. A process that is just becoming another program seems to have no variables at all."""
    variables = _variables(pid)
    if not variables:
        return False
    if variables != [b""]:
        return _live.isdisjoint(variables)
    since = _blank.setdefault(pid, time.monotonic())
    return None if _starting or time.monotonic() - since < _BLANK_S else True


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return False


def descendants(pids: Iterable[int]) -> list[int]:
    """Parents before children. A snapshot: what forks meanwhile may be missing."""
    found: list[int] = []
    todo = list(pids)
    while todo:
        below = _children(todo.pop())
        found += below
        todo += below
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
