"""Snapshots that the manager takes: for whoever asks, before something is destroyed, and by schedule.

They are made beside the loop, from one committed state of the store, in `snapshots` beside it:

    000012.tercel      taken by itself: kept for a while, numbered
    passing-….tercel   on its way to a client, or from one: gone with the request, or at the next start
"""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tercel.core.errors import NotFound, PassingFault, StoreFull, TercelError
from tercel.core.model import JobRow
from tercel.manager.access import Identity
from tercel.stores.snapshot import files
from tercel.stores.snapshot.records import Header
from tercel.stores.snapshot.saving import Choice, save
from tercel.stores.sqlite.faults import NO_ROOM
from tercel.wire.api_snapshots import SnapshotList, SnapshotView

if TYPE_CHECKING:
    from tercel.manager.service import Manager

log = logging.getLogger("tercel.manager")

DIRECTORY = "snapshots"
SUFFIX = ".tercel"
SAFETY_TASKS = 1_000_000
"""Ended ones, of jobs that are put into a snapshot before something is done to them.

The manager goes on meanwhile (see `save`), so only who asked waits: two to five seconds for a million (benchmarks/snapshots.py).
Results of so many tasks took hours: for a way back people wait that long. Ten times as many would look like a command that hangs.
"""
SAVES_AT_ONCE = 2
"""For clients: each takes a thread, of which there are few, and other requests need them."""
TURN_S = 60.0
"""The longest a client waits until others have saved theirs."""
SPARE_BYTES = 2**30
"""Of the manager's disk: what a client sends leaves so much of it to the store, or this part of a small one."""
SPARE_PART = 0.05
NUMBERS_TOLD = 100
"""Of the jobs of a snapshot, in a list."""
SCHEDULED = "by schedule"
RETRY_S = 600.0
"""After a snapshot that was due could not be taken."""


