"""Testers of file systems. Each call into one is made in a thread that can be left behind: a server of files that is gone hangs it."""

import errno
import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable

from tercel.core.commands import parse_size
from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.core.sizes import size
from tercel.testers.contract import Surroundings
from tercel.testers.mounts import mount_of, mount_points
from tercel.testers.threads import DISKS, Threads
from tercel.testers.verdicts import not_cleared, why

_DISK = re.compile(r"(?P<path>/.*?)\s*>=\s*(?P<size>[^>=]+)", re.DOTALL)

UNITS = "BKMGTP"
MOST_BYTES = 8000 * 2**50
"""No file system can have more."""


def absolute(path: str, example: str) -> str:
    """The one way in which a path is written, without looking at any disk."""
    if not path.startswith("/") or "\0" in path:
        raise UsageError(f"{path[:100]!r} is not an absolute path; write {example}")
    return "/" + posixpath.normpath(path).lstrip("/")


class FileTester:
    """What the testers of one path share: `look` is called in a thread."""

    place = Place.SITE

    def __init__(
        self, kind: str, summary: str, look: Callable[[str], Verdict], threads: Threads = DISKS
    ) -> None:
        self.kind = kind
        self.summary = f"{summary}: {kind}:/data/in"
        self._look = look
        self._threads = threads

    def normalise(self, text: str) -> str:
        return absolute(text.strip(), f"{self.kind}:/data/in")

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        return await self._threads.call(mount_of(text), _looking, self._look, text)


def _exact(size_bytes: int) -> str:
    """In the largest unit of which it is a whole number: 20G is 20480M, and is shown to people."""
    unit = 0
    while size_bytes and size_bytes % 1024 == 0 and unit < len(UNITS) - 1:
        size_bytes //= 1024
        unit += 1
    return f"{size_bytes}{UNITS[unit]}"


class DiskTester:
    kind = "disk"
    place = Place.WORKER
    summary = "so much space is free: disk:/scratch>=20G"

    def __init__(self, threads: Threads = DISKS) -> None:
        self._threads = threads

    def normalise(self, text: str) -> str:
        path, least = self._parts(text)
        if not 1 <= least <= MOST_BYTES:
            raise UsageError(
                f"{text[:100]!r}: what must be free is from 1B to 8000P; write disk:/scratch>=20G"
            )
        return f"{path}>={_exact(least)}"

    def _parts(self, text: str) -> tuple[str, int]:
        """Of any size: what was taken before there were bounds is still asked."""
        match = _DISK.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text[:100]!r} is not a path and a size; write disk:/scratch>=20G")
        return absolute(match["path"], "disk:/scratch>=20G"), parse_size(match["size"], "disk")

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        path, least = self._parts(text)
        return await self._threads.call(mount_of(path), _looking, lambda at: _free(at, least), path)


def file_testers(threads: Threads = DISKS) -> list[FileTester | DiskTester]:
    return [
        FileTester("file", "something is there", _exists, threads),
        FileTester("dir", "a directory can be entered", _entered, threads),
        FileTester("mount", "a file system is mounted there and answers", _mounted, threads),
        FileTester("writable", "files can be written in a directory, or to a file", _written, threads),
        DiskTester(threads),
    ]


def _looking(look: Callable[[str], Verdict], path: str) -> Verdict:
    try:
        return look(path)
    except OSError as error:
        if error.errno == errno.ENOENT and not os.path.lexists(path):
            return not_cleared(f"{path} does not exist")
        return not_cleared(f"{path}: {why(error).lower()}")


def _exists(path: str) -> Verdict:
    os.stat(path)  # noqa: PTH116  # as in the whole module: no more than one call, and its own error
    return Verdict(True, note=f"{path} exists")


def _entered(path: str) -> Verdict:
    with os.scandir(path) as entries:
        next(entries, None)
    if not os.access(path, os.X_OK):
        return not_cleared(f"{path}: may not be entered")
    return Verdict(True, note=f"{path} can be entered")


def _mounted(path: str) -> Verdict:
    os.stat(path)  # noqa: PTH116  # also has an automounter mount it
    if not os.path.ismount(path) and os.path.realpath(path) not in mount_points():
        return not_cleared(f"nothing is mounted at {path}")
    os.statvfs(path)
    if os.path.isdir(path):  # noqa: PTH112
        with os.scandir(path) as entries:
            next(entries, None)
    return Verdict(True, note=f"{path} is mounted and answers")


def _written(path: str) -> Verdict:
    if os.path.isdir(path):  # noqa: PTH112
        with tempfile.TemporaryFile(
            prefix=".tercel-", dir=path
        ) as probe:  # has no name where the system can do so
            probe.write(b"x")
            probe.flush()
    else:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))
    return Verdict(True, note=f"{path} can be written")


def _free(path: str, least: int) -> Verdict:
    free = shutil.disk_usage(path).free
    note = f"{path} has {size(free)} free, {size(least)} needed"
    return Verdict(free >= least, note=note)
