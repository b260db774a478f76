"""A file that is on its way: `path`.part, and in `path`.part.from where it is from and how far it is whole.

    origin() -> begin() -> write() ... -> finish()    durable, then it gets its name
                                       -> discard()   it was not what it should be
                                       -> cut: what is whole so far is kept, and gone on from

What is gone on from was written since this node was booted, so nothing of it was lost in a power cut; and it is of the same
source, whose validator is the same. So no `fsync` is needed before the end.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from blake3 import blake3

from tercel.data.contract import Seen
from tercel.data.digests import Digests
from tercel.data.faults import own_disk
from tercel.data.local import chunks_of, sync_directory, write_all
from tercel.data.watches import Watch

NOTED_EACH_BYTES = 8 << 20
"""So much may be fetched again after a kill -9."""
_SYNC_FILE_RANGE_WRITE = 2


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    """The URL's digest: it may hold a secret."""
    seen: Seen
    upto: int
    """It is whole up to here."""
    boot: str


class Part:
    def __init__(self, path: str, url: str, digest: str = "", durable: bool = True) -> None:
        self._is_durable = durable
        self._path, self._url = path, url
        self._part, self._from = f"{path}.part", f"{path}.part.from"
        self._asked = digest
        self._source = blake3(url.encode(errors="surrogateescape")).hexdigest()
        self._fd = -1
        self._noted = 0
        self.seen = Seen()
        self.digests = Digests(digest)
        self.upto = 0
        """It is whole, and hashed, up to here."""

    def origin(self) -> Origin | None:
        """What can be gone on from, if the source is still the same."""
        try:
            found = msgspec.json.decode(Path(self._from).read_bytes(), type=Origin)
            size_bytes = Path(self._part).stat().st_size
        except (OSError, msgspec.MsgspecError):
            return None
        is_sound = 0 < found.upto <= size_bytes and found.seen.validator and found.boot == _boot() != ""
        return found if is_sound and found.source == self._source else None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around all that is done with it: what was cut is kept, if it can be gone on from, and its file is closed."""
        try:
            yield
        except BaseException:
            if self._fd >= 0:
                self._keep()
            raise
        finally:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def begin(self, upto: int, seen: Seen, watch: Watch) -> None:
        """What is kept of it is hashed again; the rest goes."""
        self.seen, self.upto, self.digests = seen, 0, Digests(self._asked)
        with own_disk(self._part, self._url):
            Path(self._part).parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if not upto:
                Path(self._from).unlink(missing_ok=True)  # before the bytes that it speaks of
            os.ftruncate(self._fd, upto)
            self.hash(upto, watch)
            os.lseek(self._fd, upto, os.SEEK_SET)
        self._note()

    def write(self, chunk: bytes | memoryview) -> None:
        """What comes next."""
        with own_disk(self._part, self._url):
            write_all(self._fd, chunk)
        self.digests.update(chunk)
        self.upto += len(chunk)
        self._get_on()

    def write_at(self, at: int, chunk: bytes | memoryview) -> None:
        """What comes later. Once all before it is there, `hash` it."""
        with own_disk(self._part, self._url):
            write_all(self._fd, chunk, at)

    def hash(self, upto: int, watch: Watch) -> None:
        with own_disk(self._part, self._url):
            for chunk in chunks_of(self._fd, self.upto, upto, watch):
                self.digests.update(chunk)
                self.upto += len(chunk)
                watch.alive(len(chunk))
        self._get_on()

    def _keep(self) -> None:
        if self.seen.validator and self.upto:
            self._note()
        else:
            self.discard()

    def finish(self) -> None:
        with own_disk(self._path, self._url):
            os.ftruncate(self._fd, self.upto)
            if self._is_durable:
                os.fsync(self._fd)
            Path(self._from).unlink(missing_ok=True)
            Path(self._part).replace(self._path)
            if self._is_durable:
                sync_directory(Path(self._path).parent)

    def discard(self) -> None:
        with own_disk(self._part, self._url):
            for each in (f"{self._from}.new", self._from, self._part):
                Path(each).unlink(missing_ok=True)

    def _get_on(self) -> None:
        """Now and then. The disk begins with what has come while the rest comes: little is left for the end to wait for."""
        if (count := self.upto - self._noted) >= NOTED_EACH_BYTES:
            if self._is_durable and _start_writing is not None:
                _start_writing(self._fd, self._noted, count, _SYNC_FILE_RANGE_WRITE)
            self._note()

    def _note(self) -> None:
        self._noted = self.upto
        if not self.seen.validator or not self.upto:
            return
        origin = Origin(source=self._source, seen=self.seen, upto=self.upto, boot=_boot())
        made = Path(f"{self._from}.new")
        with own_disk(self._from, self._url):
            made.write_bytes(msgspec.json.encode(origin))
            made.replace(self._from)


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's; others have none, and write all of it at the end. That it fails does no harm: `fsync` says so."""
    try:
        found = ctypes.CDLL(None).sync_file_range
    except AttributeError:
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


_start_writing = _sync_file_range()


def _boot() -> str:
    """Another one after each start of the node; empty: not known, and nothing is gone on from."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
