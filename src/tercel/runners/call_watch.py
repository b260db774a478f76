"""Watches the call that an interpreter makes, from outside: announces it, reads what it writes, holds it to its limits.

The interpreter itself can do none of that, because its one thread is in the function.
"""

import asyncio
import os

from tercel.core.reports import End
from tercel.runners import trees
from tercel.runners.board import NOBODY
from tercel.runners.bounds import hold_cpu
from tercel.runners.call_ends import Ending
from tercel.runners.call_process import InterpreterProcess
from tercel.runners.cgroups import MEMORY, PIDS
from tercel.runners.contract import Launch, Listener
from tercel.runners.following import Follower
from tercel.runners.guard import Excess, Guard
from tercel.runners.lane import warning
from tercel.runners.run import ANNOUNCE_S, NEVER, TAIL_S

TICK_S = 0.05
LONG_TICK_S = 0.2
"""Between looks at a call that was announced."""
WARN_AGAIN_S = 1.0


class CallWatch:
    """Of one interpreter, all its life."""

    def __init__(self, process: InterpreterProcess, listener: Listener, follower: Follower) -> None:
        self._process = process
        self._listener = listener
        self._follower = follower
        self._loop = asyncio.get_running_loop()
        self._attempt = NOBODY
        """The one that is watched."""
        self._announced = False
        self._guard: Guard | None = None
        self._warn_signal = 0
        self._warn_at = NEVER
        self._holds_cpu = False

    def look(self, launch: Launch, since: float, now: float) -> tuple[End, Excess | None] | None:
        """At the call that runs since then; how it is to be ended, if it is."""
        if launch.attempt != self._attempt:
            self._begin(launch, since)
        if not self._announced and now >= since + ANNOUNCE_S:
            self._announced = True
            self._listener.started([launch.attempt])
            self._hold_cpu()
        if now >= self._warn_at:
            warned = trees.warn(self._process.tree(), self._warn_signal)
            self._warn_at = NEVER if warned else now + WARN_AGAIN_S
        process, attempt = self._process, launch.attempt
        self._follower.tell(attempt, process, lambda: process.board.standing().attempt == attempt)
        process.forget_written(launch.program.output_limit_bytes)
        return self._verdict(launch, since, now)

    def _begin(self, launch: Launch, since: float) -> None:
        program = launch.program
        self._attempt = launch.attempt
        self._announced = False
        self._guard = self._new_guard(since) if self._process.limits.watched else None
        self._warn_signal, before_s = warning(program.warn_signal)
        timed = self._warn_signal and program.time_limit_s
        self._warn_at = since + program.time_limit_s - before_s if timed else NEVER

    def _new_guard(self, since: float) -> Guard:
        """Its group is new, and an interpreter in which memory ran out makes no other call: all its counts are from 0."""
        process = self._process
        enforced = frozenset(name for name in (MEMORY, PIDS) if process.group.holds(process.pid, name))
        return Guard(process.limits, process.group, enforced, process.tree, process.directory, since)

    def _verdict(self, launch: Launch, since: float, now: float) -> tuple[End, Excess | None] | None:
        limit_s = launch.program.time_limit_s
        if limit_s and now >= since + limit_s:
            return End.TIMED_OUT, None
        guard = self._guard
        if guard is not None and now >= guard.look_at and (excess := guard.look()) is not None:
            return End.EXCEEDED, excess
        return None

    def warn(self, attempt: int, now: float) -> None:
        if attempt == self._attempt and self._warn_signal:
            self._warn_at = now

    def next_s(self, launch: Launch, since: float, now: float, ending: Ending | None, alone: bool) -> float:
        """When to look again. `alone`: nothing waits behind it."""
        next_s = LONG_TICK_S if self._announced and alone else TICK_S
        if self._follower.follows(launch.attempt):
            next_s = TAIL_S
        if ending is not None:
            return max(0.001, min(next_s, ending.kill_at - now))
        if launch.program.time_limit_s:
            next_s = min(next_s, since + launch.program.time_limit_s - now)
        if self._guard is not None:
            next_s = min(next_s, self._guard.look_at - now)
        return max(0.001, min(next_s, self._warn_at - now))

    def _hold_cpu(self) -> None:
        """A call lasts. In a thread, for it waits for the kernel; once, for another interpreter serves other limits."""
        millicpus = self._process.limits.millicpus
        cores = sorted(os.sched_getaffinity(0))
        if self._holds_cpu or not millicpus or millicpus >= 1000 * len(cores):
            return
        self._holds_cpu = True
        process = self._process
        self._loop.run_in_executor(
            None, hold_cpu, process.group, process.tree, millicpus, cores, process.lane
        )
