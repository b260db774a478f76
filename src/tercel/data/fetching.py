"""Bringing a file: from the first of its URLs that has it as it should be, whole and checked, or not at all.

for each URL     read on from what is there, or from the start -> hashed while it comes
                   a large file that comes slowly: the rest in several parts at once (pieces.py)
                 -> size and digest as they should be -> durable -> named
cut              what came is kept, and gone on from once at once, and by whoever asks again
not as it should be
                 discarded, tried once more from the start; then the next URL
"""

import time
from collections.abc import Sequence

import msgspec

from tercel.core.files import Trouble, is_digest
from tercel.data.contract import Fetch, Fetched, Reading, Scheme, Seen, TransferFailed
from tercel.data.faults import told
from tercel.data.parts import Part
from tercel.data.pieces import Pieces
from tercel.data.schemes import Schemes
from tercel.data.urls import note_of, shown
from tercel.data.watches import Watch

TRIES = 2
"""Of one URL, in one fetch."""
_LAST = (Trouble.CORRUPT, Trouble.MISSING, Trouble.REFUSED)
"""What is told only if no other URL gives hope, the last at last."""


class Pace(msgspec.Struct, frozen=True):
    """When a file is fetched in several parts at once."""

    least_bytes: int = 64 << 20
    """There must be more than this to come."""
    slow_bytes_s: float = 100e6
    """It must come more slowly than this: what is quick is so with one connection."""
    look_s: float = 1.0
    """After so long it is looked at."""
    piece_bytes: int = 16 << 20
    at_once: int = 4


def fetch(
    what: Fetch,
    schemes: Schemes,
    watch: Watch,
    manager: tuple[str, str] = ("", ""),
    pace: Pace = Pace(),  # noqa: B008  it is frozen
) -> Fetched:
    if what.digest and not is_digest(what.digest):
        note = note_of(f"{what.digest} is no digest; write sha256:…, blake3:… or md5:…, in small hex digits")
        raise TransferFailed(Trouble.REFUSED, shown(what.urls[0] if what.urls else ""), note)
    bad: list[tuple[str, str]] = []
    failures: list[TransferFailed] = []
    for url in what.urls:
        try:
            fetched = _from_one(what, url, schemes.of(url, manager), watch, pace)
            return msgspec.structs.replace(fetched, bad=tuple(bad))
        except TransferFailed as failed:
            if failed.errno:
                raise  # this node's own disk: no other source helps
            if failed.trouble in (Trouble.CORRUPT, Trouble.MISSING):
                bad.append((url, failed.note))
            failures.append(failed)
    raise _worth_telling(failures, bad)


def _worth_telling(failures: Sequence[TransferFailed], bad: list[tuple[str, str]]) -> TransferFailed:
    """What passes by itself is waited for, even if another URL is bad for good."""
    if not failures:
        return TransferFailed(Trouble.MISSING, "", "there is no place to fetch it from")
    failed = min(failures, key=lambda each: _LAST.index(each.trouble) + 1 if each.trouble in _LAST else 0)
    failed.bad = tuple(bad)
    return failed


def _from_one(what: Fetch, url: str, scheme: Scheme, watch: Watch, pace: Pace) -> Fetched:
    part = Part(what.path, url, what.digest, what.durable)
    for tries_left in reversed(range(TRIES)):
        before = part.upto
        try:
            with told(url, watch), part.held():
                return _once(what, url, scheme, watch, pace, part)
        except TransferFailed as failed:
            if failed.trouble in (Trouble.CORRUPT, Trouble.REFUSED) or failed.errno:
                part.discard()  # a full disk gets its room back
            was_cut = failed.trouble is Trouble.DOWN and part.upto > before
            if not tries_left or failed.errno or not (was_cut or failed.trouble is Trouble.CORRUPT):
                raise
    raise AssertionError("the last try returns or raises")


def _once(what: Fetch, url: str, scheme: Scheme, watch: Watch, pace: Pace, part: Part) -> Fetched:
    origin = part.origin()
    # Never nothing: who is asked for no bytes at all says that there are none.
    begin = min(origin.upto, origin.seen.size_bytes - 1) if origin is not None else 0
    same_as = origin.seen.validator if origin is not None and begin > 0 else ""
    watch.begin(max(begin, 0), what.size_bytes)
    with scheme.read(url, watch, max(begin, 0), same_as=same_as) as reading:
        _check_said(what, url, reading.seen)
        if reading.begin and (reading.seen.validator != same_as or not same_as):
            raise _corrupt(url, "goes on with another file than it began with")
        part.begin(reading.begin, reading.seen, watch)
        watch.begin(reading.begin, max(reading.seen.size_bytes, what.size_bytes))
        is_slow = _stream(what, url, reading, watch, pace, part)
    if is_slow:
        Pieces(scheme, url, part, watch, pace.piece_bytes, pace.at_once).fetch()
    _check_made(what, url, part)
    part.finish()
    return Fetched(url=url, size_bytes=part.upto, digest=part.digests.own, validator=part.seen.validator)


def _stream(what: Fetch, url: str, reading: Reading, watch: Watch, pace: Pace, part: Part) -> bool:
    """Whether it is slow enough for the rest to be fetched in pieces."""
    seen, began, begin = reading.seen, time.monotonic(), part.upto
    may_split = seen.ranges and bool(seen.validator) and seen.size_bytes - begin > pace.least_bytes
    most = what.size_bytes if what.size_bytes >= 0 else what.most_bytes
    for chunk in reading.chunks:
        if part.upto + len(chunk) > most:
            raise _too_large(what, url)
        part.write(chunk)
        watch.step(len(chunk))
        if may_split and (took_s := time.monotonic() - began) > pace.look_s:
            is_slow = (part.upto - begin) / took_s < pace.slow_bytes_s
            if is_slow and seen.size_bytes - part.upto > pace.least_bytes:
                return True
            may_split = False
    return False


def _check_said(what: Fetch, url: str, seen: Seen) -> None:
    """Before anything is fetched."""
    if 0 <= what.size_bytes != seen.size_bytes >= 0:
        raise _corrupt(url, f"has {seen.size_bytes:,} bytes; it should have {what.size_bytes:,}")
    if seen.size_bytes > what.most_bytes:
        raise _too_large(what, url)


def _check_made(what: Fetch, url: str, part: Part) -> None:
    said = part.seen.size_bytes
    if 0 <= said != part.upto:
        raise _corrupt(url, f"gave {part.upto:,} bytes, and said that there are {said:,}")
    if 0 <= what.size_bytes != part.upto:
        raise _corrupt(url, f"has {part.upto:,} bytes; it should have {what.size_bytes:,}")
    if wrong := part.digests.wrong:
        raise _corrupt(url, f"has the digest {wrong}; it should have {what.digest}")


def _too_large(what: Fetch, url: str) -> TransferFailed:
    if what.size_bytes >= 0:
        return _corrupt(url, f"has more than the {what.size_bytes:,} bytes that it should have")
    note = f"{shown(url)} has more than {what.most_bytes:,} bytes, which is the most that is fetched"
    return TransferFailed(Trouble.REFUSED, shown(url), note_of(note))


def _corrupt(url: str, what: str) -> TransferFailed:
    return TransferFailed(Trouble.CORRUPT, shown(url), note_of(f"{shown(url)} {what}"))
