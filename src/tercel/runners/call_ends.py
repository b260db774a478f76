"""How calls end that do not end by themselves: refused, never begun, ended by the lane, dead with their interpreter."""

import sys
import time

from tercel.core.reports import End, Report
from tercel.runners.call_process import Left
from tercel.runners.contract import Launch
from tercel.runners.guard import Excess, out_of_memory
from tercel.runners.reports import signal_note

TRIES = 3
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class Ending:
    """A call that is being ended."""

    __slots__ = ("attempt", "end", "excess", "kill_at", "killed")

    def __init__(self, attempt: int, end: End, kill_at: float, excess: Excess | None = None) -> None:
        self.attempt = attempt
        self.end = end
        self.excess = excess
        """If it took too much: what."""
        self.kill_at = kill_at
        self.killed = False


class Futility:
    """Of jobs whose interpreters end by themselves before they have made a call: a job's variables may do that."""

    def __init__(self) -> None:
        self._tries: dict[int, int] = {}

    def is_certain(self, job: int, left: Left) -> bool:
        """One more ended; whether the job is to be refused. A signal is no sign of it: that may be want of memory."""
        if left.status <= 0:
            return False
        tries = self._tries.pop(job, 0) + 1
        if tries < TRIES:
            self._tries[job] = tries
        return tries >= TRIES

    def on_reports(self, reports: list[Report]) -> None:
        if self._tries:
            for report in reports:
                self._tries.pop(report.job, None)


def is_of_this_python(launch: Launch) -> bool:
    assert launch.program.function is not None
    return launch.program.function.python in ("", PYTHON)


def can_be_made(launch: Launch) -> bool:
    """Here, as far as that can be told without trying."""
    program = launch.program
    return is_of_this_python(launch) and not (program.isolate or program.container)


def refused(launch: Launch, node: str) -> Report:
    assert launch.program.function is not None
    if is_of_this_python(launch):
        return unable(launch, f"{node} runs functions neither in containers nor isolated: submit a command")
    other = launch.program.function.python
    return unable(launch, f"{node} runs Python {PYTHON}, the function was pickled under {other}")


def unable(launch: Launch, note: str) -> Report:
    return unbegun(launch, End.REFUSED, note, time.time())


def unstartable(launch: Launch, why: str) -> Report:
    """No process can be given what this job asks for; the code is a shell's for what cannot be executed."""
    ids = (launch.job, launch.task, launch.attempt)
    return Report(*ids, End.EXITED, 126, time.time(), 0.0, 0.0, 0, f"no interpreter can be started: {why}")


def unbegun(launch: Launch, end: End, note: str, started_at: float) -> Report:
    return Report(launch.job, launch.task, launch.attempt, end, 0, started_at, 0.0, 0.0, 0, note)


def died(launch: Launch, left: Left, ending: Ending | None) -> Report:
    """Of the call that its interpreter died in."""
    wall_s = left.until - left.since
    notes = list(left.notes)
    excess: Excess | None = None
    if left.status < 0:
        end, code = End.SIGNALLED, -left.status
    else:
        # Even 0 is no success: there is no value.
        end, code = End.EXITED, left.status or 1
    if ending is not None and ending.attempt == launch.attempt:
        end, excess = ending.end, ending.excess
        if excess is None and ending.killed and launch.program.kill_grace_s:
            notes.insert(0, f"killed: it had not ended {launch.program.kill_grace_s:g} s after TERM")
        if ending.end is End.TIMED_OUT:
            notes.insert(0, f"time limit of {launch.program.time_limit_s:g} s reached")
    elif left.out_of_memory and launch.program.limits.mem_bytes:
        end, excess = End.EXCEEDED, out_of_memory(launch.program.limits.mem_bytes)
    elif end is End.SIGNALLED:
        notes.insert(0, f"its interpreter {signal_note(code)}")
    else:
        notes.insert(0, f"its interpreter was ended by the function with code {left.status}")
    if excess is not None:
        notes.insert(0, excess.note)
    ids = (launch.job, launch.task, launch.attempt)
    what, mem_bytes = (excess.what, excess.mem_bytes) if excess is not None else ("", 0)
    used = (time.time() - (time.monotonic() - left.since), wall_s, 0.0)
    errno = ""
    if left.unsaved is not None:
        end, code, what = End.INTERRUPTED, 0, ""
        note, errno = left.unsaved
        notes.insert(0, note)
    told = (*ids, end, code, *used, mem_bytes, "; ".join(notes), left.out, left.err, None, what)
    return Report(*told, errno=errno, gathered=left.gathered)
