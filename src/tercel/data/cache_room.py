"""Room in a cache: what it takes, what may go, and how it goes without being taken away from anybody.

Who uses a file makes a hard link to it, and asks nobody. So a file is first moved out of sight, then its links are
counted, and then it is removed; or moved back, if somebody was quicker:

    objects/ab/d --rename--> trash/d --no pin--> a line in the index --unlocked--> unlink
         ^                      |
         +------- pinned -------+

All under the cache's lock, except for the last step, which may take long for a large file.
"""

# ruff: noqa: PTH104, PTH116, PTH208
import fcntl
import os
import time
from pathlib import Path

import msgspec

from tercel.core.errors import PassingFault
from tercel.core.files import is_digest
from tercel.core.sizes import size
from tercel.data.cache_files import PIN_OF, locked, object_path
from tercel.data.cache_index import Index, Went

_BLOCK_BYTES = 512
"""Of st_blocks, whatever the file system's own are."""


class CacheBusy(PassingFault):
    """Another process has had the cache's lock for too long: it is stopped, or its disk does not answer."""


class CacheFull(PassingFault):
    """There is no room, for what is here is in use or being fetched."""

    def __init__(
        self, dir: str, needed_bytes: int, size_bytes: int, fetched_bytes: int, pinned: list[tuple[str, int]]
    ) -> None:
        self.needed_bytes = needed_bytes
        self.size_bytes = size_bytes
        self.pinned = pinned
        """In use: digests and sizes."""
        if self.too_large:
            what = "which is more than it may have at all. Give it more: --cache-size"
        else:
            used = sum(pinned_bytes for _, pinned_bytes in pinned)
            what = f"of which {len(pinned)} files in use have {size(used)}, and others being fetched {size(fetched_bytes)}. It is tried again when tasks have ended; or give it more: --cache-size"
        super().__init__(
            f"the cache {dir} has no room for {size(needed_bytes)}: it may have {size(size_bytes)}, {what}"
        )

    @property
    def too_large(self) -> bool:
        """No waiting helps."""
        return self.needed_bytes > self.size_bytes


class Fetching(msgspec.Struct):
    """What a fetch has on the disk, or is to have."""

    name: str
    written_bytes: int = 0
    reserved_bytes: int | None = None
    """None: nobody goes on with it at present."""
    at_ns: int = 0
    """Written to last."""

    @property
    def idle(self) -> bool:
        return self.reserved_bytes is None

    @property
    def size_bytes(self) -> int:
        return max(self.written_bytes, self.reserved_bytes or 0)


