"""Files that are fetched into the cache: one fetch for all attempts that need it here, and for all workers of the node."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from tercel.core.faults import PASSING
from tercel.core.files import Trouble, is_name
from tercel.data.cache import Cache, CacheBusy, CacheFull, Claim
from tercel.data.contract import Fetch, Fetched, TransferFailed
from tercel.data.moving import Mover
from tercel.data.urls import shown
from tercel.wire.messages import FromWorker, Marked
from tercel.worker.asking import Asking

log = logging.getLogger("tercel.worker")

PAUSES_S = (0.5, 2.0)
"""Between tries, before somebody else is asked to watch for what is broken."""
ELSEWHERE_S = 0.1
"""How often it is looked whether another worker of the node has fetched it."""
FULL_S = 0.5
"""How often it is looked whether there is room."""
FULL_MOST_S = 60.0
"""So long: two attempts that have half of their files pinned, and wait for room for the rest, would wait for ever."""
AT_ONCE = 16
OURS = "blake3:"


class Source(msgspec.Struct, frozen=True):
    """Where a file comes from."""

    name: str
    """As the job calls it."""
    urls: tuple[str, ...]
    digest: str = ""
    size_bytes: int = -1

    @property
    def key(self) -> str:
        """What it is called in the cache, if that is known before it is fetched."""
        return self.digest if self.digest.startswith(OURS) else ""


class Fetches:
    def __init__(self, cache: Cache, mover: Mover, asking: Asking, say: Callable[[FromWorker], None]) -> None:
        self._cache = cache
        self._mover = mover
        self._asking = asking
        self._say = say
        self._under_way: dict[str, tuple[asyncio.Task[str], set[str]]] = {}
        """By source: the fetch, and who waits for it."""
        self._tasks: set[asyncio.Task[str]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)

    async def have(self, source: Source, pin: str) -> tuple[str, Path]:
        """Its digest, and where it is in the cache, pinned. Raises TransferFailed, or OSError."""
        key = f"{source.name} {source.digest}"
        while True:
            digest = source.key or await self._recalled(source)
            if digest and (path := self._cache.get(digest, pin)) is not None:
                return digest, path
            task, pins = self._joined(key, source)
            pins.add(pin)
            try:
                digest = await asyncio.shield(task)
            finally:
                pins.discard(pin)
                if not pins and not task.done():
                    task.cancel()
                    self._forget(key, task)  # who comes now must not join what is ending
            if (path := self._cache.get(digest, pin)) is not None:
                return digest, path

    async def close(self) -> None:
        """When nobody waits any more: claims are released before the cache is closed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _joined(self, key: str, source: Source) -> tuple["asyncio.Task[str]", set[str]]:
        if key not in self._under_way:
            pins: set[str] = set()
            task = asyncio.get_running_loop().create_task(self._fetch(source, pins))
            self._under_way[key] = task, pins
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._forget(key, done))
            task.add_done_callback(self._tasks.discard)
        return self._under_way[key]

    def _forget(self, key: str, task: "asyncio.Task[str]") -> None:
        if key in self._under_way and self._under_way[key][0] is task:
            del self._under_way[key]

    async def _recalled(self, source: Source) -> str:
        """What it had when it was last fetched, if it is still the same there."""
        seen = self._cache.recall(source.digest or source.name)
        if seen is None:
            return ""
        validator, digest = seen
        if source.digest:  # of another algorithm: it says all
            return digest
        if not validator:
            return ""
        try:
            _, now = await self._mover.stat(source.urls[0])
        except TransferFailed:
            return ""  # not all who may read it may ask about it; if it cannot be had, fetching says so
        return digest if now == validator else ""

    async def _fetch(self, source: Source, pins: set[str]) -> str:
        """Returns its digest; it is pinned for all who wait."""
        async with self._room:
            claim, awaited = await self._claimed(source)
            try:
                digest = source.key or (await self._recalled(source) if awaited else "")
                if digest and all(self._cache.get(digest, pin) for pin in pins):
                    return digest  # another worker of this node has just fetched it
                if source.size_bytes >= 0:
                    await self._when_there_is_room(
                        source.urls[0], lambda: self._cache.reserve(claim, source.size_bytes)
                    )
                fetched = await self._try(source, claim)
                await self._add(claim, fetched, pins)
            finally:
                claim.release()
        if source.digest and not source.key:
            self._cache.remember(source.digest, "", fetched.digest)
        elif not is_name(source.name) and fetched.validator:
            self._cache.remember(source.name, fetched.validator, fetched.digest)
        return fetched.digest

    async def _claimed(self, source: Source) -> tuple[Claim, bool]:
        """And whether another had it meanwhile."""
        awaited = False
        # Another process has it, and tells nobody when it is done.
        while (claim := self._cache.claim(source.key or f"url:{source.name}")) is None:
            awaited = True
            await asyncio.sleep(ELSEWHERE_S)
        return claim, awaited

    async def _try(self, source: Source, claim: Claim) -> Fetched:
        what = Fetch(
            urls=source.urls,
            path=str(claim.path),
            digest=source.digest,
            size_bytes=source.size_bytes,
            most_bytes=self._cache.size_bytes,
        )
        for pause_s in (*PAUSES_S, None):
            try:
                await self._asking.turn(source.urls[:1])
                fetched = await self._mover.fetch(what)
                self._mark(source, fetched.bad)
                return fetched
            except TransferFailed as failed:
                self._mark(source, failed.bad)
                if is_name(source.name) and failed.trouble in (Trouble.MISSING, Trouble.CORRUPT):
                    failed.url = source.name  # none of its places is any good: it waits for another
                if pause_s is None or failed.trouble not in PASSING or failed.not_before_s > pause_s:
                    raise _told(failed, source) from failed
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    def _mark(self, source: Source, bad: tuple[tuple[str, str], ...]) -> None:
        if is_name(source.name):
            for url, why in bad:
                self._say(Marked(source.name, url, why))

    async def _add(self, claim: Claim, fetched: Fetched, pins: set[str]) -> None:
        """Who waits for it may have changed by the time there is room."""
        digest, size_bytes = fetched.digest, fetched.size_bytes
        await self._when_there_is_room(
            fetched.url, lambda: self._cache.add(claim, digest, size_bytes, next(iter(pins)))
        )
        for pin in pins:
            self._cache.get(digest, pin)

    async def _when_there_is_room(self, url: str, do: Callable[[], object]) -> None:
        """What is larger than the whole cache never has any."""
        loop = asyncio.get_running_loop()
        until = loop.time() + FULL_MOST_S
        while True:
            try:
                do()
                return
            except CacheFull as full:
                if full.too_large:
                    raise TransferFailed(Trouble.REFUSED, shown(url), str(full)) from None
                if loop.time() >= until:  # another worker may have room
                    raise TransferFailed(Trouble.FULL, shown(url), str(full), errno="ENOSPC") from None
            except CacheBusy as busy:
                if loop.time() >= until:
                    raise
                log.warning("%s", busy)
            await asyncio.sleep(FULL_S)


def _told(failed: TransferFailed, source: Source) -> TransferFailed:
    """As the manager is told: a name that none of its places has any more is what is missing, not one of them."""
    url = failed.url or shown(source.urls[0])
    if is_name(source.name) and failed.trouble in (Trouble.CORRUPT, Trouble.MISSING):
        url = source.name
    return TransferFailed(failed.trouble, url, failed.note, failed.not_before_s, failed.errno, failed.bad)
