"""Which of the files that an attempt left goes where. Pure."""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from tercel.core.declared import Leaving
from tercel.core.filenames import is_place, is_registered_name
from tercel.core.files import KEPT, Hitch, Trouble, When
from tercel.core.locating import placed
from tercel.core.reports import End, Report
from tercel.core.states import Stage
from tercel.data.urls import note_of
from tercel.runners.globs import Part, parts_of
from tercel.wire.messages import MAX_FRAME_BYTES
from tercel.worker.parcels import MADE_BYTES

TOLD_MOST_BYTES = MAX_FRAME_BYTES // 2
"""To tell where the files of one attempt are: a link takes no report that is larger than a frame, however often it is sent."""


class Address(msgspec.Struct, frozen=True, array_like=True):
    """Of one file."""

    path: str
    """In its task's directory."""
    to: tuple[str, ...]
    """The best first. `tercel:` is the manager, whatever its digest turns out to be."""
    name: str
    """What it is registered as; empty: its URL."""


class Undeliverable(Exception):
    """A task finished without a file that it was to leave, or left some that cannot be where they should."""

    def __init__(self, hitch: Hitch) -> None:
        super().__init__(hitch.note)
        self.hitch = hitch


def addresses(report: Report, leavings: Sequence[Leaving]) -> list[Address]:
    """In the order of the declarations. Raises Undeliverable."""
    fine = report.end is End.EXITED and report.code == 0
    paths = sorted(path for path, _ in report.gathered)
    found: list[Address] = []
    for leaving in leavings:
        if leaving.when is not When.ALWAYS and (leaving.when is When.FINISHED) != fine:
            continue
        matching = _matching(paths, leaving.pattern)
        if not matching and fine and not leaving.optional:
            note = (
                f"it finished, and left no file {leaving.pattern}: correct its name, or declare it optional"
            )
            raise Undeliverable(Hitch(Stage.STAGE_OUT, Trouble.MISSING, leaving.pattern, note))
        found += [_address(leaving, path) for path in matching]
    found = list(dict.fromkeys(found))
    _check_apart(found)
    _check_few(found)
    return found


def _matching(paths: Sequence[str], pattern: str) -> list[str]:
    """`paths` are in order, so that thousands of plain names are not each compared with thousands of files."""
    parts = parts_of(pattern)
    if parts is None or not all(part.is_plain for part in parts):
        return [path for path in paths if is_of(path, pattern)]
    plain = "/".join(part.text for part in parts)
    at = bisect_left(paths, plain)
    here = [plain] if at < len(paths) and paths[at] == plain else []
    first, behind = bisect_left(paths, f"{plain}/"), bisect_left(paths, f"{plain}0")  # 0 comes after /
    return here + list(paths[first:behind])


def _check_few(found: Sequence[Address]) -> None:
    told = sum(
        MADE_BYTES + len(one.path.encode()) + max(len(to.encode()) for to in one.to) + len(one.name.encode())
        for one in found
    )
    if told > TOLD_MOST_BYTES:
        note = f"it left {len(found):,} files, which are too many to be told of: pack them into one"
        raise Undeliverable(Hitch(Stage.STAGE_OUT, Trouble.REFUSED, "", note))


def _check_apart(found: Sequence[Address]) -> None:
    """No two files may be meant for one place, or for one name: the last would silently be all that is left."""
    at: dict[str, str] = {}
    for address in found:
        for place in (*address.to, address.name):
            other = at.setdefault(place, address.path) if place not in ("", KEPT) else address.path
            if other != address.path:
                raise _refused(
                    address.path, f"it would be {place}, and so would {_short(other)}: give it another place"
                )


def _address(leaving: Leaving, path: str) -> Address:
    to = tuple(placed(place, leaving.pattern, path) for place in leaving.to) or (KEPT,)
    name = placed(leaving.name, leaving.pattern, path) if leaving.name else ""
    for place in to:
        if place != KEPT and not is_place(place):
            raise _refused(
                path, f"{_short(place)} is no place: it is too long, or has signs in it that no URL has"
            )
    if name and not is_registered_name(name):
        raise _refused(path, f"{_short(name)} is no name for a file: rename it, or deliver it to a URL")
    return Address(path, to, name)


def _refused(path: str, why: str) -> Undeliverable:
    named = _short(path)
    return Undeliverable(Hitch(Stage.STAGE_OUT, Trouble.REFUSED, named, note_of(f"{named}: {why}")))


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")


def is_of(path: str, pattern: str) -> bool:
    """Whether a pattern finds this file; a directory that is named stands for all in it. As gathering does it."""
    parts = parts_of(pattern)
    return parts is not None and _matches(path.split("/"), parts)


def _matches(names: Sequence[str], parts: Sequence[Part]) -> bool:
    part, is_last = parts[0], len(parts) == 1
    if not names:
        return False
    if part.any_depth:
        deeper = part.matches(names[0]) and (is_last if len(names) == 1 else _matches(names[1:], parts))
        return deeper or (not is_last and _matches(names, parts[1:]))
    if names[0] != part.text if part.is_plain else not part.matches(names[0]):
        return False
    return len(names) == 1 or part.is_plain if is_last else _matches(names[1:], parts[1:])
