"""Answers people who want to know what is in the worker's directory.

    Look -> its turn (one at a time) -> a thread, for at most LIMIT_S -> Seen

Beside everything else, whatever the worker does: a file system that is slow or hangs costs an answer, and nothing of what
the worker is for. When the link ends, answers are not given any more: whoever asked has been told so.
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tercel.core.errors import UsageError
from tercel.core.selectors import task_name
from tercel.runners.contract import Runner
from tercel.wire.looking import AtDirectory, AtFile, AtLog, AtSandbox, Found, Unseen
from tercel.wire.messages import Look, Seen
from tercel.worker import looking, sandboxes
from tercel.worker.agent import Agent
from tercel.worker.looking import Books
from tercel.worker.sandboxes import Asked, Running
from tercel.worker.walking import Budget, shown

log = logging.getLogger("tercel.worker")

COUNTED_MOST = 2_000_000
LISTED_MOST = 20_000
"""Entries that are looked at, of which a list has the first ones: they are held at once."""
LIMIT_S = 10.0
"""For a walk: it ends by itself then, with what it has."""
GRACE_S = 5.0
"""For one that does not: its file system hangs."""
WAITING_MOST = 8

Work = Callable[[], Found]


class Showing:
    def __init__(
        self, dir: Path, log: Path | None, agent: Agent, runner: Runner, answer: Callable[[Seen], None]
    ) -> None:
        self._dir = dir.resolve()  # links are followed to it, and none below it
        self._log = log
        self._agent = agent
        self._runner = runner
        self._answer = answer
        self._one_at_a_time = asyncio.Lock()
        self._back = asyncio.Event()
        """No thread is out: a look whose link has ended may still be under way."""
        self._back.set()
        self._given_up_at = 0.0
        """When the thread that is out is said to hang, by the loop's clock."""
        self._under_way: set[asyncio.Task[None]] = set()
        """For the link that there is."""

    def ask(self, look: Look) -> None:
        if len(self._under_way) >= WAITING_MOST:
            self._answer(Seen(look.number, Unseen("too many look at it at once", passing=True)))
            return
        task = asyncio.get_running_loop().create_task(self._look(look))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        """The link has ended."""
        tasks, self._under_way = self._under_way, set()
        for task in tasks:
            task.cancel()

    async def _look(self, look: Look) -> None:
        async with self._one_at_a_time:
            found = await self._found(look) if await self._is_back() else self._hanging()
        self._answer(Seen(look.number, found))

    async def _found(self, look: Look) -> Found:
        what = look.what
        match what:
            case AtDirectory():
                books, budget = self._books(), _budget(COUNTED_MOST)
                return await self._seen(
                    lambda: looking.contents(self._dir, books, self._log, time.time(), budget)
                )
            case AtLog():
                return await self._seen(lambda: sandboxes.log_tail(self._log))
        asked = self._asked(what)
        if isinstance(what, AtFile):
            path = what.path
            found = await self._seen(lambda: sandboxes.read(self._dir, asked, path))
        else:
            budget = _budget(LISTED_MOST)
            found = await self._seen(lambda: sandboxes.listing(self._dir, asked, budget))
        # Had it ended meanwhile, the next attempt in its place might be somebody else's.
        if asked.running is not None and self._running(what.attempts) != asked.running:
            return Unseen(f"{what.job}.{what.task} has just ended there: ask again", passing=True)
        return found

    # -- what the worker knows ----------------------------------------------------------------------------

    def _books(self) -> Books:
        owed, held = self._agent.owed, {one.attempt: one for one in self._agent.held()}
        lanes = self._runner.directories().items()
        return Books(
            frozenset(held),
            len(owed),
            # Of what never began there is no time.
            min((r.started_at + r.wall_s for r in owed.values() if r.started_at > 0), default=0.0),
            {lane.name: task_name(held[at].job, held[at].task) for at, lane in lanes if at in held},
        )

    def _asked(self, what: AtSandbox | AtFile) -> Asked:
        return Asked(what.job, what.task, what.attempts, self._running(what.attempts))

    def _running(self, attempts: list[int]) -> Running | None:
        """The newest: an earlier one may still be on its way out."""
        lanes = self._runner.directories()
        newest = next((attempt for attempt in reversed(attempts) if attempt in lanes), None)
        return Running(newest, lanes[newest].name) if newest is not None else None

    # -- in a thread --------------------------------------------------------------------------------------

    async def _is_back(self) -> bool:
        """Whether there is no thread out, or it comes back while that may still be hoped for."""
        if not self._back.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._given_up_at):
                    await self._back.wait()
        return self._back.is_set()

    async def _seen(self, work: Work) -> Found:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Found] = loop.create_future()
        self._back.clear()
        self._given_up_at = loop.time() + LIMIT_S + GRACE_S
        # A daemon thread: one that waits forever must not keep the worker alive.
        thread = threading.Thread(target=self._work, args=(work, loop, answer), daemon=True)
        try:
            thread.start()
        except (
            RuntimeError
        ) as error:  # tasks have taken all that the node has: nobody is out who could come back
            self._back.set()
            return Unseen(f"it cannot be looked at: {error}", passing=True)
        try:
            async with asyncio.timeout_at(self._given_up_at):
                return await answer
        except TimeoutError:
            log.warning("A look into %s has not come back: its file system is slow, or hangs.", self._dir)
            return self._hanging()

    def _hanging(self) -> Unseen:
        why = f"the file system of {shown(self._dir)} does not answer: it is slow, or hangs"
        return Unseen(why, passing=True)

    def _work(self, work: Work, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Found]") -> None:
        try:
            found = work()
        except UsageError as error:
            found = Unseen(str(error))
        except OSError as error:
            found = Unseen(f"it cannot be looked at: {os.strerror(error.errno or 0)}")
        except Exception as error:
            log.exception("A look into %s failed.", self._dir)
            found = Unseen(f"the look failed: {type(error).__name__}; the worker's log says more")
        with contextlib.suppress(RuntimeError):  # the loop was closed without waiting for us
            loop.call_soon_threadsafe(self._on_seen, answer, found)

    def _on_seen(self, answer: "asyncio.Future[Found]", found: Found) -> None:
        self._back.set()
        if not answer.done():
            answer.set_result(found)


def _budget(entries: int) -> Budget:
    return Budget(entries, time.monotonic() + LIMIT_S)
