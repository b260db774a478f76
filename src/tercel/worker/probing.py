"""Testers that the manager asks on this node: whether what tasks are blocked on has cleared.

    Probe -> its turn (MOST at a time) -> the tester, for what is left of its limit -> Probed

Each is a task of its own beside everything else, whatever else the worker does or does not: one that drains or takes no tasks
answers too. When the link ends, so do they, unanswered: the manager asks anew, somebody else perhaps.
"""

import asyncio
import contextlib
import logging
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from tercel.core.conditions import Verdict
from tercel.testers.contract import Asks, Surroundings
from tercel.testers.verdicts import not_cleared, sound
from tercel.wire.messages import Probe, Probed

log = logging.getLogger("tercel.worker")

MOST = 20_000
"""Not so many that they cost much memory. How many work at a time is for the testers, who let none that hangs keep others waiting."""
LIMIT_LEAST_S = 0.1
LIMIT_MOST_S = 600.0
GRACE_S = 5.0
"""So much longer than its limit a test may take before it is given up: ending what it has started takes a moment."""
LOOK_S = 1.0
"""For a directory; a file system may hang."""


class Probing:
    def __init__(self, testers: Asks | None, node: str, answer: Callable[[Probed], None]) -> None:
        self._testers = testers
        self._node = node
        self._answer = answer
        self._room = asyncio.Semaphore(MOST)
        self._directories = _Directories()
        self._under_way: set[asyncio.Task[None]] = set()
        """For the link that there is."""

    def ask(self, probe: Probe) -> None:
        task = asyncio.get_running_loop().create_task(self._probe(probe))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        """The link has ended."""
        tasks, self._under_way = self._under_way, set()
        for task in tasks:
            task.cancel()

    async def _probe(self, probe: Probe) -> None:
        loop = asyncio.get_running_loop()
        limit_s = min(probe.limit_s, LIMIT_MOST_S) if probe.limit_s >= LIMIT_LEAST_S else LIMIT_LEAST_S
        until = loop.time() + limit_s
        try:
            async with asyncio.timeout(limit_s):
                await self._room.acquire()
        except TimeoutError:
            verdict = not_cleared(f"too many tests at once on {self._node}")
        else:
            try:
                verdict = await self._verdict(probe, max(LIMIT_LEAST_S, until - loop.time()))
            finally:
                self._room.release()
        if asyncio.current_task() in self._under_way:  # or a tester took no notice of the link's end
            self._answer(Probed(probe.number, verdict))

    async def _verdict(self, probe: Probe, limit_s: float) -> Verdict:
        if self._testers is None:
            return not_cleared(f"{self._node} knows no testers")
        if probe.cwd and probe.tester.startswith("command:") and await self._directories.lack(probe.cwd):
            return not_cleared(f"{self._node} has no directory {probe.cwd}")
        surroundings = Surroundings(cwd=probe.cwd, env=probe.env, limit_s=limit_s)
        try:
            async with asyncio.timeout(limit_s + GRACE_S):
                return sound(await self._testers.ask(probe.tester, surroundings))
        except TimeoutError:
            return not_cleared(f"the test took longer than {limit_s:g} s on {self._node}")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            error = "it cancelled itself"
        except Exception as fault:  # of somebody's tester: that harms its own condition only
            error = f"{type(fault).__name__}: {fault}"
        log.warning("The tester %.100s failed: %.500s.", probe.tester, error)
        return not_cleared(f"the tester failed on {self._node}: {error}")


class _Directories:
    """Which there are on this node, without waiting for a file system that hangs."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._hangs = False

    async def lack(self, path: str) -> bool:
        """Whether it is known not to be there."""
        async with self._one_at_a_time:
            if self._hangs:
                return False
            self._hangs = True
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[bool] = loop.create_future()
            # A daemon thread: one that waits forever must not keep the worker alive.
            threading.Thread(target=self._look, args=(path, loop, answer), daemon=True).start()
            try:
                async with asyncio.timeout(LOOK_S):
                    return await answer
            except TimeoutError:
                return False

    def _look(self, path: str, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[bool]") -> None:
        """In a thread."""
        try:
            lacks = not stat.S_ISDIR(Path(path).stat().st_mode)
        except OSError as error:
            lacks = isinstance(error, FileNotFoundError | NotADirectoryError)
        except ValueError:  # a NUL in it: nobody has such a one
            lacks = True
        with contextlib.suppress(RuntimeError):  # the loop was closed without waiting for us
            loop.call_soon_threadsafe(self._on_seen, answer, lacks)

    def _on_seen(self, answer: "asyncio.Future[bool]", lacks: bool) -> None:
        self._hangs = False
        if not answer.done():
            answer.set_result(lacks)
