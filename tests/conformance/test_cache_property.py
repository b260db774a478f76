"""Any interleaving of fetches, evictions, deaths and meddling leaves a cache as it should be.

Three holders share one. A death is a call that stops at its n-th change of the disk, and every n can be drawn: from then on that
process changes nothing more, and its locks are gone. Files are a few bytes to a few blocks, of which about three fit.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tercel.data import cache_index
from tercel.data.cache import Cache, CacheFull, Claim
from tests.conformance.caches import agrees, content, digest_of, files_in

ROOM = 20_000
DATA = [content(number, size_bytes) for number, size_bytes in enumerate((10, 4000, 5000, 6000, 9000, 9001))]
SHM = Path("/dev/shm")
CHANGES = (
    "link",
    "unlink",
    "rename",
    "replace",
    "pwrite",
    "ftruncate",
    "utime",
    "chmod",
    "mkdir",
    "rmdir",
    "open",
)

holders = st.sampled_from(["one", "two", "three"])
pins = st.sampled_from(["p", "q"])
data = st.sampled_from(DATA)


class Killed(BaseException):
    """The process is no more."""


@contextmanager
def dying(after: int) -> Iterator[None]:
    """So many changes of the disk are made, and none after them."""
    left = after

    def mortal(change: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **options: object) -> object:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return change(*words, **options)

        return call

    with patch.multiple(os, **{name: mortal(getattr(os, name)) for name in CHANGES}):
        yield


class CacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=SHM if os.access(SHM, os.W_OK) else None))
        self.live: dict[str, Cache] = {}
        self.claims: dict[tuple[str, str], Claim] = {}
        self.pinned: dict[tuple[str, str, str], Path] = {}
        self.told: dict[str, dict[str, int]] = {}
        """What a manager knows of each, by what it was told."""
        self.changed: set[str] = set()
        self.settled = True
        """No death or meddling since somebody looked at all files."""

    def teardown(self) -> None:
        for holder in list(self.live):
            self.lose(holder)
        shutil.rmtree(self.root)

    def lose(self, holder: str) -> None:
        cache = self.live.pop(holder)
        claims = [self.claims.pop(key) for key in list(self.claims) if key[0] == holder]
        for fd in (cache._lock, cache._holder_lock, cache._index._fd, *(claim.fileno() for claim in claims)):
            if fd >= 0:
                os.close(fd)
        for key in [key for key in self.pinned if key[0] == holder]:
            del self.pinned[key]

    def mortally(self, holder: str, after: int, call: Callable[[], object]) -> bool:
        """Whether it survived."""
        try:
            with dying(after):
                call()
        except Killed:
            self.settled = False
            self.lose(holder)
            return False
        except CacheFull:
            pass
        return True

    # -- what processes do --------------------------------------------------------------------------------

    @rule(holder=holders)
    def open(self, holder: str) -> None:
        if holder not in self.live:
            cache = Cache(self.root / "cache", ROOM, holder)
            cache.open()
            self.live[holder] = cache
            self.told[holder] = dict(cache.contents())
            self.settled = True
            self.changed.clear()

    @rule(holder=holders)
    def close(self, holder: str) -> None:
        if holder in self.live:
            self.live[holder].close()
            self.lose(holder)

    @rule(holder=holders, pin=pins, data=data)
    def get(self, holder: str, pin: str, data: bytes) -> None:
        if holder not in self.live:
            return
        digest = digest_of(data)
        here = digest in files_in(self.root / "cache") and digest not in self.changed
        path = self.live[holder].get(digest, pin)
        if here:
            assert path is not None
        if path is None:
            self.pinned.pop((holder, pin, digest), None)
            self.changed.discard(digest)
        else:
            assert path.read_bytes() == data
            self.pinned[holder, pin, digest] = path

    @rule(holder=holders, pin=pins)
    def unpin(self, holder: str, pin: str) -> None:
        if holder in self.live:
            self.live[holder].unpin(pin)
            for key in [key for key in self.pinned if key[:2] == (holder, pin)]:
                del self.pinned[key]

    @rule(holder=holders, data=data, written=st.booleans())
    def claim(self, holder: str, data: bytes, written: bool) -> None:
        """And perhaps fetch the half of it."""
        if holder not in self.live:
            return
        digest = digest_of(data)
        claim = self.live[holder].claim(digest)
        assert (claim is None) == any(key[1] == digest for key in self.claims)
        if claim is not None:
            self.claims[holder, digest] = claim
            if written:
                claim.path.with_name(claim.path.name + ".part").write_bytes(data[: len(data) // 2])

    @rule(holder=holders, data=data)
    def release(self, holder: str, data: bytes) -> None:
        if (claim := self.claims.pop((holder, digest_of(data)), None)) is not None:
            claim.release()

    @rule(holder=holders, data=data)
    def reserve(self, holder: str, data: bytes) -> None:
        if (claim := self.claims.get((holder, digest_of(data)))) is not None:
            try:
                self.live[holder].reserve(claim, len(data))
            except CacheFull as full:
                self.is_really_full(full, claim)

    @rule(holder=holders, pin=pins, data=data)
    def add(self, holder: str, pin: str, data: bytes) -> None:
        digest = digest_of(data)
        if (claim := self.fetched(holder, digest, data)) is None:
            return
        try:
            path = self.live[holder].add(claim, digest, len(data), pin)
        except CacheFull as full:
            self.is_really_full(full, claim)
            return
        del self.claims[holder, digest]
        self.changed.discard(digest)
        assert path.read_bytes() == data
        self.pinned[holder, pin, digest] = path

    def fetched(self, holder: str, digest: str, data: bytes) -> Claim | None:
        if holder not in self.live:
            return None
        claim = self.claims.get((holder, digest)) or self.live[holder].claim(digest)
        if claim is not None:
            self.claims[holder, digest] = claim
            claim.path.unlink(missing_ok=True)
            claim.path.with_name(claim.path.name + ".part").unlink(missing_ok=True)
            claim.path.write_bytes(data)
        return claim

    def is_really_full(self, full: CacheFull, claim: Claim) -> None:
        """By what is pinned and what others fetch."""
        in_use = set(next(iter(self.live.values()))._room.pinned())
        taken = sum(size for digest, size in files_in(self.root / "cache").items() if digest in in_use)
        others = {key[1]: other for key, other in self.claims.items() if other is not claim}
        for name, other in others.items():
            parts = (self.root / "cache" / "claims").glob(f"{name}*")
            written = sum(part.stat().st_blocks * 512 for part in parts if part.suffix != ".lock")
            taken += max(written, int(os.pread(other.fileno(), 20, 0) or b"0"))
        assert taken + full.needed_bytes > ROOM

    @rule(holder=holders, data=data)
    def discard(self, holder: str, data: bytes) -> None:
        if holder in self.live:
            self.live[holder].discard(digest_of(data))
            self.changed.discard(digest_of(data))
            for key in [key for key in self.pinned if key[2] == digest_of(data)]:
                assert self.pinned[key].read_bytes() == data  # nobody's own is taken away

    # -- how they die -------------------------------------------------------------------------------------

    @rule(holder=holders)
    def kill(self, holder: str) -> None:
        if holder in self.live:
            self.lose(holder)

    @rule(holder=holders, pin=pins, data=data, after=st.integers(0, 25))
    def die_adding(self, holder: str, pin: str, data: bytes, after: int) -> None:
        digest = digest_of(data)
        if (claim := self.fetched(holder, digest, data)) is not None:
            cache = self.live[holder]
            if self.mortally(holder, after, lambda: cache.add(claim, digest, len(data), pin)):
                self.lose(holder)

    @rule(holder=holders, after=st.integers(0, 25))
    def die_opening(self, holder: str, after: int) -> None:
        if holder not in self.live:
            cache = self.live[holder] = Cache(self.root / "cache", ROOM, holder)
            if self.mortally(holder, after, cache.open):
                self.lose(holder)

    @rule(holder=holders, data=data, after=st.integers(0, 8))
    def die_discarding(self, holder: str, data: bytes, after: int) -> None:
        if holder in self.live:
            cache = self.live[holder]
            if self.mortally(holder, after, lambda: cache.discard(digest_of(data))):
                self.lose(holder)

    @rule(holder=holders, after=st.integers(0, 8))
    def die_closing(self, holder: str, after: int) -> None:
        if holder in self.live and self.mortally(holder, after, self.live[holder].close):
            self.lose(holder)

    @precondition(lambda self: self.pinned)
    @rule(number=st.integers(0, 5))
    def meddle(self, number: int) -> None:
        """A task overwrites its input."""
        keys = sorted(self.pinned)
        digest = keys[number % len(keys)][2]
        path = self.pinned[keys[number % len(keys)]]
        path.chmod(0o644)
        path.write_bytes(b"!" * path.stat().st_size)
        self.changed.add(digest)
        self.settled = False
        for key in [key for key in keys if key[2] == digest]:
            del self.pinned[key]

    # -- what must be so ----------------------------------------------------------------------------------

    @invariant()
    def bound_holds(self) -> None:
        if (self.root / "cache" / "objects").exists():
            assert sum(files_in(self.root / "cache").values()) <= ROOM

    @invariant()
    def index_and_files_agree(self) -> None:
        for cache in self.live.values():
            known = dict(cache.contents())
            assert sum(known.values()) <= ROOM
            if self.settled:
                agrees(cache)
            else:  # a line too many, by one who was killed; never a file that nobody counts
                assert files_in(self.root / "cache").items() <= known.items()

    @invariant()
    def nothing_in_use_is_gone(self) -> None:
        for (_, _, digest), path in self.pinned.items():
            assert digest_of(path.read_bytes()) == digest

    @invariant()
    def news_tell_the_same_as_contents(self) -> None:
        for holder, cache in self.live.items():
            known = self.told[holder]
            came, went = cache.take_news()
            known.update(came)
            for digest in went:
                known.pop(digest, None)
            assert known == dict(cache.contents())


@pytest.mark.must("c")
def test_any_interleaving_leaves_it_consistent_with_its_index_within_its_size_and_with_all_that_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    monkeypatch.setattr(cache_index, "COMPACT_LINES", 10)
    run_state_machine_as_test(
        CacheMachine,
        settings=settings(
            max_examples=int(os.environ.get("CACHE_EXAMPLES", "40")), stateful_step_count=40, print_blob=False
        ),
    )