class Snapshots:
    def __init__(self, manager: "Manager") -> None:
        self._manager = manager
        self._directory = manager.options.data / DIRECTORY
        self._taking = asyncio.Lock()
        """Numbers are given one at a time."""
        self._saves = asyncio.Semaphore(SAVES_AT_ONCE)
        self._savers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By user: each has one file on its way at a time, until all of it is sent."""
        self.restoring = asyncio.Lock()
        """One is restored at a time."""

    # -- for clients --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[Path]:
        """A place for a file that is gone with the request."""
        directory = await asyncio.to_thread(self._made)
        path = directory / f"passing-{os.urandom(8).hex()}{SUFFIX}"
        try:
            yield path
        finally:
            await asyncio.to_thread(_remove, path)

    @asynccontextmanager
    async def saved(self, user: str, choice: Choice) -> AsyncIterator[Path]:
        """In a file that is gone with the request."""
        async with AsyncExitStack() as stack:
            await _in_turn(stack, self._savers.setdefault(user, asyncio.Lock()))
            path = await stack.enter_async_context(self.passing())
            async with AsyncExitStack() as turn:  # a slow reader keeps only its own user waiting
                await _in_turn(turn, self._saves)
                await self.save(path, choice)
            yield path

    async def save(self, path: Path, choice: Choice) -> Header:
        """Into a file, with all that has happened so far."""
        await self._manager.settled()
        self._manager.check_saving()
        id, now = os.urandom(16).hex(), self._manager.clock()
        return await asyncio.to_thread(
            _written, partial(save, self._manager.store, path, choice, id, now), path
        )

    def listed(self, who: Identity) -> SnapshotList:
        """Newest first: those whose jobs are all the caller's to see."""
        return SnapshotList(snapshots=[view for view, header in self._found() if _may_see(who, header)])

    def path(self, who: Identity, number: int) -> Path:
        for view, header in self._found():
            if view.number == number and _may_see(who, header):
                return self._path(number)
        raise NotFound(
            f"there is no snapshot @{number} (or it is not yours): see `tercel snapshot list`", "number"
        )

    # -- by itself ----------------------------------------------------------------------------------------

    async def before(self, jobs: Iterable[int], why: str) -> str:
        """Take one before something is done to these jobs. Returns what to tell of it; empty if nobody needs to know.

        What cannot be had keeps nobody from anything: a full disk must not keep jobs from being cancelled.
        """
        if self._manager.options.embedded:
            return ""
        chosen = frozenset(jobs)
        if too_large := await self._too_large(chosen):
            return self._without(too_large, why)
        try:
            view = await self._take(Choice(jobs=chosen, why=why))
        except TercelError as error:
            return self._without(str(error), why)
        return f"snapshot @{view.number} has them as they were"

    async def _too_large(self, jobs: frozenset[int]) -> str:
        """Why these, with those that come along because they are needed, are too much; empty if they are not."""
        known = self._manager.machine.jobs
        ended, found, seen, todo = 0, list[int](), set(jobs), set(jobs)
        while todo:
            live = [known[id] for id in todo if id in known]
            rows = await asyncio.to_thread(self._rows, todo - known.keys())
            ended += sum(job.ended_count for job in live)
            ended += sum(row.finished + row.failed + row.cancelled for row in rows)
            rows += [job.row for job in live]
            found += [row.id for row in rows]
            todo = {after.job for row in rows for after in row.spec.after} - seen
            seen |= todo
        if ended > SAFETY_TASKS:
            return f"{ended:,} tasks have ended, which would take too long"
        kept = self._manager.store.kept_bytes
        if await asyncio.to_thread(lambda: sum(map(kept, found))) > self._manager.options.snapshots_bytes:
            return "the outputs of its tasks are larger than all snapshots together may be"
        return ""

    def _rows(self, ids: Iterable[int]) -> list[JobRow]:
        return [row for id in ids if (row := self._manager.store.job(id)) is not None]

    def _without(self, reason: str, why: str) -> str:
        log.warning("no snapshot was taken %s: %s", why, reason)
        return f"no snapshot was taken before: {reason}"

    async def _take(self, choice: Choice) -> SnapshotView:
        async with self._taking:
            directory = await asyncio.to_thread(self._made)
            number = 1 + max(self._numbers(), default=0)
            await self.save(self._path(number), choice)
            await asyncio.to_thread(self._prune)
            log.info("snapshot @%d was taken %s: %s", number, choice.why, directory)
            try:
                return self._view(number)[0]
            except OSError as error:
                raise unwritten(error, self._path(number)) from None

    async def keep_taking(self) -> None:
        """By schedule, for ever. Only what is unfinished, and what that needs: the rest does not change any more."""
        try:
            await asyncio.to_thread(self._sweep)
        except TercelError as error:
            log.warning("what was left on its way stays: %s", error)
        every_s = self._manager.options.snapshot_every_s
        if every_s <= 0:
            return
        while True:
            pause_s = await self.take_if_due(every_s)
            await asyncio.sleep(pause_s)

    async def take_if_due(self, every_s: float) -> float:
        """Returns how long there is nothing to do. What goes wrong is tried again then: the manager goes on."""
        try:
            return await self._taken_if_due(every_s)
        except TercelError as error:
            log.warning("the snapshot that is due could not be taken: %s", error)
            return min(every_s, RETRY_S)

    async def _taken_if_due(self, every_s: float) -> float:
        found = await asyncio.to_thread(self._found)
        now = self._manager.clock()
        saved = [view.saved_at for view, _ in found if view.why == SCHEDULED]
        # What was saved in time to come was so by a clock that has been set back since: it is no reason to wait.
        past = [at for at in saved or [self._manager.started_at] if at <= now]
        due_s = max(past) + every_s - now if past else 0.0
        if due_s > 0:
            return due_s
        jobs = frozenset(self._manager.machine.jobs)
        if jobs:
            await self._take(Choice(jobs=jobs, why=SCHEDULED))
        return min(every_s, RETRY_S)

    # -- files --------------------------------------------------------------------------------------------

    def _made(self) -> Path:
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise PassingFault(f"cannot make {self._directory}: {error.strerror}") from None
        return self._directory

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:06d}{SUFFIX}"

    def _named(self, pattern: str) -> list[Path]:
        try:
            return list(self._directory.glob(pattern))
        except OSError as error:
            raise PassingFault(f"cannot read {self._directory}: {error.strerror}") from None

    def _numbers(self) -> list[int]:
        names = [path.stem for path in self._named(f"*{SUFFIX}")]
        return sorted(int(name) for name in names if name.isdecimal())

    def _view(self, number: int) -> tuple[SnapshotView, Header]:
        path = self._path(number)
        header = files.header(path)
        view = SnapshotView(
            number=number,
            id=header.id,
            saved_at=header.saved_at,
            why=header.why,
            jobs=len(header.jobs),
            numbers=list(header.jobs[:NUMBERS_TOLD]),
            tasks=header.tasks,
            ended=header.ended,
            size_bytes=path.stat().st_size,
        )
        return view, header

    def _found(self) -> list[tuple[SnapshotView, Header]]:
        found = []
        for number in reversed(self._numbers()):
            with suppress(TercelError, OSError):  # it was damaged, or removed a moment ago: it is none
                found.append(self._view(number))
        return found

    def _prune(self) -> None:
        """Those that are not to be kept any longer go: see `outdated`."""
        scheduled = {view.number for view, _ in self._found() if view.why == SCHEDULED}
        kinds: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for number in self._numbers():
            with suppress(OSError):
                kinds[number in scheduled][number] = self._path(number).stat().st_size
        options = self._manager.options
        for number in outdated(kinds, options.snapshots_kept, options.snapshots_bytes):
            _remove(self._path(number))

    def _sweep(self) -> None:
        """What a manager that was killed left on its way."""
        for path in [*self._named("passing-*"), *self._named(".*.part")]:
            _remove(path)


