"""Which files of the catalogue are in the node's cache, by the names that jobs give them, so that the manager can prefer this worker.

What the worker brought, and what its own tasks made under a name. Who else fetched what into a shared cache is not known by name.
"""

import logging
import os
from collections.abc import Iterable

from tercel.data.cache import Cache, CacheBusy, CacheFull

log = logging.getLogger("tercel.worker")

NAME_MOST = 256
"""Characters: longer ones are not told."""
NAMES_MOST = 50_000
"""That are told; of more, those that were told last."""


class Keeping:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._names: dict[str, tuple[str, int]] = {}
        """Of what is here: digest and size, by name."""
        self._by_digest: dict[str, set[str]] = {}
        self._came: dict[str, int] = {}
        self._went: dict[str, None] = {}

    def has(self, name: str, digest: str, size_bytes: int) -> None:
        """It is in the cache."""
        if len(name) > NAME_MOST or self._names.get(name) == (digest, size_bytes):
            return
        self._forget(name)
        self._names[name] = digest, size_bytes
        self._by_digest.setdefault(digest, set()).add(name)
        self._came[name] = size_bytes
        self._went.pop(name, None)
        if len(self._names) > NAMES_MOST:
            self._forget(next(iter(self._names)))

    def take_in(self, path: str, name: str, digest: str, size_bytes: int) -> None:
        """What a task made goes into the cache, if that costs no copy: who reads it next is best off here."""
        claim = self._cache.claim(digest)
        if claim is None:
            return
        try:
            claim.path.unlink(missing_ok=True)
            os.link(path, claim.path)
            pin = f"made-{digest.partition(':')[2][:16]}"
            self._cache.add(claim, digest, size_bytes, pin)
            self._cache.unpin(pin)
            self.has(name, digest, size_bytes)
        except (OSError, CacheFull, CacheBusy) as error:
            log.debug("%s is not kept in the cache: %s.", name, error)
            claim.path.unlink(missing_ok=True)
        finally:
            claim.release()

    def news(self) -> tuple[list[tuple[str, int]], list[str]]:
        """(names that came, with their sizes; names that went) since this was last asked."""
        _, gone = self._cache.take_news()
        for digest in gone:
            for name in list(self._by_digest.get(digest, ())):
                self._forget(name)
        came, went = list(self._came.items()), list(self._went)
        self._came, self._went = {}, {}
        return came, went

    def all(self) -> Iterable[tuple[str, int]]:
        """For a manager that knows of none."""
        return [(name, size_bytes) for name, (_, size_bytes) in self._names.items()]

    def forget_all(self) -> None:
        """The cache is another one."""
        for name in list(self._names):
            self._forget(name)

    def _forget(self, name: str) -> None:
        known = self._names.pop(name, None)
        if known is None:
            return
        names = self._by_digest[known[0]]
        names.discard(name)
        if not names:
            del self._by_digest[known[0]]
        self._came.pop(name, None)
        self._went[name] = None
