"""What a worker says of its directory, judged as all that it says is: see hearing. Pure functions."""

import re

import msgspec

from tercel.core.errors import PeerError
from tercel.manager import hearing
from tercel.wire.looking import (
    FILES_MOST,
    KEPT_MOST,
    KINDS,
    LARGEST_MOST,
    LEFT_MOST,
    NAMES_BYTES,
    PATH_MOST,
    SIZE_MOST,
    TAIL_BYTES,
    TIME_MOST,
    Contents,
    Found,
    KeptSandbox,
    Left,
    Listing,
    Part,
    Tail,
    Unseen,
)

MAX_PARTS = 20
MAX_ID = 2**62
_TASK = re.compile(r"([0-9]{1,19}\.[0-9]{1,19})?")
"""It becomes part of a command that people are told."""


def seen(found: Found) -> Found:
    """Paths stay as they are, for they may be anything; words are made legible."""
    match found:
        case Contents():
            possible = _possible_contents(found)
        case Listing():
            possible = _possible_listing(found)
        case Tail():
            possible = _possible_tail(found)
        case Unseen(why):
            return msgspec.structs.replace(found, why=hearing.legible(why))
    if not possible:
        raise PeerError("says of its directory what cannot be")
    return found


def _possible_contents(found: Contents) -> bool:
    return (
        _possible_paths([found.dir, found.log])
        and _possible_sizes(found.disk_bytes, found.free_bytes, found.reports)
        and _possible_time(found.reports_since)
        and len(found.parts) <= MAX_PARTS
        and len(found.kept) <= KEPT_MOST
        and len(found.left) <= LEFT_MOST
        and all(map(_possible_part, found.parts))
        and all(map(_possible_kept, found.kept))
        and all(map(_possible_left, found.left))
    )


def _possible_part(part: Part) -> bool:
    return (
        all(map(_is_legible, (part.name, part.cut)))
        and _possible_sizes(part.size_bytes, part.entries, *(entry.size_bytes for entry in part.largest))
        and all(map(_possible_time, (part.oldest_at, *(entry.changed_at for entry in part.largest))))
        and len(part.largest) <= LARGEST_MOST
        and _possible_paths([entry.name for entry in part.largest])
        and all(_TASK.fullmatch(entry.task) for entry in part.largest)
    )


def _possible_kept(kept: KeptSandbox) -> bool:
    return (
        all(0 <= number < MAX_ID for number in (kept.job, kept.task, kept.attempt))
        and _possible_sizes(kept.size_bytes, kept.entries)
        and _possible_time(kept.since)
        and _is_legible(kept.cut)
    )


def _possible_left(left: Left) -> bool:
    return (
        left.kind in KINDS
        and _possible_paths([left.name])
        and _possible_sizes(left.size_bytes)
        and _possible_time(left.since)
    )


def _possible_listing(found: Listing) -> bool:
    return (
        len(found.files) <= FILES_MOST
        and len(found.kept) <= KEPT_MOST
        and all(0 <= attempt < MAX_ID for attempt in (found.attempt, *found.kept))
        and _possible_paths([found.dir, *(file.path for file in found.files)])
        and sum(len(file.path) for file in found.files) <= NAMES_BYTES
        and _possible_sizes(*(file.size_bytes for file in found.files))
        and all(map(_possible_time, (found.since, *(file.changed_at for file in found.files))))
        and all(map(_is_legible, (found.cut, *(file.kind for file in found.files))))
    )


def _possible_tail(found: Tail) -> bool:
    return (
        _possible_paths([found.path])
        and len(found.data) <= TAIL_BYTES
        and 0 <= found.offset <= found.offset + len(found.data) <= found.size_bytes <= SIZE_MOST
        and _possible_time(found.changed_at)
    )


def _possible_sizes(*told: int) -> bool:
    return all(0 <= size_bytes <= SIZE_MOST for size_bytes in told)


def _possible_paths(paths: list[str]) -> bool:
    return all(len(path) <= PATH_MOST for path in paths)


def _possible_time(told: float) -> bool:
    """Also before 1970: a file says what somebody set. False of what is not a number."""
    return -TIME_MOST <= told <= TIME_MOST


def _is_legible(word: str) -> bool:
    return len(word) <= hearing.MAX_NOTE and word.isprintable()