def outdated(kinds: Sequence[Mapping[int, int]], most: int, most_bytes: int) -> list[int]:
    """The numbers of those that go, by the sizes of all: of each kind the oldest beyond `most`, then the oldest of the larger kind.

    Apart, so that ten rollbacks in a row leave what was saved by schedule. The last of a kind goes only if there is nothing else
    to remove, and the newest of all stays, however large it is.
    """
    kept = [dict(sorted(kind.items())) for kind in kinds if kind]
    gone = [number for kind in kept for number in list(kind)[: max(0, len(kind) - most)]]
    for kind in kept:
        for number in gone:
            kind.pop(number, None)
    while sum(map(len, kept)) > 1 and sum(sum(kind.values()) for kind in kept) > most_bytes:
        several = [kind for kind in kept if len(kind) > 1]
        # Of two that are the last of their kinds, the older.
        chosen = max(several, key=lambda kind: sum(kind.values())) if several else min(kept, key=min)
        oldest = min(chosen)
        del chosen[oldest]
        gone.append(oldest)
        kept = [kind for kind in kept if kind]
    return gone


def _may_see(who: Identity, header: Header) -> bool:
    return who.sees_only is None or header.owners == (who.sees_only,)


async def _in_turn(stack: AsyncExitStack, turn: AbstractAsyncContextManager[None]) -> None:
    try:
        async with asyncio.timeout(TURN_S):
            await stack.enter_async_context(turn)
    except TimeoutError:
        raise PassingFault("other snapshots are being saved: try again in a minute") from None


def check_room(path: Path, more_bytes: int, what: str = "the snapshot") -> None:
    """What a client sends must not take the room that the store needs to go on."""
    usage = shutil.disk_usage(path.parent)
    spare = min(SPARE_BYTES, int(usage.total * SPARE_PART))
    if usage.free - more_bytes < spare:
        raise StoreFull(
            f"no room on the manager's disk for {what} ({path.parent}): {usage.free:,} bytes are free, and "
            f"{spare:,} of them are kept for its store"
        )


def _remove(path: Path) -> None:
    """What cannot be removed, as somebody's directory of such a name, stays: nothing else must fail by it."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error.strerror)


def _written(work: Callable[[], Header], path: Path) -> Header:
    try:
        return work()
    except OSError as error:
        raise unwritten(error, path) from None


def unwritten(error: OSError, path: Path) -> PassingFault:
    """Why a snapshot could not be put where it should be."""
    if error.errno in NO_ROOM:
        return StoreFull(f"no room on the manager's disk for a snapshot ({path.parent})")
    return PassingFault(f"cannot write a snapshot to {path.parent}: {error.strerror}")
