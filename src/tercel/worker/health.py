"""Whether a node is fit for tasks: judged from what was measured, and by a command of its owner's.

An unhealthy worker joins, says why, and takes no tasks; it recovers by itself. A wrong clock does not make it unhealthy, for
times that matter are the manager's; it is told all the same.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from tercel.core.sizes import least_free
from tercel.testers.last_words import LastWords
from tercel.worker.pressure import Reading

MEM_LEAST_BYTES = 256 * 2**20
MEM_LEAST_PART = 0.02
RECOVERED = 1.25
"""So many times the least there must be before it counts as recovered."""
SKEW_MOST_S = 60.0
CHECK_LIMIT_S = 30.0


def judge(reading: Reading, was_unhealthy: bool) -> str:
    """Why it should take no tasks, as far as can be measured; empty: it may."""
    factor = RECOVERED if was_unhealthy else 1.0
    disk = least_free(reading.disk_bytes) * factor
    if reading.disk_bytes and reading.disk_free_bytes < disk:
        return f"its disk is nearly full: {_mb(reading.disk_free_bytes)} free, {_mb(disk)} needed"
    mem = min(MEM_LEAST_BYTES, reading.mem_bytes * MEM_LEAST_PART) * factor
    if reading.mem_bytes and reading.mem_free_bytes < mem:
        return f"its memory is nearly exhausted: {_mb(reading.mem_free_bytes)} free, {_mb(mem)} needed"
    return ""


def _mb(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:,.0f} MiB"


def skew(managers: float, ours: float) -> str:
    """What is to be told of a clock that is so far from the manager's; empty: nothing. An older manager tells none (0)."""
    off_s = ours - managers
    if not managers or abs(off_s) <= SKEW_MOST_S:
        return ""
    return f"its clock is {abs(off_s):,.0f} s {'ahead of' if off_s > 0 else 'behind'} the manager's"


def writable(dir: Path) -> str:
    """Why files cannot be made in the worker's directory; empty: they can."""
    probe = dir / "health.probe"
    try:
        probe.write_bytes(b"ok")
        probe.unlink()
    except OSError as error:
        return f"its directory {dir} cannot be written: {error.strerror or error}"
    return ""


async def ask(command: str) -> str:
    """Run the owner's check. Returns why it says the node is unfit: its last line; empty: it exits with 0."""
    with LastWords() as words:
        try:
            process = await asyncio.create_subprocess_shell(
                command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=words.writer,
                stderr=words.writer,
                start_new_session=True,  # so that all that it starts can be ended with it
            )
        except OSError as error:
            return f"its health check cannot be started: {error.strerror or error}"
        try:
            async with asyncio.timeout(CHECK_LIMIT_S):
                code = await process.wait()
        except TimeoutError:
            return f"its health check took longer than {CHECK_LIMIT_S:g} s"
        finally:
            await _end(process)
        if code == 0:
            return ""
        how = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        return words.line() or f"its health check {how}"


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
    await process.wait()
