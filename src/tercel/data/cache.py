"""A node's cache of files, shared by all worker processes of one user, without a server: see docs/explanation/cache.md.

    get ----------- here -------------> pinned, to be linked into a sandbox
     \\- not here -> claim --> fetched and checked at claim.path --> add --> pinned
                       \\- another fetches it: get again a little later; or claim, if it gave up

Files are named by their digests and never change. Who uses one has a hard link to it, its *pin*, and nothing that is
pinned is removed to make room. All calls are quick but `verify`; those that change what is here wait for the cache's lock, which is
held for moments, and raise CacheBusy if that takes too long.

One object per process, used by one thread at a time (`verify`: by any).
"""

# ruff: noqa: PTH104, PTH108, PTH116, PTH123
import errno
import fcntl
import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from blake3 import blake3

from tercel.data.cache_files import (
    HOLDER_LOCK,
    LOCK_WAIT_S,
    MODE,
    PIN_OF,
    checked_digest,
    checked_name,
    claim_name,
    is_intact,
    lock_for_a_moment,
    locked,
    make_own,
    make_ready,
    mark_ns,
    object_path,
    objects_in,
    remove_holder,
    remove_pins,
)
from tercel.data.cache_index import Came, Index, Seen, Went
from tercel.data.cache_room import CacheBusy, CacheFull, Room

__all__ = ["Cache", "CacheBusy", "CacheFull", "Claim"]

log = logging.getLogger("tercel.data")

LEFT_S = 86_400.0
"""What is left of a fetch is removed when nobody has gone on with it for so long."""
_PIECE_BYTES = 2**20