class Room:
    def __init__(self, dir: str, index: Index, size_bytes: int) -> None:
        self._dir = dir
        self._objects = f"{dir}/objects"
        self._trash = f"{dir}/trash"
        self._index = index
        self._size_bytes = size_bytes
        self._doomed: list[str] = []

    def make(self, needed_bytes: int, claim: str = "") -> None:
        """So that this much more fits, besides what the fetch of this name has already. Raises CacheFull, and then no file has gone."""
        self._settle_trash()
        if needed_bytes > self._size_bytes:
            raise CacheFull(self._dir, needed_bytes, self._size_bytes, 0, [])
        while True:
            fetches = self.fetches()
            others = [fetch for fetch in fetches if fetch.name != claim]
            taken = self._index.total_bytes + sum(fetch.size_bytes for fetch in others)
            over = taken + needed_bytes - self._size_bytes
            if over <= 0:
                return
            # What is whole is worth more than what nobody goes on with.
            for fetch in sorted((fetch for fetch in others if fetch.idle), key=lambda fetch: fetch.at_ns):
                if over > 0 and self.drop_fetch(fetch.name):
                    over -= fetch.size_bytes
            if over > 0:
                live_bytes = sum(fetch.size_bytes for fetch in others if not fetch.idle)
                self.remove(self._chosen(over, needed_bytes, live_bytes))

    def _chosen(self, over: int, needed_bytes: int, live_bytes: int) -> list[str]:
        """Files that nobody uses, the longest unused first, until they are enough."""
        sizes = self._index.sizes
        chosen, linked = self._unlinked(over)
        over -= sum(sizes[digest] for digest in chosen)
        if over <= 0:
            return chosen
        # Links that are no pins: of sandboxes that are kept. They keep what they have; the cache need not.
        in_use = self.pinned()
        for digest in linked:
            if over > 0 and digest not in in_use:
                chosen.append(digest)
                over -= sizes[digest]
        if over > 0:
            pinned = [(digest, sizes[digest]) for digest in linked if digest in in_use]
            raise CacheFull(self._dir, needed_bytes, self._size_bytes, live_bytes, pinned)
        return chosen

    def _unlinked(self, over: int) -> tuple[list[str], list[str]]:
        """Enough of those without another link, as far as there are; and those with one that were met on the way."""
        index = self._index
        unlinked: list[str] = []
        linked: list[str] = []
        looked_at: dict[str, int] = {}
        now_ns = time.time_ns()
        try:
            for digest, at_ns in index.longest_unused():
                looked_at[digest] = at_ns
                status = _status(object_path(self._objects, digest))
                if status is not None and status.st_atime_ns > at_ns:
                    del looked_at[digest]
                    index.used(digest, status.st_atime_ns)  # its turn comes
                elif status is not None and status.st_nlink > 1:
                    linked.append(digest)
                    looked_at[digest] = now_ns  # used now: the next who needs room need not look at it again
                else:  # free; or gone, by who was killed before that was written down
                    unlinked.append(digest)
                    over -= index.sizes[digest]
                    if over <= 0:
                        break
        finally:
            for digest, at_ns in looked_at.items():
                index.used(digest, at_ns)
        return unlinked, linked

    def pinned(self) -> set[str]:
        """All that is in use by any holder."""
        found: set[str] = set()
        for holder in os.listdir(f"{self._dir}/pins"):
            try:
                found.update(name.rpartition(PIN_OF)[2] for name in os.listdir(f"{self._dir}/pins/{holder}"))
            except (FileNotFoundError, NotADirectoryError):
                continue  # ended meanwhile; or no holder's
        return found

    # -- files that go --------------------------------------------------------------------------------------

    def remove(self, digests: list[str], *, even_pinned: bool = False) -> None:
        """Those that nobody uses; or, of what is corrupt, the cache's own link."""
        gone: list[str] = []
        for digest in digests:
            path, away = object_path(self._objects, digest), f"{self._trash}/{digest}"
            try:
                os.rename(path, away)
            except FileNotFoundError:
                gone.append(digest)
                continue
            in_use = not even_pinned and os.stat(away, follow_symlinks=False).st_nlink > 1
            if in_use and digest in self.pinned():
                os.rename(away, path)
            else:
                gone.append(digest)
                self._doomed.append(away)
        self._index.write(Went(digest) for digest in gone if digest in self._index.sizes)

    def bury(self) -> None:
        """Remove what was moved out of sight. Needs no lock."""
        doomed, self._doomed = self._doomed, []
        for path in doomed:
            Path(path).unlink(missing_ok=True)

    def _settle_trash(self) -> None:
        """What another has moved out of sight and not removed yet, or was killed before it did."""
        with os.scandir(self._trash) as entries:
            names = [entry.name for entry in entries]
        gone: list[str] = []
        for name in names:
            away = f"{self._trash}/{name}"
            if not is_digest(name) or name not in self._index.sizes:
                Path(away).unlink(missing_ok=True)
                continue
            path = object_path(self._objects, name)
            if not os.path.lexists(path) and name in self.pinned():
                os.rename(away, path)
                continue
            Path(away).unlink(missing_ok=True)
            if not os.path.lexists(path):
                gone.append(name)
        if gone:
            self._index.write(Went(digest) for digest in gone)

    # -- fetches --------------------------------------------------------------------------------------------

    def fetches(self) -> list[Fetching]:
        """All that is being fetched, and what was left of fetches that ended on the way."""
        found: dict[str, Fetching] = {}
        with os.scandir(f"{self._dir}/claims") as entries:
            for entry in entries:
                name, _, suffix = entry.name.partition(".")
                fetch = found.setdefault(name, Fetching(name))
                try:
                    if suffix == "lock":
                        fetch.reserved_bytes = _reserved(entry.path)
                        continue
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # moved in, or released
                fetch.at_ns = max(fetch.at_ns, status.st_mtime_ns)
                fetch.written_bytes += status.st_blocks * _BLOCK_BYTES
        return list(found.values())

    def drop_fetch(self, name: str) -> bool:
        """Whether what an idle fetch left could be removed: somebody may go on with it."""
        lock = f"{self._dir}/claims/{name}.lock"
        if (fd := locked(lock)) is None:
            return False
        try:
            for path in Path(self._dir, "claims").glob(f"{name}*"):
                if path.name != f"{name}.lock":
                    path.unlink(missing_ok=True)
            Path(lock).unlink(missing_ok=True)
        finally:
            os.close(fd)
        return True


def _reserved(lock: str) -> int | None:
    """How much room a fetch is to have, by the lock of its claim; None: nobody has that lock. Raises FileNotFoundError."""
    fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        text = os.pread(fd, 32, 0)
        return int(text) if text.isdigit() else 0
    finally:
        os.close(fd)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
