"""The files that attempts read are brought into the node's cache, each once however many need it, before they are launched.

wants --> undo what earlier attempts had delivered, if so told --> ask where names are --> in the cache: pinned
                                                                                  \\--> fetched, checked, added, pinned
all here  --> the agent launches it, with links to the pins       let go --> unpinned
a hitch   --> reported: the task waits for what is broken, or fails
"""

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tercel.core.declared import Wanted
from tercel.core.errors import UsageError
from tercel.core.faults import PASSING
from tercel.core.files import Hitch, Location, Made, Trouble, is_name
from tercel.core.reports import Report
from tercel.core.sizes import size
from tercel.core.states import Stage
from tercel.data.cache import Cache, CacheBusy
from tercel.data.contract import TransferFailed
from tercel.data.moving import Mover
from tercel.wire.messages import FromWorker, Removed
from tercel.worker.agent import Agent
from tercel.worker.asking import Asking
from tercel.worker.errands import Errands
from tercel.worker.fetching_files import Fetches, Source
from tercel.worker.held import Attempt
from tercel.worker.keeping import Keeping

log = logging.getLogger("tercel.worker")

MOMENT_S = 0.2
"""What takes no longer is nobody's business."""


class Bringing:
    def __init__(
        self,
        cache: Cache,
        agent: Agent,
        mover: Mover,
        asking: Asking,
        node: str,
        *,
        say: Callable[[FromWorker], None],
        on_owed: Callable[[list[Report]], None],
        on_brought: Callable[[], None],
        on_moving: Callable[[int], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._cache = cache
        self._agent = agent
        self._mover = mover
        self._asking = asking
        self._node = node
        self._say = say
        self._on_owed = on_owed
        self._on_brought = on_brought
        self._on_moving = on_moving
        self._fetches = Fetches(cache, mover, asking, say)
        self._keeping = Keeping(cache)
        self._errands = Errands(on_error, on_ended=self._unpin)
        self._open = False
        self._opening: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begin with what is newly wanted; let go of what no longer is."""
        for attempt in self._agent.take_unwanted():
            self._errands.end(attempt)
            self._unpin(attempt)
        for held in self._agent.wants():
            self._errands.begin(held.attempt, self._bring(held))

    async def keep(self, made: Sequence[Made], directory: Path) -> None:
        """What a task made under names, and that is still in this directory."""
        named = [one for one in made if one.name]
        if not named:
            return
        try:
            await self._open_cache()
        except (OSError, CacheBusy) as error:
            log.debug("Nothing is kept in the cache: %s.", error)
            return
        for one in named:
            self._keeping.take_in(str(directory / one.path), one.name, one.digest, one.size_bytes)

    def news(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Of names that are in the cache: which came, with their sizes, and which went."""
        try:
            return self._keeping.news() if self._open else ([], [])
        except OSError as error:  # it was removed, say: it is made anew when it is next needed
            log.debug("The cache cannot be looked at: %s.", error)
            return [], []

    def kept(self) -> list[tuple[str, int]]:
        return list(self._keeping.all())

    async def close(self) -> None:
        await self._errands.close()
        await self._fetches.close()
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._open:
            self._open = False
            self._cache.close()

    def _unpin(self, attempt: int) -> None:
        """When nobody wants it, and once more when all have heard of that: something may have come in between."""
        if self._open:
            self._cache.unpin(str(attempt))

    async def _bring(self, held: Attempt) -> None:
        moving = asyncio.get_running_loop().call_later(MOMENT_S, self._on_moving, held.attempt)
        try:
            if held.undo:
                await self._undo(held)
            links = await self._links(held)
        except TransferFailed as failed:
            self._fail(held, failed)
        except (OSError, CacheBusy) as error:
            failure = TransferFailed(Trouble.FULL, "", f"{self._node}: {error}", errno=errno_of(error))
            self._fail(held, failure)
        else:
            if self._agent.on_brought(held.attempt, links):
                self._on_brought()
        finally:
            moving.cancel()

    async def _undo(self, held: Attempt) -> None:
        """What earlier attempts had delivered goes. A storage that removes nothing has it replaced, if it is delivered again."""
        try:
            await self._mover.remove(held.undo)
        except TransferFailed as failed:
            if failed.trouble is not Trouble.REFUSED:
                raise
            log.warning("What %d.%d had delivered stays: %s.", held.job.id, held.task, failed)
        self._say(Removed(held.job.id, held.task))

    def _fail(self, held: Attempt, failed: TransferFailed) -> None:
        now = time.time()
        if failed.errno:  # this node's own fault: another may well have room
            self._on_owed(self._agent.fail_staging([held.attempt], failed.note, now, failed.errno))
            return
        hitch = Hitch(Stage.STAGE_IN, failed.trouble, failed.url, failed.note, failed.not_before_s)
        self._on_owed(self._agent.on_unbrought(held.attempt, hitch, now))

    # -- the cache ------------------------------------------------------------------------------------------

    async def _open_cache(self) -> None:
        """Raises OSError, or CacheBusy."""
        if self._open and not self._cache.is_there():
            log.warning("The cache %s was removed: it is made anew.", self._cache.dir)
            self._open = False
            self._cache.close()
            self._keeping.forget_all()
            self._cache.open()  # at once: there is nothing in it, and others use it meanwhile
            self._open = True
        if self._open:
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._opened())
        await asyncio.shield(self._opening)

    async def _opened(self) -> None:
        try:
            await asyncio.to_thread(self._cache.open)  # with many files it takes seconds
            self._open = True
        finally:
            self._opening = None

    # -- one attempt's --------------------------------------------------------------------------------------

    async def _links(self, held: Attempt) -> list[tuple[str, str]]:
        try:
            wanted = held.job.inputs(held.task, held.line)
            held.gathers = held.job.gathers(held.task, held.line)
        except UsageError as error:
            raise TransferFailed(Trouble.REFUSED, "", str(error)) from None
        if not wanted:
            return []
        await self._open_cache()
        sources = await self._sources(wanted)
        self._check_fit(sources)
        pin, brought = str(held.attempt), held.job.brought
        keys = {at: key for at, one in enumerate(sources) if (key := one.key or brought.get(one.name, ""))}
        cached = zip(keys, self._cache.get_all(list(keys.values()), pin), strict=True)
        paths = {at: path for at, path in cached if path is not None}
        missing = [at for at in range(len(wanted)) if at not in paths]
        if missing:
            paths |= await self._fetched([(at, sources[at]) for at in missing], pin, brought)
        for at, one in enumerate(wanted):
            digest = sources[at].key or brought.get(sources[at].name, "")
            if digest:
                self._keeping.has(one.source, digest, paths[at].stat().st_size)
        return [(str(paths[at]), one.name) for at, one in enumerate(wanted)]

    async def _fetched(
        self, missing: Sequence[tuple[int, Source]], pin: str, brought: dict[str, str]
    ) -> dict[int, Path]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {at: group.create_task(self._fetches.have(source, pin)) for at, source in missing}
        except* (TransferFailed, OSError, CacheBusy) as failures:
            raise _worst(failures.exceptions) from None
        for at, source in missing:
            brought[source.name] = tasks[at].result()[0]
        return {at: task.result()[1] for at, task in tasks.items()}

    async def _sources(self, wanted: Sequence[Wanted]) -> list[Source]:
        names = {one.source for one in wanted if is_name(one.source)}
        located = await self._asking.locate(names) if names else {}
        return [self._source(one, located.get(one.source)) for one in wanted]

    def _check_fit(self, sources: Sequence[Source]) -> None:
        """All of them are pinned at once: those that are more than the cache may have would wait for each other for ever."""
        sizes = {one.digest: one.size_bytes for one in sources if one.size_bytes > 0}
        if (needed := sum(sizes.values())) > (most := self._cache.size_bytes):
            note = f"what it reads has {size(needed)}, and the cache of {self._node} may have {size(most)}: give it more, with --cache-size"
            raise TransferFailed(Trouble.REFUSED, sources[0].name, note)

    def _source(self, one: Wanted, location: Location | None) -> Source:
        if not is_name(one.source):
            return Source(one.source, (one.source,), one.digest)
        if location is None or not location.digest:
            raise TransferFailed(Trouble.MISSING, one.source, f"{one.source} is not in the catalogue")
        wanted, known = one.digest.partition(":")[0], location.digest.partition(":")[0]
        if wanted == known and one.digest != location.digest:
            note = f"{one.source} is {location.digest} by the catalogue, and {one.digest} was asked for"
            raise TransferFailed(Trouble.REFUSED, one.source, note)
        if not location.urls:
            note = f"{one.source} has no replica that could be read"
            raise TransferFailed(Trouble.MISSING, one.source, note)
        # Of another algorithm: what comes is compared with both, for the cache knows it by the catalogue's.
        digest = location.digest if not wanted or wanted == known else one.digest
        return Source(one.source, location.urls, digest, location.size_bytes)


def _worst(failures: Sequence[BaseException]) -> BaseException:
    """Of several, one that waiting does not help comes first: the others would only put that off. Then what is this node's own."""
    found = [failure for failure in failures if isinstance(failure, TransferFailed)]
    lasting = (one for one in found if one.trouble not in PASSING and not one.errno)
    own = (one for one in failures if one not in found or (isinstance(one, TransferFailed) and one.errno))
    return next(lasting, None) or next(own, None) or found[0]


def errno_of(error: OSError | CacheBusy) -> str:
    """Never empty: it is this node's fault, whatever the system calls it."""
    number = error.errno if isinstance(error, OSError) else errno.EBUSY
    return errno.errorcode.get(number or 0, "EIO")
