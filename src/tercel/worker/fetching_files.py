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
from tercel.wire.messages import FromWorker, Marked
from tercel.worker.asking import Asking

log = logging.getLogger("tercel.worker")

PAUSES_S = (0.5, 2.0)
"""Between tries, before somebody else is asked to watch for what is broken."""
ELSEWHERE_S = 0.1
"""How often it is looked whether another worker of the node has fetched it."""
FULL_S = 0.5
"""How often it is looked whether there is room."""
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
        self._room = asyncio.Semaphore(AT_ONCE)

    async def have(self, source: Source, pin: str) -> tuple[str, Path]:
        """Its digest, and where it is in the cache, pinned. Raises TransferFailed, or OSError."""
        while True:
            digest = source.key or await self._recalled(source)
            if digest and (path := self._cache.get(digest, pin)) is not None:
                return digest, path
            task, pins = self._joined(source)
            pins.add(pin)
            try:
                digest = await asyncio.shield(task)
            finally:
                pins.discard(pin)
                if not pins and not task.done():
                    task.cancel()
            if (path := self._cache.get(digest, pin)) is not None:
                return digest, path

    def _joined(self, source: Source) -> tuple["asyncio.Task[str]", set[str]]:
        key = f"{source.name} {source.digest}"
        if key not in self._under_way:
            pins: set[str] = set()
            task = asyncio.get_running_loop().create_task(self._fetch(source, pins))
            self._under_way[key] = task, pins
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return self._under_way[key]

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
        _, now = await self._mover.stat(source.urls[0])
        return digest if now == validator else ""

    async def _fetch(self, source: Source, pins: set[str]) -> str:
        """Returns its digest; it is pinned for all who wait."""
        async with self._room:
            claim = await self._claimed(source)
            try:
                if source.key and all(self._cache.get(source.key, pin) for pin in pins):
                    return source.key  # another worker of this node has just fetched it
                if source.size_bytes >= 0:
                    await self._when_there_is_room(
                        claim, source, lambda: self._cache.reserve(claim, source.size_bytes)
                    )
                fetched = await self._try(source, claim)
                first, *others = pins
                await self._when_there_is_room(
                    claim,
                    source,
                    lambda: self._cache.add(claim, fetched.digest, fetched.size_bytes, first),
                )
                for pin in others:
                    self._cache.get(fetched.digest, pin)
            finally:
                claim.release()
        if source.digest and not source.key:
            self._cache.remember(source.digest, "", fetched.digest)
        elif not is_name(source.name) and fetched.validator:
            self._cache.remember(source.name, fetched.validator, fetched.digest)
        return fetched.digest

    async def _claimed(self, source: Source) -> Claim:
        # Another process has it, and tells nobody when it is done.
        while (claim := self._cache.claim(source.key or f"url:{source.name}")) is None:  # noqa: ASYNC110
            await asyncio.sleep(ELSEWHERE_S)
        return claim

    async def _try(self, source: Source, claim: Claim) -> Fetched:
        what = Fetch(
            urls=source.urls, path=str(claim.path), digest=source.digest, size_bytes=source.size_bytes
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
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    def _mark(self, source: Source, bad: tuple[tuple[str, str], ...]) -> None:
        if is_name(source.name):
            for url, why in bad:
                self._say(Marked(source.name, url, why))

    async def _when_there_is_room(self, claim: Claim, source: Source, do: Callable[[], object]) -> None:
        """What is larger than the whole cache never has any."""
        while True:
            try:
                do()
                return
            except CacheFull as full:
                if full.too_large:
                    claim.path.unlink(missing_ok=True)
                    raise TransferFailed(Trouble.REFUSED, source.urls[0], str(full)) from None
            except CacheBusy as busy:
                log.warning("%s", busy)
            await asyncio.sleep(FULL_S)