class Claim:
    """The right to fetch something, which no other process has meanwhile."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        """Where it is to be. What is left here, or in `path`.part, by who had the claim before, is there still."""
        self._fd = fd

    def fileno(self) -> int:
        """To be inherited by whoever writes there: then the claim lasts until that process has ended, too."""
        return self._fd

    def release(self) -> None:
        """What was written stays, for who claims it next. Once is enough."""
        if self._fd >= 0:
            self.path.with_name(f"{self.path.name}.lock").unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


class Cache:
    def __init__(self, dir: Path, size_bytes: int, holder: str) -> None:
        """`holder`: what no other live process here calls itself."""
        self.dir = dir.resolve()
        self._objects = f"{self.dir}/objects"
        self._holder = checked_name(holder, "holder")
        self._own = f"{self.dir}/pins/{holder}"
        self.size_bytes = size_bytes
        self._index = Index(f"{self.dir}/index")
        self._room = Room(str(self.dir), self._index, size_bytes)
        self._lock = -1
        self._holder_lock = -1
        self._pins: dict[str, set[str]] = {}

    # -- life ---------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make it if there is none; remove what those left that were killed. Raises OSError if it cannot be used, or CacheBusy."""
        make_ready(self.dir)
        self._holder_lock = self._taken_holder()
        try:
            remove_pins(self._own)  # of its earlier life
            self._lock = os.open(self.dir / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._index.open()
            self._remove_dead_holders()
            self._reconcile()
            self._remove_left_fetches()
        except BaseException:
            self.close()
            raise
        self._index.take_news()

    def close(self) -> None:
        """All pins of this holder end. Claims are released by who has them."""
        if self._holder_lock < 0:
            return
        self._pins.clear()
        with suppress(FileNotFoundError):  # somebody has removed the cache
            remove_holder(self._own)
        self._index.close()
        for fd in (self._lock, self._holder_lock):
            if fd >= 0:
                os.close(fd)
        self._lock = self._holder_lock = -1

    def is_there(self) -> bool:
        """Whether it is still what was opened: a cache may be removed by anybody who wants its room."""
        try:
            status = os.stat(f"{self._own}/{HOLDER_LOCK}", follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(status, os.fstat(self._holder_lock))

    def _taken_holder(self) -> int:
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                make_own(Path(self._own))
                fd = locked(f"{self._own}/{HOLDER_LOCK}", LOCK_WAIT_S)
                break
            except FileNotFoundError:  # who took this one for dead has just removed the directory
                if time.monotonic() > until:
                    raise
        if fd is None:
            raise OSError(
                errno.EBUSY, f"another {self._holder} uses this cache: stop it first", str(self.dir)
            )
        return fd

    def _remove_dead_holders(self) -> None:
        with os.scandir(self.dir / "pins") as entries:
            directories = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        others = [entry.path for entry in directories if entry.name != self._holder]
        for path in others:
            try:
                fd = locked(f"{path}/{HOLDER_LOCK}")
            except FileNotFoundError:
                continue  # ended meanwhile
            if fd is not None:
                remove_holder(path)
                os.close(fd)

    def _reconcile(self) -> None:
        """Make the index say what the files say. They are looked through without the lock, and what differs once more with it."""
        found = dict(objects_in(self._objects))
        with self._alone():
            known = self._index.sizes
            doubtful = [digest for digest in known if digest not in found]
            for digest, status in found.items():
                if known.get(digest) != status.st_size or not is_intact(digest, status):
                    doubtful.append(digest)
                else:
                    self._index.used(digest, status.st_atime_ns)
            for digest in doubtful:
                self._settle(digest)
            try:
                self._room.make(0)
            except CacheFull:  # by those whose cache is larger, or was: nothing more comes in before that is in use no longer
                log.info("The cache %s has more than it may, all in use.", self.dir)

    def _remove_left_fetches(self) -> None:
        before_ns = time.time_ns() - int(LEFT_S * 1e9)
        for fetch in self._room.fetches():
            if fetch.idle and fetch.at_ns < before_ns:
                self._room.drop_fetch(fetch.name)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._lock < 0:
            raise OSError(errno.EBADF, "the cache is not open", str(self.dir))
        if not lock_for_a_moment(self._lock):
            raise CacheBusy(
                f"the cache {self.dir} has been locked by another process for {LOCK_WAIT_S:.0f} s: "
                "is one stopped, or its disk stuck?"
            )
        try:
            self._index.refresh()
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._room.bury()

    def _settle(self, digest: str) -> None:
        """Under the lock: make the index say of one file what is so, and remove it if it was changed."""
        try:
            status = os.stat(object_path(self._objects, digest), follow_symlinks=False)
        except FileNotFoundError:
            if digest in self._index.sizes:
                self._index.write([Went(digest)])
            return
        if not is_intact(digest, status):
            self._room.remove([digest], even_pinned=True)
        elif self._index.sizes.get(digest) != status.st_size:
            self._index.write([Came(digest, status.st_size, status.st_atime_ns)])

    # -- files --------------------------------------------------------------------------------------------

    def get(self, digest: str, pin: str) -> Path | None:
        """The file, if it is here, not to be removed until `unpin`."""
        return self.get_all([digest], pin)[0]

    def get_all(self, digests: Sequence[str], pin: str) -> list[Path | None]:
        """Several at once; None stands for what is not here."""
        for digest in digests:
            checked_digest(digest)
        held = self._pins.setdefault(checked_name(pin, "pin"), set())
        place = f"{self._own}/{pin}{PIN_OF}"
        now_ns = time.time_ns()
        return [self._linked(digest, place + digest, held, now_ns) for digest in digests]

    def _linked(self, digest: str, link: str, held: set[str], now_ns: int) -> Path | None:
        path = object_path(self._objects, digest)
        try:
            if digest in held:
                self._renew(path, link)
            else:
                os.link(path, link)
            status = os.stat(link, follow_symlinks=False)
        except FileNotFoundError:
            self._unpin_one(digest, link, held)
            self._missed(digest)
            return None
        if not is_intact(digest, status):
            self._unpin_one(digest, link, held)
            with self._alone():
                self._settle(digest)
            return None
        os.utime(link, ns=(now_ns, status.st_mtime_ns))
        held.add(digest)
        return Path(link)

    def _renew(self, path: str, link: str) -> None:
        """A pin that is there already is of the file that is here now: the earlier one may have been discarded."""
        if not os.path.samestat(os.stat(link, follow_symlinks=False), os.stat(path, follow_symlinks=False)):
            os.unlink(link)
            os.link(path, link)

    def _missed(self, digest: str) -> None:
        """It is not there. If it should be, somebody was killed before that was written down."""
        self._index.refresh()
        if digest in self._index.sizes:
            with self._alone():
                self._settle(digest)

    def unpin(self, pin: str) -> None:
        """All that it pinned may go when room is needed."""
        for digest in self._pins.pop(pin, ()):
            Path(f"{self._own}/{pin}{PIN_OF}{digest}").unlink(missing_ok=True)

    def _unpin_one(self, digest: str, link: str, held: set[str]) -> None:
        Path(link).unlink(missing_ok=True)
        held.discard(digest)

    def discard(self, digest: str) -> None:
        """It was found corrupt. Who has it pinned keeps what they have; nobody else gets it."""
        with self._alone():
            self._room.remove([checked_digest(digest)], even_pinned=True)

    def verify(self, digest: str) -> bool:
        """Whether it is here and its bytes are those that its name says. Reads all of them."""
        algorithm = checked_digest(digest).partition(":")[0]
        hasher = blake3() if algorithm == "blake3" else hashlib.new(algorithm, usedforsecurity=False)
        try:
            with open(object_path(self._objects, digest), "rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    hasher.update(piece)
        except FileNotFoundError:
            return False
        return f"{algorithm}:{hasher.hexdigest()}" == digest

    # -- fetching -------------------------------------------------------------------------------------------

    def claim(self, key: str) -> Claim | None:
        """The right to fetch this digest, or `url:…`; None: another has it. Look with `get` afterwards whether it has come just now."""
        name = claim_name(key)
        fd = locked(f"{self.dir}/claims/{name}.lock")
        return None if fd is None else Claim(self.dir / "claims" / name, fd)

    def reserve(self, claim: Claim, size_bytes: int) -> None:
        """Make room for a fetch before it begins, or before it goes on. Raises CacheFull, and then all is still here."""
        with self._alone():
            self._room.make(size_bytes, claim.path.name)
            os.ftruncate(claim.fileno(), 0)
            os.pwrite(claim.fileno(), str(size_bytes).encode(), 0)

    def add(self, claim: Claim, digest: str, size_bytes: int, pin: str) -> Path:
        """Take in what was fetched, and release the claim. Whoever is killed on the way leaves it here, or where it was fetched to.

        Raises CacheFull, or OSError: then nothing has changed, and the claim is still held.
        """
        path = object_path(self._objects, checked_digest(digest))
        held = self._pins.setdefault(checked_name(pin, "pin"), set())
        link = f"{self._own}/{pin}{PIN_OF}{digest}"
        with self._alone():
            self._settle(digest)
            if digest in self._index.sizes:  # from elsewhere meanwhile
                claim.path.unlink(missing_ok=True)
            else:
                self._room.make(size_bytes, claim.path.name)
                self._take_in(claim.path, path, digest, size_bytes)
            if digest in held:
                self._renew(path, link)
            else:
                os.link(path, link)
            held.add(digest)
        claim.release()
        return Path(link)

    def _take_in(self, source: Path, path: str, digest: str, size_bytes: int) -> None:
        status = source.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "what was fetched is no file", str(source))
        if status.st_size != size_bytes:
            raise OSError(errno.EIO, f"it has {status.st_size} bytes instead of {size_bytes}", str(source))
        now_ns = time.time_ns()
        source.chmod(MODE)
        os.utime(source, ns=(now_ns, mark_ns(digest, size_bytes)), follow_symlinks=False)
        if not is_intact(digest, source.lstat()):
            raise OSError(errno.ENOTSUP, "its times or its mode cannot be set", str(source))
        self._index.write([Came(digest, size_bytes, now_ns)])
        try:
            os.rename(source, path)
        except FileNotFoundError:  # the first one there
            make_own(Path(path).parent)
            os.rename(source, path)

    # -- what is here, and where from -----------------------------------------------------------------------

    def remember(self, url: str, validator: str, digest: str) -> None:
        """What a URL has, for as long as the file is here."""
        with self._alone():
            self._index.write([Seen(_url_key(url), validator, checked_digest(digest))])

    def recall(self, url: str) -> tuple[str, str] | None:
        """Its validator and its digest, as they were last seen."""
        self._index.refresh()
        return self._index.url(_url_key(url))

    def contents(self) -> list[tuple[str, int]]:
        self._index.refresh()
        return list(self._index.sizes.items())

    def take_news(self) -> tuple[list[tuple[str, int]], list[str]]:
        """What came, with sizes, and what went since this was last asked, or since it was opened; by anybody's doing."""
        self._index.refresh()
        return self._index.take_news()


def _url_key(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()
